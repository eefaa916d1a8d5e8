"""Automatic pruning of the ledger of a ``cache_dir``."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.cache.ledger.maintenance import folder_nbytes, prune
from penstock.config import Config

log = logging.getLogger("penstock.cache.ledger")

CHECK_EVERY_S = 3600.0
_KEPT_SHARE = 0.9  # of the maximal size, so that a prune is not due again soon
_MARK = "limits-checked"  # a file whose time is that of the last check


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The maximal size of a ledger, and the maximal age of a record since its last use; None for no limit."""

    max_nbytes: int | None = None
    max_age_s: float | None = None

    @staticmethod
    def of(config: Config) -> SizeLimits:
        return SizeLimits(config.cache_max_size or None, config.cache_max_age or None)

    def apply(self, folder: Path) -> None:
        """Prune a ledger that this process has closed, at most once an hour.

        Logs that other processes write are left alone. Errors are logged: they must not fail a query.
        """
        if self == NO_LIMITS:
            return
        try:
            if _is_due(folder / _MARK, time.time()):
                self._prune(folder)
        except Exception as exc:
            log.warning("The ledger %s could not be kept within its limits: %s", folder, exc)

    def _prune(self, folder: Path) -> None:
        is_full = self.max_nbytes is not None and folder_nbytes(folder) > self.max_nbytes
        if not is_full and self.max_age_s is None:
            return
        max_nbytes = int(self.max_nbytes * _KEPT_SHARE) if is_full and self.max_nbytes is not None else None
        result = prune(folder, time.time(), max_nbytes, self.max_age_s)
        if result.num_removed:
            log.info("The ledger %s had %d records removed; %d are left", folder, result.num_removed, result.num_kept)


NO_LIMITS = SizeLimits()


def _is_due(mark: Path, now_s: float) -> bool:
    """Return whether the last check is more than an hour ago, and record this one."""
    if mark.exists() and abs(now_s - mark.stat().st_mtime) < CHECK_EVERY_S:
        return False
    mark.touch()
    return True

"""Keeping the ledger of a ``cache_dir`` within its limits, by itself."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.cache.ledger.maintenance import folder_nbytes, prune
from penstock.config import Config

log = logging.getLogger("penstock.cache.ledger")

LOOK_EVERY_S = 3600.0
_ROOM = 0.9  # of the size is kept when it is passed, so that not every hour a little is rewritten
_MARK = "limits-checked"  # a file whose time says when somebody last looked


@dataclass(frozen=True, slots=True)
class Limits:
    """What a ledger may hold: in bytes, and how long a record stays that nobody uses. None: anything."""

    max_nbytes: int | None = None
    max_age_s: float | None = None

    @staticmethod
    def of(config: Config) -> Limits:
        return Limits(config.cache_max_size or None, config.cache_max_age or None)

    def apply(self, folder: Path) -> None:
        """Prune a ledger that nobody of this process uses any more, once an hour at most.

        What other processes write stays as it is. This is no reason to fail a query: what goes wrong is logged.
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
        max_nbytes = int(self.max_nbytes * _ROOM) if is_full and self.max_nbytes is not None else None
        result = prune(folder, time.time(), max_nbytes, self.max_age_s)
        if result.num_removed:
            log.info("The ledger %s had %d records removed; %d are left", folder, result.num_removed, result.num_kept)


NO_LIMITS = Limits()


def _is_due(mark: Path, now_s: float) -> bool:
    """Say whether nobody looked within the hour, and take note that somebody does now."""
    if mark.exists() and abs(now_s - mark.stat().st_mtime) < LOOK_EVERY_S:
        return False
    mark.touch()
    return True

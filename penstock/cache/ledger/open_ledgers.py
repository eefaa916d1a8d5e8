"""Ledgers of this process: each is opened once, whoever uses it, and closed by the last.

Calls are kept in the ledger of the job that runs, and in that of ``cache_dir``: ``current_ledger`` is both as one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from penstock.cache.ledger.layered import LayeredLedger
from penstock.cache.ledger.maintenance import ledger_folder
from penstock.cache.ledger.size_limits import NO_LIMITS, Limits
from penstock.cache.ledger.store import FileLedger, open_ledger
from penstock.config import get_config
from penstock.protocols import Ledger

_open: dict[Path, tuple[FileLedger, int]] = {}  # with how many users it has
_lock = threading.Lock()

_job_folder: ContextVar[str] = ContextVar("penstock_job_ledger")
_job_era: ContextVar[str] = ContextVar("penstock_job_era", default="")
_inherited_job_folder = ""  # of the driver that this process works for


class SharedLedger:
    """A hold on a ledger: closing it lets go, and the last one closes the ledger itself."""

    def __init__(self, folder: Path, limits: Limits = NO_LIMITS) -> None:
        self._folder: Path | None = folder
        self._limits = limits
        with _lock:
            ledger, num_users = _open.get(folder, (None, 0))
            if ledger is None or ledger.is_closed:  # as in a process that was forked while it was open
                ledger, num_users = open_ledger(folder), 0
            _open[folder] = ledger, num_users + 1
        self.get, self.put, self.flush = ledger.get, ledger.take, ledger.flush

    def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with _lock:
            ledger, num_users = _open[folder]
            if num_users > 1:
                _open[folder] = ledger, num_users - 1
            else:
                del _open[folder]
        if num_users > 1:
            ledger.flush()
        else:
            ledger.close()
            self._limits.apply(folder)


def cache_ledger(cache_dir: str | os.PathLike[str]) -> Ledger:
    """Return the ledger that the queries with this ``cache_dir`` share."""
    return SharedLedger(ledger_folder(Path(cache_dir).expanduser().absolute()), Limits.of(get_config()))


@contextmanager
def job_ledger(folder: str | os.PathLike[str], era: str = "") -> Iterator[None]:
    """Have the calls of the queries within kept in a job's own ledger, too.

    ``era`` stays the same from run to run as long as rows have the same numbers in the same reads.
    """
    token, era_token = _job_folder.set(str(Path(folder).absolute())), _job_era.set(era)
    try:
        yield
    finally:
        _job_folder.reset(token)
        _job_era.reset(era_token)


def job_folder() -> str:
    """Return the folder of the ledger of the job that runs here, nothing where none does."""
    return _job_folder.get(_inherited_job_folder)


def inherit_job_folder(folder: str) -> None:
    """Have the calls of this process, which works for another, kept where that one says."""
    global _inherited_job_folder
    _inherited_job_folder = folder


def ledger_place() -> tuple[str, str, str]:
    """Return what tells ``current_ledger`` here from others: the job's folder, the ``cache_dir``, the job's era."""
    return job_folder(), str(get_config().cache_dir or ""), _job_era.get()


def job_ledger_alone() -> Ledger | None:
    """Return the ledger of the job that runs here without what jobs share. Whoever asks for it closes it."""
    own = job_folder()
    return SharedLedger(Path(own)) if own else None


def current_ledger() -> Ledger | None:
    """Return the ledger that calls are kept in here, None where they are not. Whoever asks for it closes it."""
    own, shared = job_folder(), get_config().cache_dir
    if not own:
        return cache_ledger(shared) if shared else None
    held = SharedLedger(Path(own))
    return LayeredLedger(held, cache_ledger(shared)) if shared else held

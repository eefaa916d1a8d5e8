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

from penstock.config import get_config
from penstock.ledger.layered import LayeredLedger
from penstock.ledger.limits import NO_LIMITS, Limits
from penstock.ledger.store import FileLedger, open_ledger
from penstock.ledger.upkeep import ledger_folder
from penstock.protocols import Ledger

_open: dict[Path, tuple[FileLedger, int]] = {}  # with how many users it has
_lock = threading.Lock()

_job_folder: ContextVar[str] = ContextVar("penstock_job_ledger")
_inherited_job_folder = ""  # of the driver that this process works for


class SharedLedger:
    """A hold on a ledger: closing it lets go, and the last one closes the ledger itself."""

    def __init__(self, folder: Path, limits: Limits = NO_LIMITS) -> None:
        self._folder: Path | None = folder
        self._limits = limits
        with _lock:
            ledger, num_users = _open.get(folder) or (open_ledger(folder), 0)
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
def job_ledger(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Have the calls of the queries within kept in a job's own ledger, too."""
    token = _job_folder.set(str(Path(folder).absolute()))
    try:
        yield
    finally:
        _job_folder.reset(token)


def job_folder() -> str:
    """Return the folder of the ledger of the job that runs here, nothing where none does."""
    return _job_folder.get(_inherited_job_folder)


def inherit_job_folder(folder: str) -> None:
    """Have the calls of this process, which works for another, kept where that one says."""
    global _inherited_job_folder
    _inherited_job_folder = folder


def current_ledger() -> Ledger | None:
    """Return the ledger that calls are kept in here, None where they are not. Whoever asks for it closes it."""
    own, shared = job_folder(), get_config().cache_dir
    if not own:
        return cache_ledger(shared) if shared else None
    held = SharedLedger(Path(own))
    return LayeredLedger(held, cache_ledger(shared)) if shared else held

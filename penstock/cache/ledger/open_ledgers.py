"""The open ledgers of this process: each is opened once, and closed by its last user.

The ledger of the current job and the ledger of ``cache_dir`` both store calls; ``current_ledger`` is both as one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from penstock.cache.ledger.layered import LayeredLedger
from penstock.cache.ledger.maintenance import ledger_folder, prune_if_due
from penstock.cache.ledger.store import FileLedger, open_ledger
from penstock.config import get_config
from penstock.protocols import Ledger

_open: dict[Path, tuple[FileLedger, int]] = {}  # with the number of users
_lock = threading.Lock()

_job: ContextVar[tuple[str, str]] = ContextVar("penstock_job_ledger")  # folder and era
_asks_again: ContextVar[bool] = ContextVar("penstock_asks_again", default=False)
_inherited_job_folder = ""  # in a worker process: the driver's job folder


class SharedLedger:
    """A reference to an open ledger; closing the last one closes the ledger and prunes it to the given limits."""

    def __init__(self, folder: Path, max_nbytes: int | None = None, max_age_s: float | None = None) -> None:
        self._folder: Path | None = folder
        self._max_nbytes, self._max_age_s = max_nbytes, max_age_s
        with _lock:
            ledger, num_users = _open.get(folder, (None, 0))
            if ledger is None or ledger.is_closed:  # in a process forked while it was open
                ledger, num_users = open_ledger(folder), 0
            _open[folder] = ledger, num_users + 1
        self.get, self.put, self.flush = ledger.get, ledger.put, ledger.flush

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
            prune_if_due(folder, self._max_nbytes, self._max_age_s)


def cache_ledger(cache_dir: str | os.PathLike[str]) -> Ledger:
    """Return the ledger that queries with this ``cache_dir`` share."""
    config, folder = get_config(), ledger_folder(Path(cache_dir).expanduser().absolute())
    return SharedLedger(folder, config.cache_max_size or None, config.cache_max_age or None)


@contextmanager
def job_ledger(folder: str | os.PathLike[str], era: str = "", *, asks_again: bool = False) -> Iterator[None]:
    """Within the context, store the calls of queries in a job's own ledger as well.

    ``era`` stays the same over the runs of a job as long as rows have the same numbers in the same reads. With
    ``asks_again``, models are asked again where a stored answer is invalid.
    """
    token, asking = _job.set((str(Path(folder).absolute()), era)), _asks_again.set(asks_again)
    try:
        yield
    finally:
        _job.reset(token)
        _asks_again.reset(asking)


def is_asking_again() -> bool:
    """Return True if the current job runs its failed rows again."""
    return _asks_again.get()


def job_folder() -> str:
    """Return the folder of the current job's ledger, or an empty string without a job."""
    return _job.get((_inherited_job_folder, ""))[0]


def inherit_job_folder(folder: str) -> None:
    """Store the calls of this worker process in the job ledger of its driver."""
    global _inherited_job_folder
    _inherited_job_folder = folder


def ledger_place() -> tuple[str, str, str]:
    """Return the identity of ``current_ledger``: the job's folder, the ``cache_dir``, the job's era."""
    return job_folder(), str(get_config().cache_dir or ""), _job.get(("", ""))[1]


def job_ledger_alone() -> Ledger | None:
    """Return the current job's own ledger, or None without a job. The caller must close it."""
    own = job_folder()
    return SharedLedger(Path(own)) if own else None


def current_ledger() -> Ledger | None:
    """Return the ledger that stores calls here, or None if they are not stored. The caller must close it."""
    own, shared = job_folder(), get_config().cache_dir
    if not own:
        return cache_ledger(shared) if shared else None
    ledger = SharedLedger(Path(own))
    return LayeredLedger(ledger, cache_ledger(shared)) if shared else ledger

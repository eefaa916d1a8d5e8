"""Maintenance of a ledger: statistics, and pruning by age or size.

A prune removes whole logs, the least recently used first, so it may be killed at any time. It leaves logs alone that a
running process writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.cache.keys import NOTE_MARK
from penstock.cache.ledger.record import Entries
from penstock.cache.ledger.segment import Segment, open_segment, segment_paths
from penstock.errors import LedgerError

log = logging.getLogger("penstock.cache.ledger")

CHECK_EVERY_S = 3600.0
_MARK = "limits-checked"  # a file; its time is the time of the last check


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """Statistics of a ledger. Times are in seconds since 1970; None if there are no records."""

    path: str
    num_records: int  # of finished calls
    nbytes: int  # of the files, indexes included
    num_files: int
    num_files_in_use: int  # by processes that write now
    oldest_written_s: int | None
    newest_written_s: int | None


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The result of a prune. ``num_removed`` and ``num_kept`` count finished calls."""

    path: str
    num_removed: int
    num_kept: int
    nbytes_before: int
    nbytes_after: int
    num_files_in_use: int  # they were not removed


@dataclass(slots=True)
class _OpenLog:
    """A log during maintenance."""

    segment: Segment
    entries: Entries
    last_used_s: float
    is_free: bool  # no process writes it


def ledger_folder(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the folder of the ledger in a ``cache_dir`` or in the output folder of a job.

    A folder that is a ledger itself is returned as it is.
    """
    folder = Path(cache_dir).expanduser()
    of_job = folder / "_penstock_job" / "ledger"
    if has_records(folder):
        return folder
    return of_job if has_records(of_job) else folder / "ledger"


def has_records(folder: Path) -> bool:
    """Return whether a folder holds the logs of a ledger."""
    return any(folder.glob("*.log"))


def stats(path: Path) -> LedgerStats:
    """Return statistics of a ledger. Reads only the indexes, and changes nothing."""
    with _opened(path) as logs:
        written = np.concatenate([np.zeros(0, np.uint32), *(each.entries["written"] for each in logs)])
        return LedgerStats(
            str(path),
            sum(num_calls(each.entries) for each in logs),
            folder_nbytes(path),
            len(logs),
            sum(not each.is_free for each in logs),
            int(written.min()) if len(written) else None,
            int(written.max()) if len(written) else None,
        )


def count_calls(folder: Path) -> int:
    """Return the number of finished calls in a ledger, and repair its logs first."""
    num_found = 0
    for path in segment_paths(folder):
        if (segment := open_segment(path)) is not None:
            with contextlib.closing(segment):
                num_found += num_calls(segment.entries())
    return num_found


def prune(path: Path, now_s: float, max_nbytes: int | None = None, max_age_s: float | None = None) -> PruneResult:
    """Remove logs that were not used for ``max_age_s``, then the least recently used ones until at most ``max_nbytes``
    remain."""
    before = folder_nbytes(path)
    with _opened(path) as logs:
        removed = []
        for each in sorted(logs, key=lambda each: each.last_used_s):
            is_old = max_age_s is not None and each.last_used_s < now_s - max_age_s
            is_too_much = max_nbytes is not None and folder_nbytes(path) > max_nbytes
            if each.is_free and (is_old or is_too_much):
                each.segment.remove()
                removed.append(each)
        return _result(path, before, logs, removed)


def clear(path: Path) -> PruneResult:
    """Remove all records, and the files that were renamed as damaged."""
    before = folder_nbytes(path)
    with _opened(path) as logs:
        removed = [each for each in logs if each.is_free]
        for each in removed:
            each.segment.remove()
        for damaged in path.glob("*.damaged"):
            damaged.unlink(missing_ok=True)
        return _result(path, before, logs, removed)


def prune_if_due(folder: Path, max_nbytes: int | None, max_age_s: float | None) -> None:
    """Prune a ledger, at most once an hour. Errors are logged: they must not fail a query."""
    if max_nbytes is None and max_age_s is None:
        return
    try:
        if _is_due(folder / _MARK):
            prune(folder, time.time(), max_nbytes, max_age_s)
    except Exception as exc:
        log.warning("The ledger %s could not be kept within its limits: %s", folder, exc)


def _is_due(mark: Path) -> bool:
    """Return whether the last check is more than an hour ago, and record this one."""
    if mark.exists() and abs(time.time() - mark.stat().st_mtime) < CHECK_EVERY_S:
        return False
    mark.touch()
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[list[_OpenLog]]:
    """Open all logs, and lock each log that no process writes."""
    if not path.is_dir():
        raise LedgerError(f"There is no ledger at {str(path)!r}")
    with contextlib.ExitStack() as stack:
        logs = []
        for each in segment_paths(path):
            with contextlib.suppress(FileNotFoundError):
                segment = Segment(each)
                stack.callback(segment.close)
                is_free = segment.is_writable and segment.try_lock()
                logs.append(_OpenLog(segment, segment.entries(), os.fstat(segment.fd).st_mtime, is_free))
        yield logs


def _result(path: Path, nbytes_before: int, logs: list[_OpenLog], removed: list[_OpenLog]) -> PruneResult:
    num_removed = sum(num_calls(each.entries) for each in removed)
    num_kept = sum(num_calls(each.entries) for each in logs) - num_removed
    num_in_use = sum(not each.is_free for each in logs)
    return PruneResult(str(path), num_removed, num_kept, nbytes_before, folder_nbytes(path), num_in_use)


def num_calls(entries: Entries) -> int:
    """Return the number of finished calls. Other records are notes about calls; see ``note_key``."""
    return int(np.count_nonzero(entries["key1"] >> np.uint64(64 - 8 * len(NOTE_MARK))))


def folder_nbytes(path: Path) -> int:
    """Return the size of the files of a ledger."""
    return sum(each.stat().st_size for each in path.iterdir() if each.is_file()) if path.is_dir() else 0

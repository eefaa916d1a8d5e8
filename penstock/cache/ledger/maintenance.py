"""Maintenance of a ledger: statistics, and pruning by age or size.

Logs that a running process writes are left alone. The others are rewritten one by one if they lose records, so that a
prune needs little space and may be killed at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.cache.ledger.record import ENTRY_NBYTES, Entries, ends
from penstock.cache.ledger.segment import HEADER_NBYTES, ROLL_NBYTES, Segment, segment_paths
from penstock.cache.ledger.tail import abandoned_values
from penstock.errors import LedgerError

_USED_NBYTES = 4
_COPIED_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """Statistics of a ledger. Times are in seconds since 1970, None without records."""

    path: str
    num_records: int
    nbytes: int  # of the files, indexes included
    num_files: int
    num_files_in_use: int  # by processes that write now
    num_damaged_files: int  # moved aside when they were opened
    oldest_written_s: int | None
    newest_written_s: int | None
    least_recently_used_s: int | None


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The result of a prune. ``num_kept`` counts the records that are left."""

    path: str
    num_removed: int
    num_kept: int
    nbytes_before: int
    nbytes_after: int
    num_files_in_use: int  # nothing was removed from them


@dataclass(slots=True)
class _OpenLog:
    """A log during maintenance."""

    segment: Segment
    entries: Entries
    written_used: npt.NDArray[np.uint32]  # as stored
    last_used: npt.NDArray[np.int64]  # the time of writing if it was never used
    is_free: bool

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The bytes of each record in all three files."""
        return ends(self.entries) - self.entries["offset"].astype(np.int64) + 2 * ENTRY_NBYTES + _USED_NBYTES


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
    """Return whether a folder holds values of a ledger, including those that a killed process left in its tail."""
    return any(folder.glob("*.log")) or any(folder.glob("*.tail"))


def stats(path: Path) -> LedgerStats:
    """Return statistics of a ledger. Reads only the indexes, and changes nothing."""
    with _opened(path) as contents:
        written = np.concatenate([np.zeros(0, np.uint32), *(each.entries["written"] for each in contents)])
        used = np.concatenate([np.zeros(0, np.int64), *(each.last_used for each in contents)])
        return LedgerStats(
            str(path),
            len(written),
            folder_nbytes(path),
            len(contents),
            sum(not each.is_free for each in contents),
            len(list(path.glob("*.damaged-*"))),
            int(written.min()) if len(written) else None,
            int(written.max()) if len(written) else None,
            int(used.min()) if len(used) else None,
        )


def verify(path: Path) -> tuple[int, int]:
    """Read every value; return the number of intact records and that of damaged ones."""
    with _opened(path) as contents:
        num_whole = sum(len(each.segment.scan(0)) for each in contents)
        num_known = sum(len(each.entries) for each in contents)
    return num_whole, max(num_known - num_whole, 0)


def prune(path: Path, now_s: float, max_nbytes: int | None = None, max_age_s: float | None = None) -> PruneResult:
    """Remove records not used for ``max_age_s``, then the least recently used until ``max_nbytes`` are left."""
    before = folder_nbytes(path)
    with _opened(path, repairs=True) as contents:
        free = [each for each in contents if each.is_free]
        oldest_s = 0 if max_age_s is None else now_s - max_age_s
        keeps = [each.last_used >= oldest_s for each in free]
        if max_nbytes is not None:
            in_use = sum(int(each.sizes.sum()) for each in contents if not each.is_free)
            headers = HEADER_NBYTES * (len(contents) + 1)
            keeps = _most_recently_used(free, keeps, max_nbytes - in_use - headers)
        _rewrite(path, [(each, keep) for each, keep in zip(free, keeps, strict=True) if not keep.all()])
        num_kept = sum(int(keep.sum()) for keep in keeps)
        num_removed = sum(len(keep) for keep in keeps) - num_kept
        num_in_use = sum(len(each.entries) for each in contents if not each.is_free)
        return PruneResult(
            *(str(path), num_removed, num_kept + num_in_use, before, folder_nbytes(path), len(contents) - len(free))
        )


def clear(path: Path) -> PruneResult:
    """Remove all records, and the files that were moved aside as damaged."""
    before = folder_nbytes(path)
    with _opened(path) as contents:
        free = [each for each in contents if each.is_free]
        for each in free:
            each.segment.remove()
        for damaged in path.glob("*.damaged-*"):
            damaged.unlink(missing_ok=True)
        with abandoned_values(path) as left:
            left.remove()
        num_kept = sum(len(each.entries) for each in contents if not each.is_free)
        num_removed = sum(len(each.entries) for each in free)
        return PruneResult(str(path), num_removed, num_kept, before, folder_nbytes(path), len(contents) - len(free))


@contextlib.contextmanager
def _opened(path: Path, repairs: bool = False) -> Iterator[list[_OpenLog]]:
    """Open all logs; lock those that no process writes, and optionally repair them."""
    if not path.is_dir():
        raise LedgerError(f"There is no ledger at {str(path)!r}")
    with contextlib.ExitStack() as stack:
        contents = []
        for each in segment_paths(path):
            with contextlib.suppress(FileNotFoundError):
                segment = Segment(each)
                stack.callback(segment.close)
                contents.append(_opened_log(segment, repairs))
        yield contents


def _opened_log(segment: Segment, repairs: bool) -> _OpenLog:
    is_free = segment.is_writable and segment.try_lock()
    if is_free and repairs:  # so that records missing in the index are not lost
        segment.repair()
    entries, rows = segment.entries()
    used = segment.used(int(rows[-1]) + 1 if len(rows) else 0)[rows]
    last_used = np.maximum(used, entries["written"]).astype(np.int64)
    return _OpenLog(segment, entries, used, last_used, is_free)


def _most_recently_used(
    contents: list[_OpenLog], keeps: list[npt.NDArray[np.bool_]], max_nbytes: int
) -> list[npt.NDArray[np.bool_]]:
    """Return which of the kept records to keep so that the most recently used take at most ``max_nbytes``."""
    if not contents:
        return keeps
    keep = np.concatenate(keeps)
    sizes = np.where(keep, np.concatenate([each.sizes for each in contents]), 0)
    newest_first = np.argsort(-np.concatenate([each.last_used for each in contents]), kind="stable")
    fits = np.zeros(len(keep), bool)
    fits[newest_first] = np.cumsum(sizes[newest_first]) <= max_nbytes
    return np.split(keep & fits, np.cumsum([len(each.entries) for each in contents])[:-1])


def _rewrite(path: Path, changes: list[tuple[_OpenLog, npt.NDArray[np.bool_]]]) -> None:
    """Copy the kept records of each log into new logs, then delete it."""
    target: Segment | None = None
    try:
        for content, keep in changes:
            kept, used = content.entries[keep], content.written_used[keep]
            for start in range(0, len(kept), _COPIED_AT_ONCE):
                if target is None or target.end >= ROLL_NBYTES:
                    if target is not None:
                        target.close()
                    target = Segment.create(path)
                part = slice(start, start + _COPIED_AT_ONCE)
                target.append_copies(content.segment, kept[part], used[part])
            content.segment.remove()
    finally:
        if target is not None:
            target.close()


def folder_nbytes(path: Path) -> int:
    """Return the size of the files of a ledger."""
    return sum(each.stat().st_size for each in path.iterdir() if each.is_file()) if path.is_dir() else 0

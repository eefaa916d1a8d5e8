"""How large a ledger is, and making it smaller: by age, by size, or altogether.

Files that a living process writes are left as they are. Of the others, those that lose records are written anew, one
after the other, so that a prune needs little room and may be ended at any instant.
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
from penstock.cache.ledger.segment import HEADER_NBYTES, ROLL_NBYTES, DamagedHeaderError, Segment, segment_paths
from penstock.cache.ledger.tail import left_behind
from penstock.errors import LedgerError

_USED_NBYTES = 4
_COPIED_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """What a ledger holds. Times are in seconds since 1970, None where there are no records."""

    path: str
    num_records: int
    nbytes: int  # of the files, indexes included
    num_files: int
    num_files_in_use: int  # by processes that write now
    num_damaged_files: int  # put aside when they were opened
    oldest_written_s: int | None
    newest_written_s: int | None
    least_recently_used_s: int | None


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What a prune did. ``num_kept`` are the records that are there now."""

    path: str
    num_removed: int
    num_kept: int
    nbytes_before: int
    nbytes_after: int
    num_files_in_use: int  # of which nothing was removed


@dataclass(slots=True)
class _Content:
    """One log as prune sees it."""

    segment: Segment
    entries: Entries
    written_used: npt.NDArray[np.uint32]  # as the file has it
    last_used: npt.NDArray[np.int64]  # a record that was never used counts from when it was written
    is_free: bool

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """What each record takes in all three files."""
        return ends(self.entries) - self.entries["offset"].astype(np.int64) + 2 * ENTRY_NBYTES + _USED_NBYTES


def ledger_folder(cache_dir: str | os.PathLike[str]) -> Path:
    """Return where the ledger of a ``cache_dir`` is, or that of a job in its output folder.

    A folder that is a ledger itself is taken as one.
    """
    folder = Path(cache_dir).expanduser()
    of_job = folder / "_penstock_job" / "ledger"
    if has_answers(folder):
        return folder
    return of_job if has_answers(of_job) else folder / "ledger"


def has_answers(folder: Path) -> bool:
    """Say whether anything was ever put into the ledger of a folder, be it in the last moment of a killed process."""
    return any(folder.glob("*.log")) or any(folder.glob("*.tail"))


def stats(path: Path) -> LedgerStats:
    """Return what a ledger holds. Reads its indexes only, and changes nothing."""
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
    """Read every value; return how many records are whole, and how many are not."""
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
    """Remove all records, and the files that were put aside as damaged."""
    before = folder_nbytes(path)
    with _opened(path) as contents:
        free = [each for each in contents if each.is_free]
        for each in free:
            each.segment.remove()
        for damaged in path.glob("*.damaged-*"):
            damaged.unlink(missing_ok=True)
        with left_behind(path) as left:
            left.remove()
        num_kept = sum(len(each.entries) for each in contents if not each.is_free)
        num_removed = sum(len(each.entries) for each in free)
        return PruneResult(str(path), num_removed, num_kept, before, folder_nbytes(path), len(contents) - len(free))


@contextlib.contextmanager
def _opened(path: Path, repairs: bool = False) -> Iterator[list[_Content]]:
    """Open all logs, locked where nobody writes them, and on demand repaired there."""
    if not path.is_dir():
        raise LedgerError(f"There is no ledger at {str(path)!r}")
    with contextlib.ExitStack() as stack:
        contents = []
        for each in segment_paths(path):
            with contextlib.suppress(FileNotFoundError, DamagedHeaderError):
                segment = Segment(each)
                stack.callback(segment.close)
                contents.append(_content(segment, repairs))
        yield contents


def _content(segment: Segment, repairs: bool) -> _Content:
    is_free = segment.is_writable and segment.try_lock()
    if is_free and repairs:  # what a crash left out of the index is not to be lost
        segment.repair()
    entries, rows = segment.entries()
    used = segment.used(int(rows[-1]) + 1 if len(rows) else 0)[rows]
    last_used = np.maximum(used, entries["written"]).astype(np.int64)
    return _Content(segment, entries, used, last_used, is_free)


def _most_recently_used(
    contents: list[_Content], keeps: list[npt.NDArray[np.bool_]], max_nbytes: int
) -> list[npt.NDArray[np.bool_]]:
    """Return what to keep so that the records used last, of those that were to be kept, take ``max_nbytes``."""
    if not contents:
        return keeps
    keep = np.concatenate(keeps)
    sizes = np.where(keep, np.concatenate([each.sizes for each in contents]), 0)
    newest_first = np.argsort(-np.concatenate([each.last_used for each in contents]), kind="stable")
    fits = np.zeros(len(keep), bool)
    fits[newest_first] = np.cumsum(sizes[newest_first]) <= max_nbytes
    return np.split(keep & fits, np.cumsum([len(each.entries) for each in contents])[:-1])


def _rewrite(path: Path, changes: list[tuple[_Content, npt.NDArray[np.bool_]]]) -> None:
    """Copy what is kept of each log into new ones, then delete it."""
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
    """Return how large the files of a ledger are."""
    return sum(each.stat().st_size for each in path.iterdir() if each.is_file()) if path.is_dir() else 0

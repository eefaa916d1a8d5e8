"""A ledger: log files in one folder, one for each process that writes.

So processes never wait for each other, a damaged file harms no other, and the file system must only support ``flock``.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.cache.forks import release_on_fork
from penstock.cache.keys import KEY_NBYTES
from penstock.cache.ledger.group_commit import Committer
from penstock.cache.ledger.index import KeyIndex, Places
from penstock.cache.ledger.segment import ROLL_NBYTES, Segment, open_segment, segment_paths
from penstock.errors import InvalidArgumentError, LedgerError
from penstock.storage.durable import sync_folder

log = logging.getLogger("penstock.cache.ledger")

_MTIME_TICK_NS = 50_000_000

Written = tuple[Segment, list[bytes]]  # a log, and the entries of its values that are not durable yet


def open_ledger(path: str | os.PathLike[str]) -> FileLedger:
    """Open the ledger in a folder, or create one.

    >>> import tempfile
    >>> from penstock.cache.ledger import key_of
    >>> ledger = open_ledger(tempfile.mkdtemp())
    >>> key = key_of({"model": "m", "prompt": "hi"})
    >>> ledger.put({key: b"hello"})
    >>> ledger.get([key]) == {key: b"hello"}
    True
    >>> ledger.close()
    """
    return FileLedger(Path(path))


class FileLedger:
    """A durable log of finished calls; see ``protocols.Ledger`` for the contract."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()  # guards everything below
        self._index = KeyIndex()
        self._segments: dict[int, Segment] = {}
        self._numbers: dict[str, int] = {}  # of segments, by file name
        self._folder_mtime_ns = -1
        self._next_number = itertools.count()
        self._orphans: list[Segment] = []  # deleted by another process while this one wrote them
        self.is_closed = False
        try:
            if not path.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                sync_folder(path.parent)
            self._refresh()
        except LedgerError:
            self._close_segments()
            raise
        except OSError as exc:
            self._close_segments()
            raise LedgerError(f"The ledger {str(path)!r} cannot be opened: {exc}") from exc
        self._committer = Committer(self, path)
        atexit.register(self._close_at_exit)
        release_on_fork(self)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the given keys that any process has put."""
        if any(len(key) != KEY_NBYTES for key in keys):
            raise InvalidArgumentError(f"A ledger takes keys of {KEY_NBYTES} bytes (see key_of)")
        # In this order: a value enters the index before it stops waiting.
        found = self._committer.waiting(keys)
        with self._lock:
            if self.is_closed:
                raise LedgerError(f"The ledger {str(self.path)!r} is closed")
            found |= self._read(keys)
            # A folder that cannot be read must not fail a query: writing to it reports the error.
            with contextlib.suppress(OSError):
                if len(found) < len(keys) and self._refresh():
                    found |= self._read([key for key in keys if key not in found])
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store the values of keys that have none yet. Returns at once; they are on disk within 100 ms."""
        self._committer.put(values)

    def flush(self) -> None:
        """Return when every value put so far is on disk."""
        self._committer.flush()

    def close(self) -> None:
        """Flush, and close files and thread; raise if values could not be written."""
        atexit.unregister(self._close_at_exit)
        try:
            self._committer.close()
        finally:
            with self._lock:
                self._close_segments()
                self.is_closed = True

    def _close_segments(self) -> None:
        for segment in (*self._segments.values(), *self._orphans):
            segment.close()
        self._segments.clear()
        self._orphans.clear()
        self._index = KeyIndex()

    def release_in_child(self) -> None:
        """Close in a forked child: files and locks belong to the parent."""
        atexit.unregister(self._close_at_exit)
        self._lock = threading.RLock()  # another thread may have held it
        self._committer.release_in_child()
        self._close_segments()
        self.is_closed = True

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except LedgerError as exc:
            log.error("%s", exc)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        while keys:
            keys, places = self._index.find(keys)
            if not keys:
                break
            values: list[bytes | None] = []
            for number, first, last in _runs(places["segment"]):
                here = places[first:last]
                values += self._segments[number].read(keys[first:last], here["offset"], here["length"])
                self._segments[number].mark_used()
            if None not in values:
                found.update(zip(keys, values, strict=True))  # type: ignore[arg-type]  # no value is None
                break
            found.update((key, value) for key, value in zip(keys, values, strict=True) if value is not None)
            damaged = [i for i, value in enumerate(values) if value is None]
            self._strike_out(places[damaged])
            keys = [keys[i] for i in damaged]  # they may have another place
        return found

    def _strike_out(self, damaged: Places) -> None:
        log.warning("%d records of the ledger %s are damaged and count as missing", len(damaged), self.path)
        for offset, number in damaged[["offset", "segment"]].tolist():
            self._segments[number].forget(offset)
        self._index.discard(damaged)

    def _refresh(self) -> bool:
        """Load what other processes have written; return whether there is anything new."""
        is_new = self._follow_folder()
        for number, segment in self._segments.items():
            if not segment.is_mine:
                entries = segment.load()
                if len(entries):
                    self._index.add(number, entries)
                    is_new = True
        return is_new

    def _follow_folder(self) -> bool:
        """Open new segments and close deleted ones; return whether any was deleted."""
        mtime_ns = os.stat(self.path).st_mtime_ns
        if mtime_ns == self._folder_mtime_ns:
            return False
        # The clock of the file system is coarse: a change soon after another may have the same time.
        self._folder_mtime_ns = mtime_ns if time.time_ns() - mtime_ns > _MTIME_TICK_NS else -1
        paths = {path.name: path for path in segment_paths(self.path)}
        gone = [name for name in self._numbers if name not in paths]
        if gone:  # pruned: their other records are in new files
            self._index = KeyIndex()
            for name in gone:
                self._drop_segment(self._numbers.pop(name))
            for number, segment in self._segments.items():
                if segment.is_mine:
                    self._index.add(number, segment.entries())
                else:
                    segment.num_rows = 0
        for name in sorted(paths.keys() - self._numbers.keys()):
            with contextlib.suppress(FileNotFoundError):
                if (opened := open_segment(paths[name])) is not None:
                    self._add_segment(opened)
        return bool(gone)

    def _drop_segment(self, number: int) -> None:
        segment = self._segments.pop(number)
        if segment.is_mine:  # the committer may be writing to it right now
            self._orphans.append(segment)
        else:
            segment.close()

    def _add_segment(self, segment: Segment) -> int:
        number = next(self._next_number)
        self._segments[number] = segment
        self._numbers[segment.path.name] = number
        return number

    # -- the log of this process, for the committer (see ``OwnLog``) ------------------------------------------------

    def write(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        with self._lock:
            self._own_segment().write(items, int(time.time()))

    def take_written(self) -> list[Written]:
        with self._lock:
            return [(segment, records) for segment in self._mine() if (records := segment.take_written())]

    def sync(self, written: list[Written]) -> None:
        with self._lock:
            self._refresh()
            if any(segment in self._orphans for segment, _ in written):
                raise LedgerError(f"A log of {str(self.path)!r} was deleted while it was written")
        for segment, records in written:
            entries = segment.sync(records)
            with self._lock:
                self._index.add(self._numbers[segment.path.name], entries)
                if ROLL_NBYTES <= segment.end == segment.synced_end:  # else values written meanwhile must be synced
                    segment.unlock()

    def discard_unsynced(self) -> None:
        with self._lock:
            for segment in self._mine():
                segment.discard_unsynced()
                segment.unlock()  # it is repaired before it is written again

    def _mine(self) -> list[Segment]:
        return [segment for segment in (*self._segments.values(), *self._orphans) if segment.is_mine]

    def _own_segment(self) -> Segment:
        """Return the segment that this process writes: an existing one without a writer, or a new one."""
        for segment in self._segments.values():
            if segment.is_mine and segment.end < ROLL_NBYTES:
                return segment
        self._refresh()
        adopted = next(self._adoptable(), None)
        return adopted or self._segments[self._add_segment(Segment.create(self.path))]

    def _adoptable(self) -> Iterator[Segment]:
        for number, segment in self._segments.items():
            if segment.is_writable and segment.end < ROLL_NBYTES and segment.try_lock():
                try:
                    segment.repair()
                except BaseException:
                    segment.unlock()
                    raise
                self._index.add(number, segment.load())
                yield segment


def _runs(sorted_numbers: npt.NDArray[np.uint32]) -> list[tuple[int, int, int]]:
    """Return each number with the start and the end of its run.

    >>> _runs(np.array([3, 3, 5], np.uint32))
    [(3, 0, 2), (5, 2, 3)]
    """
    starts = [0, *(np.flatnonzero(sorted_numbers[1:] != sorted_numbers[:-1]) + 1).tolist(), len(sorted_numbers)]
    return [(int(sorted_numbers[first]), first, last) for first, last in pairwise(starts)]

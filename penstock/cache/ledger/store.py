"""A ledger: log files in one folder, one for each process that writes.

So processes never wait for each other, a damaged file harms no other, and the file system must only support ``flock``.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.cache.forks import release_on_fork
from penstock.cache.keys import KEY_NBYTES, NOTE_MARK
from penstock.cache.ledger.index import KeyIndex, Places
from penstock.cache.ledger.record import MAX_VALUE_NBYTES
from penstock.cache.ledger.segment import ROLL_NBYTES, Segment, open_segment, segment_paths
from penstock.config import piece_nbytes
from penstock.errors import InvalidArgumentError, LedgerError
from penstock.storage.durable import sync_folder

log = logging.getLogger("penstock.cache.ledger")

SYNC_EVERY_S = 0.05  # leaves as long again for the disk, so that a value is durable within 100 ms
RETRY_EVERY_S = 1.0
MAX_UNSYNCED_NBYTES = 64 * 2**20
_OVERHEAD_NBYTES = 200  # overhead of a value in memory
_MTIME_TICK_NS = 50_000_000


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
    """A durable log of finished calls; see ``protocols.Ledger`` for the contract.

    A value is written at once; a thread syncs the log every 50 ms. Until then the value stays in memory too: if the
    disk fails, or another process deletes the log, it is written again every second, and on each ``put`` and ``flush``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()  # guards everything below
        self._index = KeyIndex()
        self._segments: dict[int, Segment] = {}
        self._numbers: dict[str, int] = {}  # of segments, by file name
        self._folder_mtime_ns = -1
        self._next_number = itertools.count()
        self._unsynced: dict[bytes, bytes] = {}
        self._unwritten: dict[bytes, bytes] = {}  # the unsynced values that are in no log
        self._nbytes, self._max_nbytes = 0, piece_nbytes(MAX_UNSYNCED_NBYTES)  # of the unsynced values
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
        self._syncing = threading.Lock()
        self._has_unsynced, self._is_closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._sync_often, name="penstock-ledger", daemon=True)
        self._thread.start()
        atexit.register(self._close_at_exit)
        release_on_fork(self)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the given keys that any process has put."""
        if any(len(key) != KEY_NBYTES for key in keys):
            raise InvalidArgumentError(f"A ledger takes keys of {KEY_NBYTES} bytes (see key_of)")
        with self._lock:
            self._check_open()
            found = {key: self._unsynced[key] for key in keys if key in self._unsynced} if self._unsynced else {}
            found |= self._read(keys)
            # A folder that cannot be read must not fail a query: writing to it reports the error.
            with contextlib.suppress(OSError):
                if len(found) < len(keys) and self._refresh():
                    found |= self._read([key for key in keys if key not in found])
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store the values of keys that have none yet. Returns at once; they are on disk within 100 ms.

        Beyond ``MAX_UNSYNCED_NBYTES`` it waits for a slow disk. If it raises a LedgerError, values are kept in memory
        if there is room, but the caller must not compute more.
        """
        refused = [key for key, value in values.items() if len(key) != KEY_NBYTES or len(value) > MAX_VALUE_NBYTES]
        if self._nbytes > self._max_nbytes:
            self.flush()
        with self._lock:
            self._check_open()
            if not self._unsynced:
                self._has_unsynced.set()
            for key, value in values.items():
                if key not in self._unsynced and key not in refused:
                    self._unsynced[key] = self._unwritten[key] = value
                    self._nbytes += len(value) + _OVERHEAD_NBYTES
            try:
                self._write()
            except Exception as exc:
                raise self._failure(exc) from exc
        for key in refused:
            raise InvalidArgumentError(
                f"A ledger takes keys of {KEY_NBYTES} bytes (see key_of) and values of up to {MAX_VALUE_NBYTES}; "
                f"got {len(key)} and {len(values[key])}"
            )

    def flush(self) -> None:
        """Return when every value put so far is on disk."""
        with self._syncing, contextlib.ExitStack() as files:
            with self._lock:
                if not self._unsynced:
                    return
                try:
                    self._follow_folder()
                    self._write()
                    mine = [(number, segment) for number, segment in self._segments.items() if segment.unindexed]
                    fds = []
                    for _, segment in mine:
                        fds.append(os.dup(segment.fd))  # the segments may be closed meanwhile
                        files.callback(os.close, fds[-1])
                    for number, segment in mine:
                        self._index.add(number, segment.write_index())
                except Exception as exc:
                    raise self._failure(exc) from exc
                values, nbytes, self._unsynced = self._unsynced, self._nbytes, {}
            try:
                for fd in fds:
                    os.fdatasync(fd)
            except OSError as exc:
                with self._lock:
                    for _, segment in mine:
                        segment.unlock()  # it is repaired before it is written again
                    self._unsynced = values | self._unsynced
                    self._unwritten = dict(self._unsynced)
                    raise self._failure(exc) from exc
            with self._lock:
                self._nbytes -= nbytes
                for _, segment in mine:
                    if segment.end >= ROLL_NBYTES and not segment.unindexed:
                        segment.unlock()

    def close(self) -> None:
        """Flush, and close files and thread; raise if values could not be written."""
        if self.is_closed:
            return
        atexit.unregister(self._close_at_exit)
        try:
            self.flush()
        except LedgerError as exc:
            raise LedgerError(f"{exc}. It is closed now, and they may be lost") from exc.__cause__
        finally:
            self._is_closing.set()
            self._has_unsynced.set()
            self._thread.join()
            with self._lock:
                self._close_segments()

    def _close_segments(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self._unsynced, self._unwritten = {}, {}
        self._index = KeyIndex()
        self.is_closed = True

    def release_in_child(self) -> None:
        """Close in a forked child: files and locks belong to the parent, and the thread does not exist."""
        atexit.unregister(self._close_at_exit)
        self._lock, self._syncing = threading.RLock(), threading.Lock()  # other threads may have held them
        self._close_segments()

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except LedgerError as exc:
            log.error("%s", exc)

    def _check_open(self) -> None:
        if self.is_closed:
            raise LedgerError(f"The ledger {str(self.path)!r} is closed")

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
                segment = self._segments.pop(self._numbers.pop(name))
                if segment.is_mine:
                    self._unwritten = dict(self._unsynced)
                segment.close()
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

    def _add_segment(self, segment: Segment) -> int:
        number = next(self._next_number)
        self._segments[number] = segment
        self._numbers[segment.path.name] = number
        return number

    # -- writing -----------------------------------------------------------------------------------------------------

    def _sync_often(self) -> None:
        wait_s = SYNC_EVERY_S
        while not self._is_closing.is_set():  # asked after ``clear``, which may undo what ``close`` has set
            self._has_unsynced.wait()
            self._is_closing.wait(wait_s)
            self._has_unsynced.clear()
            try:
                self.flush()
                wait_s = SYNC_EVERY_S
            except LedgerError as exc:
                if wait_s == SYNC_EVERY_S:
                    log.warning("%s", exc)
                wait_s = RETRY_EVERY_S

    def _write(self) -> None:
        """Write the values that are in no log."""
        if self._unwritten:
            self._own_segment().write(self._unwritten.items(), int(time.time()))
            self._unwritten = {}

    def _failure(self, error: Exception) -> LedgerError:
        self._has_unsynced.set()  # the thread tries again
        try:
            space = f"{shutil.disk_usage(self.path).free:,} bytes are free there"
        except OSError as exc:
            space = str(exc)
        num_calls = sum(not key.endswith(NOTE_MARK) for key in self._unsynced)
        return LedgerError(
            f"The ledger {str(self.path)!r} cannot be written: {error}; {space}. {num_calls:,} finished calls "
            f"({self._nbytes:,} bytes) wait in memory until there is space or the disk is repaired"
        )

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

"""One log file of a ledger, with its index: written by one process at a time, read by any number.

    000001-5f3a.log       a header, then records (record.py); append-only
    000001-5f3a.index     a copy of the entries of the log; rebuilt if damaged

The writer holds a lock on the log, which ends with the process. The modification time of the log is the time of its
last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.cache.ledger.record import (
    ENTRY,
    ENTRY_NBYTES,
    Entries,
    decoded_all,
    ends,
    find_entries,
    good,
    keys_of,
    not_inside_another,
    record_of,
)
from penstock.errors import LedgerError
from penstock.storage.durable import sync_folder

log = logging.getLogger("penstock.cache.ledger")

VERSION = 1
_MAGIC = b"penstock-ledger\0"
HEADER_NBYTES = 32
ROLL_NBYTES = 128 * 2**20  # a larger log is not continued; prune removes whole logs
_SCAN_NBYTES = 16 * 2**20
_SCANNED_AT_ONCE = 1024
_READ_NBYTES, _READ_OVER_NBYTES = 2**20, 4096  # bytes read at once, and the most of them that may be unused
_LAST_CHECKED = 16  # values at the end of a log that are checked when it is opened
_NO_ENTRIES: Entries = np.zeros(0, ENTRY)


def header(version: int = VERSION) -> bytes:
    """Return the first bytes of a log."""
    start = _MAGIC + version.to_bytes(4, "little")
    return (start + zlib.crc32(start).to_bytes(4, "little")).ljust(HEADER_NBYTES, b"\0")


class Segment:
    """A log and its index, open. Not safe for several threads by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_mine = False  # this object holds the lock
        self.num_rows = 0  # rows of the index that were loaded or written
        self.is_writable = os.access(path, os.W_OK)
        self.fd = os.open(path, (os.O_RDWR if self.is_writable else os.O_RDONLY) | os.O_CLOEXEC)
        self._index_path = path.with_suffix(".index")
        self._index_inode = 0
        self._index_fd = -1  # while this object writes it
        self._is_marked = False  # whether the time of use is set
        self.end = os.fstat(self.fd).st_size
        self.unindexed: list[bytes] = []  # the entries of written values that are not in the index yet
        try:
            self.has_header = self._check_header()
        except BaseException:
            os.close(self.fd)
            raise

    @classmethod
    def create(cls, folder: Path) -> Segment:
        """Create a new log in a folder and lock it. Other processes see it only when it is locked."""
        numbers = [int(path.name[:6]) for path in segment_paths(folder)]
        name = f"{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"
        hidden = folder / f"{name}.new"
        with contextlib.ExitStack() as undo:
            undo.callback(hidden.unlink, missing_ok=True)
            hidden.write_bytes(header())
            segment = cls(hidden)
            undo.callback(segment.close)
            fcntl.flock(segment.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fsync(segment.fd)
            segment.path = hidden.rename(folder / f"{name}.log")
            sync_folder(folder)
            undo.pop_all()
        segment.is_mine = True
        return segment

    def _check_header(self) -> bool:
        """Return whether the header is intact. Reading records does not need it."""
        start = os.pread(self.fd, HEADER_NBYTES, 0)
        version = int.from_bytes(start[16:20], "little")
        if start != header(version):
            return False
        if version > VERSION:
            raise LedgerError(
                f"The ledger {str(self.path.parent)!r} was written by a newer penstock (format {version}; this one "
                f"knows up to {VERSION}). Upgrade penstock, or use another folder"
            )
        return True

    # -- the lock ----------------------------------------------------------------------------------------------------

    def try_lock(self) -> bool:
        """Take the lock if no process writes the log and it was not deleted."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        with contextlib.suppress(FileNotFoundError):
            self.is_mine = os.stat(self.path).st_ino == os.fstat(self.fd).st_ino
        if not self.is_mine:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        return self.is_mine

    def unlock(self) -> None:
        self._close_index()
        self.unindexed = []
        if self.is_mine:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            self.is_mine = False

    # -- reading -----------------------------------------------------------------------------------------------------

    def load(self) -> Entries:
        """Return the entries added to the index since the last call."""
        try:
            found = os.stat(self._index_path)
        except FileNotFoundError:
            return _NO_ENTRIES
        if found.st_ino != self._index_inode:  # rebuilt by another process
            self._index_inode, self.num_rows = found.st_ino, 0
        if found.st_size < (self.num_rows + 1) * ENTRY_NBYTES:
            return _NO_ENTRIES
        entries = self._index_from(self.num_rows)
        self.end = os.fstat(self.fd).st_size
        are_good = good(entries, self.end)
        if are_good.all():  # the usual case; a million entries take long to copy
            self.num_rows += len(entries)
            return entries
        rows = np.flatnonzero(are_good)
        if len(rows):  # entries after the last good one may be incomplete: read them again later
            self.num_rows += int(rows[-1]) + 1
        return entries[rows]

    def entries(self) -> Entries:
        """Return all good entries. Changes nothing, so another thread may append meanwhile."""
        entries = self._index_from(0)
        return entries[good(entries, os.fstat(self.fd).st_size)]

    def read(
        self, keys: Sequence[bytes], offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint32]
    ) -> list[bytes | None]:
        """Return the values of records, given in file order; None for a damaged one."""
        values: list[bytes | None] = []
        starts = offsets.astype(np.int64) - ENTRY_NBYTES
        records = list(zip(keys, starts.tolist(), lengths.tolist(), strict=True))
        for first, last in neighbours(starts, starts + ENTRY_NBYTES + lengths):
            _, base, _ = records[first]
            _, start, length = records[last - 1]
            try:
                piece = os.pread(self.fd, start + ENTRY_NBYTES + length - base, base)
            except OSError:  # the disk can no longer read it
                piece = b""
            values += decoded_all(piece, records[first:last], base)
        return values

    def mark_used(self) -> None:
        """Set the time of the last use, once for this object: prune removes the least recently used logs."""
        if not self._is_marked:
            self._is_marked = True
            with contextlib.suppress(OSError):  # as without the permission to write
                os.utime(self.fd)

    def _index_from(self, row: int) -> Entries:
        try:
            with open(self._index_path, "rb") as file:
                file.seek(row * ENTRY_NBYTES)
                raw = file.read()
        except FileNotFoundError:
            return _NO_ENTRIES
        return np.frombuffer(raw, ENTRY, count=len(raw) // ENTRY_NBYTES)

    def _have_values(self, entries: Entries) -> list[bool]:
        """Return for each entry whether its value is intact."""
        values = self.read(keys_of(entries), entries["offset"], entries["length"])
        return [value is not None for value in values]

    # -- checking and repairing, with the lock -----------------------------------------------------------

    def repair(self) -> None:
        """Make the header and the index agree with the log, and cut off an incomplete record. Reads little if nothing
        is wrong."""
        size = os.fstat(self.fd).st_size
        entries = self._index_from(0)
        is_whole = self.has_header and bool(good(entries, size).all())
        if not is_whole or not all(self._have_values(entries[-_LAST_CHECKED:])):
            is_whole, entries = False, _NO_ENTRIES
        found = self.scan(int(ends(entries).max(initial=HEADER_NBYTES)))
        entries = np.concatenate([entries, found]) if len(found) else entries
        self.end = int(ends(entries).max(initial=HEADER_NBYTES))
        if len(found) or not is_whole:
            os.pwrite(self.fd, header(), 0)
            self.has_header = True
            self._replace_index(entries)
        if self.end < size:
            os.ftruncate(self.fd, self.end)
        if self.end < size or not is_whole:
            log.warning("The ledger file %s is damaged: %d records can be read and are kept", self.path, len(entries))

    def scan(self, start: int) -> Entries:
        """Return the entries of all intact records from ``start`` on, found without the index."""
        size, found = os.fstat(self.fd).st_size, []
        for at in range(start, size, _SCAN_NBYTES):
            # An entry may extend beyond the piece by all but its first word.
            found.append(find_entries(os.pread(self.fd, _SCAN_NBYTES + ENTRY_NBYTES - 8, at), at))
        entries = np.concatenate([_NO_ENTRIES, *found])
        entries = entries[ends(entries) <= size]
        entries = entries[list(not_inside_another(entries))]
        # In pieces, as the values of a log may not fit into memory.
        pieces = [entries[at : at + _SCANNED_AT_ONCE] for at in range(0, len(entries), _SCANNED_AT_ONCE)]
        return np.concatenate([_NO_ENTRIES, *(each[self._have_values(each)] for each in pieces)])

    def _replace_index(self, entries: Entries) -> None:
        fresh = self._index_path.with_suffix(".index-new")
        fresh.write_bytes(entries.tobytes())
        self._close_index()
        fresh.rename(self._index_path)
        self._index_inode = self.num_rows = 0

    # -- writing, with the lock --------------------------------------------------------------------------

    def write(self, items: Iterable[tuple[bytes, bytes]], now_s: int) -> None:
        """Write values. They then outlive this process, but not a power cut. If it raises, the file is unchanged."""
        entries, records, end = [], [], self.end
        for key, value in items:
            entry, record = record_of(key, value, end, now_s)
            entries.append(entry)
            records.append(record)
            end += len(record)
        try:
            write_all(self.fd, b"".join(records), self.end)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.end)
            raise
        self.end = end
        self.unindexed += entries

    def write_index(self) -> Entries:
        """Add the entries of written values to the index, and return them."""
        rows = b"".join(self.unindexed)
        if self._index_fd < 0:
            self._index_fd = os.open(self._index_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._index_inode = os.fstat(self._index_fd).st_ino
        write_all(self._index_fd, rows, self.num_rows * ENTRY_NBYTES)
        self.num_rows += len(self.unindexed)
        self.unindexed = []
        return np.frombuffer(rows, ENTRY)

    def _close_index(self) -> None:
        fd, self._index_fd = self._index_fd, -1
        if fd >= 0:
            os.close(fd)

    def forget(self, offset: int) -> None:
        """Clear the entry of a damaged record, so that the index is rebuilt when the log is opened next."""
        with contextlib.suppress(OSError), open(self._index_path, "r+b") as file:
            for row in np.flatnonzero(self._index_from(0)["offset"] == offset).tolist():
                file.seek(row * ENTRY_NBYTES)
                file.write(bytes(ENTRY_NBYTES))

    def remove(self) -> None:
        """Delete the files; processes that have them open can still read them."""
        self.path.unlink(missing_ok=True)
        self._index_path.unlink(missing_ok=True)

    def close(self) -> None:
        self._close_index()
        os.close(self.fd)  # also releases the lock
        self.is_mine = False


def open_segment(path: Path) -> Segment | None:
    """Open a log, and repair it if no process writes it. Rename a file without any record and return None."""
    segment = Segment(path)
    if segment.is_writable and segment.try_lock():
        try:
            if not segment.has_header and not len(segment.scan(0)):
                path.rename(path.with_suffix(".damaged"))
                log.warning("%s holds no record that can be read: it is renamed to *.damaged", path)
                segment.close()
                return None
            segment.repair()
        finally:
            segment.unlock()
    return segment


def neighbours(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return runs of records that lie close together, to read each run at once; as first and last + 1.

    >>> neighbours(np.array([0, 100, 90_000]), np.array([90, 200, 90_100]))
    [(0, 2), (2, 3)]
    """
    if not len(starts):
        return []
    is_cut = starts[1:] - stops[:-1] > _READ_OVER_NBYTES
    is_cut |= stops[1:] // _READ_NBYTES != stops[:-1] // _READ_NBYTES  # so that a piece is not much larger
    cuts = [0, *(np.flatnonzero(is_cut) + 1).tolist(), len(starts)]
    return list(pairwise(cuts))


def segment_paths(folder: Path) -> list[Path]:
    """Return the logs in a folder, the oldest first."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder)  # ten times as fast as a glob, and often called while a folder is new
    return [folder / name for name in sorted(names) if name.endswith(".log") and "-" in name and name[:6].isdigit()]


def whole_end(path: Path) -> int:
    """Return the end of a log's durable records, 0 if it has none. Another process may be writing the log right now."""
    try:
        with open(path.with_suffix(".index"), "rb") as file:
            num_rows = os.fstat(file.fileno()).st_size // ENTRY_NBYTES
            file.seek(max(num_rows - _LAST_CHECKED, 0) * ENTRY_NBYTES)
            raw = file.read(_LAST_CHECKED * ENTRY_NBYTES)
        size = os.stat(path).st_size
    except FileNotFoundError:
        return 0
    entries = np.frombuffer(raw, ENTRY, count=len(raw) // ENTRY_NBYTES)
    return int(ends(entries[good(entries, size)]).max(initial=0))


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all data at a position, with as many system calls as it takes."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written

"""Tails: values that are not committed yet, in mapped files that outlive the process.

    5f3a91c2-0.tail    a number, then key, length, checksum and value of each record
    5f3a91c2-1.tail    the same: one file is written while the values of the other are committed

A group commit makes values safe from a power cut some 100 ms after they were put. If the process is killed before that,
the system keeps the pages of its tail, and the next process that opens the ledger commits them. The files are mapped,
as a system call for each value would take ten times as long. They are cleared at each commit, so that they stay small:
that increments the number, which is part of each checksum.

The writer of a tail holds a lock on it, which ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zlib import crc32

_NUMBER = struct.Struct("<Q")
_HEAD = struct.Struct("<16sII")  # key, length of the value, checksum
_FIRST_NBYTES = 2**20


class Tail:
    """The tail of one ledger in this process. Not thread-safe.

    It is best effort: if it cannot be written, values are as safe as the group commit makes them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = secrets.token_hex(4)
        self._files: list[_TailFile] = []  # empty if they cannot be created
        self.write: Callable[[bytes, bytes], None] = self._write_first
        """Store a value so that it outlives this process."""

    def switch(self) -> None:
        """Write to the other file from now on, as the values of this one are about to be committed."""
        if self._files:
            self._files.reverse()
            self.write = self._files[0].write

    def clear_committed(self) -> None:
        """Clear the file that is not written now, as its values are committed."""
        if self._files:
            self._files[1].clear()
        else:
            self.write = self._write_first  # there may be space again

    def close(self, is_committed: bool) -> None:
        """Close the files; those with values that are not committed stay for the next process."""
        if is_committed:
            for file in self._files:
                file.path.unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """Close the files and leave them as they are."""
        for file in self._files:
            file.close()
        self._files.clear()
        self.write = _write_nowhere

    def _write_first(self, key: bytes, value: bytes) -> None:
        self.write = _write_nowhere
        with contextlib.ExitStack() as made:
            try:
                files = [
                    made.enter_context(_TailFile(self._folder / f"{self._name}-{number}.tail")) for number in (0, 1)
                ]
            except (OSError, ValueError):  # no space, no permission, or a file system that cannot map
                return
            made.pop_all()
            self._files = files
            self.write = files[0].write
            self.write(key, value)


def _write_nowhere(key: bytes, value: bytes) -> None:
    pass


class _TailFile:
    """One of the two files: locked and mapped, with its disk space allocated, so that a write cannot fail."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end, self._number, self._nbytes = _NUMBER.size, 0, _FIRST_NBYTES
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._fd).st_nlink:
                raise OSError(f"Another process removed {str(path)!r} before it was locked")
            _allocate(self._fd, _FIRST_NBYTES)
            self._map = mmap.mmap(self._fd, _FIRST_NBYTES)
        except BaseException:
            os.close(self._fd)
            path.unlink(missing_ok=True)
            raise

    def __enter__(self) -> _TailFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def write(self, key: bytes, value: bytes) -> None:
        start = self._end
        begin = start + _HEAD.size
        end = begin + len(value)
        if end > self._nbytes and not self._grow(end):
            return
        _HEAD.pack_into(self._map, start, key, len(value), crc32(value, crc32(key, self._number)))
        self._map[begin:end] = value
        self._end = end

    def clear(self) -> None:
        self._end = _NUMBER.size
        self._number = (self._number + 1) % 2**32
        _NUMBER.pack_into(self._map, 0, self._number)

    def _grow(self, nbytes: int) -> bool:
        """Enlarge the file to hold so many bytes; return whether that succeeded."""
        wanted = max(2 * self._nbytes, -(-nbytes // _FIRST_NBYTES) * _FIRST_NBYTES)
        try:
            _allocate(self._fd, wanted)
            self._map.resize(wanted)
        except (OSError, ValueError, SystemError):
            return False
        self._nbytes = wanted
        return True

    def close(self) -> None:
        self._map.close()
        os.close(self._fd)


def _allocate(fd: int, nbytes: int) -> None:
    """Enlarge a file and allocate its disk space: a store into a map cannot report an error."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, nbytes)
    else:
        size = os.fstat(fd).st_size
        os.pwrite(fd, bytes(nbytes - size), size)


@dataclass(slots=True)
class AbandonedValues:
    """Values that processes put but did not commit before they ended."""

    values: dict[bytes, bytes]
    paths: list[Path]

    def remove(self) -> None:
        """Remove the tails, when their values are committed or not wanted."""
        for path in self.paths:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def abandoned_values(folder: Path) -> Iterator[AbandonedValues]:
    """Lock and read the abandoned tails in a folder."""
    left = AbandonedValues({}, [])
    with contextlib.ExitStack() as stack:
        for path in sorted(folder.glob("*.tail")):
            with contextlib.suppress(OSError):  # its writer is alive, or another process was faster
                file = stack.enter_context(_opened(path))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.values |= dict(_records(file.read()))
                left.paths.append(path)
        yield left


def _opened(path: Path) -> IO[bytes]:
    """Open a file for reading, and for writing if permitted: an exclusive lock on NFS needs it."""
    try:
        return open(path, "r+b")
    except PermissionError:
        return open(path, "rb")


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values up to the first record that is damaged or older than the last clear."""
    if len(content) < _NUMBER.size:
        return
    (number,) = _NUMBER.unpack_from(content)
    at = _NUMBER.size
    while at + _HEAD.size <= len(content):
        key, length, check = _HEAD.unpack_from(content, at)
        begin = at + _HEAD.size
        value = content[begin : begin + length]
        if len(value) < length or crc32(value, crc32(key, number)) != check:
            return
        yield key, value
        at = begin + length

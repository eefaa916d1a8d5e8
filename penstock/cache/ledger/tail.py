"""What was put a moment ago and is not on disk yet: in memory that outlives this process.

    5f3a91c2-0.tail    a number, then key, length, checksum and value of each record
    5f3a91c2-1.tail    the same: one file is written while what is in the other is committed, and then emptied

A group commit makes values safe from a power cut, some 100 ms after they were put. A process that is killed meanwhile
loses nothing: the pages of its tail are the system's, and whoever next opens the ledger puts what is in them. They are
mapped, as a call to the system for each value would take ten times as long; and emptied at each commit, so that they
stay few. To empty a file is to count its number up, which goes into each checksum.

Whoever writes a tail holds a lock on it, which ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zlib import crc32

_NUMBER = struct.Struct("<Q")
_HEAD = struct.Struct("<16sII")  # key, length of the value, checksum
_FIRST_NBYTES = 2**20
_NEW_FOR_S = 60.0  # a file that has no name of its own by then never gets one


class Tail:
    """Writes a tail. Not safe for several threads by itself.

    It is a help, not a promise: where it cannot be written, values are as safe as the group commit makes them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = secrets.token_hex(4)
        self._files: list[_File] = []  # none where none can be made
        self.write: Callable[[bytes, bytes], None] = self._write_first
        """Have a value outlive this process."""

    def turn(self) -> None:
        """Write to the other file from now on: what was put so far is about to be committed."""
        if self._files:
            self._files.reverse()
            self.write = self._files[0].write

    def committed(self) -> None:
        """Empty the file that is not written now: all that is in it has been committed."""
        if self._files:
            self._files[1].clear()
        else:
            self.write = self._write_first  # there may be room again

    def close(self, is_committed: bool) -> None:
        """Let go; files with values that were not committed stay for whoever opens the ledger next."""
        if is_committed:
            self.give_up()
        self.abandon()

    def give_up(self) -> None:
        """Remove the files. The next value begins others."""
        for file in self._files:
            file.path.unlink(missing_ok=True)
            file.close()
        self._files.clear()
        self.write = self._write_first

    def abandon(self) -> None:
        """Let go of the files and leave them as they are."""
        for file in self._files:
            file.close()
        self._files.clear()
        self.write = _write_nowhere

    def _write_first(self, key: bytes, value: bytes) -> None:
        self.write = _write_nowhere
        with contextlib.ExitStack() as made:
            try:
                files = [made.enter_context(_File(self._folder / f"{self._name}-{number}.tail")) for number in (0, 1)]
            except (OSError, ValueError):  # no room, no leave to write, or a file system that does not map
                return
            made.pop_all()
            self._files = files
            self.write = files[0].write
            self.write(key, value)


def _write_nowhere(key: bytes, value: bytes) -> None:
    pass


class _File:
    """One of the two files: locked, mapped, and its room on the disk taken, so that a write cannot fail."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end, self._number, self._nbytes = _NUMBER.size, 0, _FIRST_NBYTES
        hidden = path.with_suffix(".tail-new")  # nobody sees it before it is locked
        self._fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            _take_room(self._fd, _FIRST_NBYTES)
            self._map = mmap.mmap(self._fd, _FIRST_NBYTES)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(path)
        except BaseException:
            os.close(self._fd)
            hidden.unlink(missing_ok=True)
            raise

    def __enter__(self) -> _File:
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
        if self._nbytes > _FIRST_NBYTES:
            self._shrink()
        self._end = _NUMBER.size
        self._number = (self._number + 1) % 2**32
        _NUMBER.pack_into(self._map, 0, self._number)

    def _grow(self, nbytes: int) -> bool:
        """Make room for so many bytes, if there is any."""
        wanted = max(2 * self._nbytes, -(-nbytes // _FIRST_NBYTES) * _FIRST_NBYTES)
        try:
            _take_room(self._fd, wanted)
            self._map.resize(wanted)
        except (OSError, ValueError, SystemError):
            return False
        self._nbytes = wanted
        return True

    def _shrink(self) -> None:
        with contextlib.suppress(OSError, ValueError, SystemError):
            self._map.resize(_FIRST_NBYTES)  # which cuts the file as well
            self._nbytes = _FIRST_NBYTES

    def close(self) -> None:
        self._map.close()
        os.close(self._fd)


def _take_room(fd: int, nbytes: int) -> None:
    """Make a file so large, with room on the disk for all of it: who stores into a map has no error to look at."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, nbytes)
    else:
        size = os.fstat(fd).st_size
        os.pwrite(fd, bytes(nbytes - size), size)


@dataclass(slots=True)
class Left:
    """What processes had put that ended before they committed it."""

    values: dict[bytes, bytes]
    paths: list[Path]

    def remove(self) -> None:
        """Remove the tails, as their values are elsewhere, or are not wanted."""
        for path in self.paths:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def left_behind(folder: Path) -> Iterator[Left]:
    """Give what is left in a folder, and keep others from taking it up meanwhile."""
    left = Left({}, [])
    with contextlib.ExitStack() as stack:
        for path in sorted([*folder.glob("*.tail"), *folder.glob("*.tail-new")]):
            with contextlib.suppress(OSError):  # its writer is alive, or somebody else was quicker
                file = stack.enter_context(_opened(path))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_new = path.suffix == ".tail-new"  # and not locked yet, or never to be
                if is_new and time.time() - os.fstat(file.fileno()).st_mtime < _NEW_FOR_S:
                    continue
                left.values |= dict(_records(file.read()))
                left.paths.append(path)
        yield left


def _opened(path: Path) -> IO[bytes]:
    """Open a file to read it, and to write if that may be: on NFS an exclusive lock needs it."""
    try:
        return open(path, "r+b")
    except PermissionError:
        return open(path, "rb")


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values, up to the first that is not as it was written since the file was emptied."""
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

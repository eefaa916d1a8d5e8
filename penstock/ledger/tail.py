"""What was put a moment ago and is not on disk yet: handed to the system at once, so that it outlives this process.

    5f3a91c2-0.tail    key, length, checksum and value of each, one after the other
    5f3a91c2-1.tail    the same: one file is written while what is in the other is committed, and then emptied

A group commit makes values safe from a power cut, some 100 ms after they were put. A process that is killed meanwhile
loses nothing: the system has its tail, and whoever next opens the ledger puts what is in it. A tail is emptied at each
commit, so the system hardly ever writes one to the disk.

Whoever writes a tail holds a lock on it, which ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

_HEAD = struct.Struct("<16sII")  # key, length of the value, checksum of both


class Tail:
    """Writes a tail. Not safe for several threads by itself.

    It is a help, not a promise: where it cannot be written, values are as safe as the group commit makes them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = secrets.token_hex(4)
        self._fds: list[int] = []
        self._torn: set[int] = set()  # files that took a record in part, and so can take no more
        self._fd: int | None = None  # the file that is written now; -1 where there can be none

    def write(self, key: bytes, value: bytes) -> None:
        """Hand a value to the system."""
        if self._fd is None:
            self._open()
        fd = self._fd
        if fd == -1 or fd in self._torn:
            return
        head = _HEAD.pack(key, len(value), crc32(value, crc32(key)))
        try:
            if os.writev(fd, (head, value)) == len(head) + len(value):
                return
        except OSError:
            pass
        self._torn.add(fd)

    def turn(self) -> None:
        """Write to the other file from now on: what was put so far is about to be committed."""
        if len(self._fds) == 2:
            self._fds.reverse()
            self._fd = self._fds[0]

    def committed(self) -> None:
        """Empty the file that is not written now: all that is in it has been committed."""
        if len(self._fds) == 2:
            _, fd = self._fds
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                self._torn.discard(fd)

    def close(self, is_committed: bool) -> None:
        """Let go; files with values that were not committed stay for whoever opens the ledger next."""
        for number in range(len(self._fds)):
            if is_committed:
                self._path(number).unlink(missing_ok=True)
        for fd in self._fds:
            os.close(fd)
        self._fds, self._fd = [], -1

    def _open(self) -> None:
        try:
            for number in range(2):
                self._fds.append(self._created(self._path(number)))
            self._fd = self._fds[0]
        except OSError:
            self._fd = -1

    def _created(self, path: Path) -> int:
        """Make a file that nobody sees before it is locked."""
        hidden = path.with_suffix(".tail-new")
        fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(path)
        except BaseException:
            os.close(fd)
            hidden.unlink(missing_ok=True)
            raise
        return fd

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}.tail"


@contextlib.contextmanager
def left_behind(folder: Path) -> Iterator[dict[bytes, bytes]]:
    """Give what processes had put that ended before they committed it. Their tails are removed on leaving."""
    with contextlib.ExitStack() as stack:
        values: dict[bytes, bytes] = {}
        paths = []
        for path in sorted(folder.glob("*.tail")):
            with contextlib.suppress(OSError):  # its writer is alive, or somebody else was quicker
                file = stack.enter_context(open(path, "rb"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                values |= dict(_records(file.read()))
                paths.append(path)
        yield values
        for path in paths:
            path.unlink(missing_ok=True)


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values, up to the first that is not as it was written."""
    at = 0
    while at + _HEAD.size <= len(content):
        key, length, check = _HEAD.unpack_from(content, at)
        begin = at + _HEAD.size
        value = content[begin : begin + length]
        if len(value) < length or crc32(value, crc32(key)) != check:
            return
        yield key, value
        at = begin + length

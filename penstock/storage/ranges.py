"""A remote file as Python's own kind of file: every read is a range request, behind a buffer."""

from __future__ import annotations

import bisect
import io
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast

from penstock.errors import ReadError

ReadRange = Callable[[int, int], bytes]
ReadRanges = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]


class RangeFile(io.RawIOBase):
    """A read-only file of known size over a function that reads from one position up to another."""

    def __init__(self, size: int, read_range: ReadRange, read_ranges: ReadRanges | None = None) -> None:
        self.nbytes = size
        self._size = size
        self._read_range = read_range
        self._read_ranges = read_ranges or (lambda ranges: [read_range(start, end) for start, end in ranges])
        self._position = 0
        self._starts: list[int] = []  # of the parts that were read ahead, in order
        self._parts: list[bytes | memoryview] = []

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read parts at once, and keep them until the next call; what lies within one is then read from memory."""
        ordered = sorted(ranges)
        self._starts, self._parts = [], []
        if ordered:
            self._parts = list(self._read_ranges(ordered))
            self._starts = [start for start, _ in ordered]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}, before the start of the file")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self._take(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        parts = []
        while part := self._take(self._size):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, nbytes: int) -> bytes:
        if self.closed:
            raise ValueError("the file is closed")
        start, end = self._position, min(self._position + nbytes, self._size)
        if start >= end:
            return b""
        content = self._kept(start, end) or self._read_range(start, end)
        if not 0 < len(content) <= end - start:
            raise ReadError(f"Bytes {start} to {end - 1} of a file of {self._size} were read as {len(content)} bytes.")
        self._position += len(content)
        return content

    def _kept(self, start: int, end: int) -> bytes:
        number = bisect.bisect_right(self._starts, start) - 1
        if number < 0:
            return b""
        offset = start - self._starts[number]
        part = self._parts[number]
        return bytes(part[offset : offset + end - start]) if offset + end - start <= len(part) else b""


def buffered(size: int, read_range: ReadRange, buffer_size: int) -> BinaryIO:
    """Return a file that reads at least ``buffer_size`` bytes with each request, or all there is if that is less."""
    return cast(BinaryIO, io.BufferedReader(RangeFile(size, read_range), max(1, min(buffer_size, size or 1))))

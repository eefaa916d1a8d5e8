"""A remote file as a Python file: each read is a range request, behind a buffer."""

from __future__ import annotations

import bisect
import io
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast

from penstock.errors import ReadError

ReadRanges = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | memoryview]]


class RangeFile(io.RawIOBase):
    """A read-only file of known size over a function that reads ranges (start, end).

    ``prefetch`` reads ranges that are at most ``max_gap_nbytes`` apart with one request.
    """

    def __init__(self, size: int, read_ranges: ReadRanges, max_gap_nbytes: int = 0) -> None:
        self.nbytes = size
        self._max_gap_nbytes = max_gap_nbytes
        self._read_ranges = read_ranges
        self._position = 0
        self._starts: list[int] = []  # of the prefetched ranges, in order
        self._contents: Sequence[bytes | memoryview] = []

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges at once and hold them until the next call; later reads within them come from memory."""
        merged = merged_ranges(sorted(ranges), self._max_gap_nbytes)
        self._contents = self._read_ranges(merged) if merged else []
        self._starts = [start for start, _ in merged]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.nbytes}[whence]
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
        return self._take(self.nbytes)

    def _take(self, nbytes: int) -> bytes:
        if self.closed:
            raise ValueError("the file is closed")
        start, end = self._position, min(self._position + nbytes, self.nbytes)
        if start >= end:
            return b""
        content = self._prefetched(start, end) or bytes(self._read_ranges([(start, end)])[0])
        if len(content) != end - start:
            raise ReadError(f"Bytes {start} to {end - 1} of a file of {self.nbytes} were read as {len(content)} bytes.")
        self._position = end
        return content

    def _prefetched(self, start: int, end: int) -> bytes:
        number = bisect.bisect_right(self._starts, start) - 1
        if number < 0:
            return b""
        offset = start - self._starts[number]
        content = self._contents[number]
        return bytes(content[offset : offset + end - start]) if offset + end - start <= len(content) else b""


def buffered(size: int, read_ranges: ReadRanges, buffer_size: int) -> BinaryIO:
    """Return a file that reads at least ``buffer_size`` bytes with each request, or the whole file if it is smaller."""
    return cast(BinaryIO, io.BufferedReader(RangeFile(size, read_ranges), max(1, min(buffer_size, size or 1))))


def merged_ranges(ranges: Sequence[tuple[int, int]], max_gap_nbytes: int) -> list[tuple[int, int]]:
    """Merge sorted ranges that are close together.

    >>> merged_ranges([(0, 10), (20, 30), (500, 510)], 100)
    [(0, 30), (500, 510)]
    """
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and start <= found[-1][1] + max_gap_nbytes:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found

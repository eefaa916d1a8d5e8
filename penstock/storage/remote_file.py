"""A remote file as a Python file: each read is a range request, and all are of the same version of the content."""

from __future__ import annotations

import bisect
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Version:
    """A server's description of a file's content; None for what it does not state."""

    size: int | None = None
    etag: str | None = None
    modified: str | None = None

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], size: int | None) -> Version:
        return cls(size, headers.get("ETag"), headers.get("Last-Modified"))

    def __str__(self) -> str:
        """Return the known properties as text.

        >>> str(Version(5, '"a"', "2026-01-02 10:00:00"))
        '5 bytes, modified 2026-01-02 10:00:00, etag "a"'
        """
        properties = {"{} bytes": self.size, "modified {}": self.modified, "etag {}": self.etag}
        return ", ".join(text.format(value) for text, value in properties.items() if value is not None)

    def differs(self, later: Version) -> bool:
        """Return whether a later answer certainly describes other content.

        >>> Version(5, '"a"').differs(Version(5, '"b"')), Version(5, '"a"').differs(Version(None, None, "today"))
        (True, False)
        """
        if None not in (self.size, later.size) and self.size != later.size:
            return True
        if self.etag is not None and later.etag is not None:  # a weak etag stands for the same content
            return self.etag.removeprefix("W/") != later.etag.removeprefix("W/")
        return None not in (self.modified, later.modified) and self.modified != later.modified

    def checked(self, later: Version, shown: str) -> Version:
        """Return the combined version of two answers; raise an error if they describe different content."""
        if self.differs(later):
            raise ReadError(f"{shown!r} changed while it was read. Read it again.")
        return Version(
            later.size if self.size is None else self.size, self.etag or later.etag, self.modified or later.modified
        )


ANY_VERSION = Version()

"""Whether the parts of a remote file that are read one after the other are parts of the same content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import ReadError

MERGED_GAP_NBYTES = 2**20  # parts that lie no further apart are read by one request


@dataclass(frozen=True, slots=True)
class Version:
    """What a server says of the content it serves; None where it does not say."""

    size: int | None = None
    etag: str | None = None
    modified: str | None = None

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], size: int | None) -> Version:
        return cls(size, headers.get("ETag"), headers.get("Last-Modified"))

    def __str__(self) -> str:
        """What can be told of it, for people.

        >>> str(Version(5, '"a"', "2026-01-02 10:00:00"))
        '5 bytes, modified 2026-01-02 10:00:00, etag "a"'
        """
        told = {"{} bytes": self.size, "modified {}": self.modified, "etag {}": self.etag}
        return ", ".join(form.format(value) for form, value in told.items() if value is not None)

    def is_other(self, later: Version) -> bool:
        """Return whether a later answer surely is of another content.

        >>> Version(5, '"a"').is_other(Version(5, '"b"')), Version(5, '"a"').is_other(Version(None, None, "today"))
        (True, False)
        """
        if None not in (self.size, later.size) and self.size != later.size:
            return True
        if self.etag is not None and later.etag is not None:  # a weak one is of the same content but for its form
            return self.etag.removeprefix("W/") != later.etag.removeprefix("W/")
        return None not in (self.modified, later.modified) and self.modified != later.modified

    def checked(self, later: Version, shown: str) -> Version:
        """Return what is known after a later answer; raise an error if it is of another content."""
        if self.is_other(later):
            raise ReadError(f"{shown!r} changed while it was read, so its parts do not belong together. Read it again.")
        return Version(
            later.size if self.size is None else self.size, self.etag or later.etag, self.modified or later.modified
        )


ANY_VERSION = Version()


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges that hold all of the given, which are in order, with those that lie close together made one.

    >>> merged([(0, 10), (20, 30), (5_000_000, 5_000_010)])
    [(0, 30), (5000000, 5000010)]
    """
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and start <= found[-1][1] + MERGED_GAP_NBYTES:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found

"""Versions of remote files, to detect that the content changes between two reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ReadError


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

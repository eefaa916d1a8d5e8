"""Open files for decoding: a ``File``, a path or URL, bytes, or a file found by a scan."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, runtime_checkable

from penstock.errors import TypeMismatchError
from penstock.storage.access import Access
from penstock.storage.file import File
from penstock.storage.remote_file import RangeFile
from penstock.storage.transfer import BoundFile

BUFFER_NBYTES = 2**20  # minimum size of a request to a remote store


@runtime_checkable
class SourceFile(Protocol):
    """A file found by a scan. ``str()`` is its name in messages."""

    def open_for_decoding(self, buffer_nbytes: int) -> BinaryIO:
        """Open for reading at any position; requests to a remote store have at least ``buffer_nbytes``."""


FileLike = File | SourceFile | str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class SourceAccess:
    """Access rules for the files of a column, and options for files without their own. None: the configured access.

    The settings of a ``with ps.config(...)`` block apply to the user's thread, so a query built there carries them.
    """

    access: Access | None = None
    storage_options: Mapping[str, Any] | None = None


CONFIGURED_ACCESS = SourceAccess()


def open_source(source: FileLike, access: SourceAccess = CONFIGURED_ACCESS) -> BinaryIO:
    """Open a file for reading at any position.

    A decoder gets this stream and never a name: FFmpeg would take a name from the data as a URL of any protocol.
    """
    if isinstance(source, SourceFile):
        return source.open_for_decoding(BUFFER_NBYTES)
    return _bound(source, access).open(BUFFER_NBYTES)


def read_source(source: FileLike, access: SourceAccess) -> bytes:
    """Return the content of a file in a column."""
    return _bound(source, access).read()


def describe_source(source: FileLike) -> str:
    """Return a file as errors name it."""
    if isinstance(source, SourceFile):
        return repr(str(source))
    file = _as_file(source)
    return f"a file of {file.size()} bytes" if file.path is None else repr(str(file))


def size_of(stream: BinaryIO) -> int:
    """Return the size of an open file; the position may change."""
    if isinstance(stream, io.BufferedReader) and isinstance(stream.raw, RangeFile):
        return stream.raw.nbytes  # seeking the end of a remote file would discard its buffer
    return stream.seek(0, io.SEEK_END)


def _bound(source: Any, access: SourceAccess) -> BoundFile:
    return BoundFile(_as_file(source), access.access, access.storage_options)


def _as_file(source: Any) -> File:
    if isinstance(source, File | str | os.PathLike | bytes):
        return source if isinstance(source, File) else File(source)
    raise TypeMismatchError(f"expected a File, a path or bytes; got {type(source).__name__} {source!r:.80}")

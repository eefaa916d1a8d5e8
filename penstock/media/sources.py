"""Open files for decoding: a ``File``, a path or URL, bytes, or a file found by a scan."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from penstock.errors import TypeMismatchError
from penstock.io.files import DataFile
from penstock.storage.access import Access
from penstock.storage.file import File
from penstock.storage.ranges import RangeFile
from penstock.storage.stores import open_store

BUFFER_NBYTES = 2**20  # minimum size of a request to a remote store

FileLike = File | DataFile | str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class SourceAccess:
    """Access rules and options for the paths of a column; an ``access`` of None means the configured one.

    The settings of a ``with ps.config(...)`` block apply to the user's thread, so a query built there carries them.
    """

    access: Access | None = None
    storage_options: Mapping[str, Any] | None = None


CONFIGURED_ACCESS = SourceAccess()


def open_source(source: FileLike, access: SourceAccess = CONFIGURED_ACCESS) -> BinaryIO:
    """Open a file for reading at any position.

    A decoder gets this stream and never a name: FFmpeg would take a name from the data as a URL of any protocol.
    """
    if isinstance(source, DataFile):
        if source.storage.is_local:
            return open(source.path, "rb")
        return cast(BinaryIO, io.BufferedReader(source.open_file(), BUFFER_NBYTES))
    file = _as_file(source)
    if file.path is None:
        return file.open()
    store, key = open_store(file.path, access.storage_options or file._options, access.access)
    return store.open(key, BUFFER_NBYTES)


def read_source(source: FileLike, access: SourceAccess) -> bytes:
    """Return the content of a file in a column."""
    file = _as_file(source)
    if file.path is None:
        return file.read()
    store, key = open_store(file.path, access.storage_options or file._options, access.access)
    return store.read(key)


def describe_source(source: FileLike) -> str:
    """Return a file as errors name it."""
    if isinstance(source, DataFile):
        return repr(str(source))
    file = _as_file(source)
    return f"a file of {file.size()} bytes" if file.path is None else repr(str(file))


def size_of(stream: BinaryIO) -> int:
    """Return the size of an open file; the position may change."""
    if isinstance(stream, io.BufferedReader) and isinstance(stream.raw, RangeFile):
        return stream.raw.nbytes  # seeking the end of a remote file would discard its buffer
    return stream.seek(0, io.SEEK_END)


def _as_file(source: Any) -> File:
    if isinstance(source, File | str | os.PathLike | bytes):
        return source if isinstance(source, File) else File(source)
    raise TypeMismatchError(f"expected a File, a path or bytes; got {type(source).__name__} {source!r:.80}")

"""A file to decode, however it comes: as a ``File``, a path or URL, the bytes themselves, or found by a scan."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

from penstock.errors import MissingExtraError, TypeMismatchError
from penstock.io.files import DataFile
from penstock.storage.file import File

FileLike = File | DataFile | str | os.PathLike[str] | bytes


def opened(source: FileLike, storage_options: Mapping[str, Any] | None = None) -> BinaryIO:
    """Open a file for reading at any position.

    A decoder is given this stream and never a name: FFmpeg would take a name that comes from the data as the URL of any
    protocol it knows.
    """
    if isinstance(source, DataFile):
        return open(source.path, "rb") if source.storage.is_local else cast(BinaryIO, source.open_file())
    return _file(source, storage_options).open()


def content_of(source: FileLike, storage_options: Mapping[str, Any] | None = None) -> bytes:
    """Return the whole content of a file."""
    if isinstance(source, DataFile):
        with opened(source) as stream:
            return stream.read()
    return _file(source, storage_options).read()


def shown(source: FileLike) -> str:
    """Return a file as an error names it."""
    if isinstance(source, DataFile):
        return repr(str(source))
    file = _file(source, None)
    return f"a file of {file.size()} bytes" if file.path is None else repr(str(file))


def _file(source: Any, storage_options: Mapping[str, Any] | None) -> File:
    if isinstance(source, File | str | os.PathLike | bytes):
        return File(source, storage_options=storage_options)
    raise TypeMismatchError(f"expected a File, a path or bytes; got {type(source).__name__} {source!r:.80}")


def require(package: str, extra: str, feature: str) -> None:
    """Raise MissingExtraError unless a package is there; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra, feature)

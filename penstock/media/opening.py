"""A file to decode, however it comes: as a ``File``, a path or URL, the bytes themselves, or found by a scan."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from penstock.errors import MissingExtraError, TypeMismatchError
from penstock.io.files import DataFile
from penstock.storage.access import ANYTHING, Access
from penstock.storage.file import File
from penstock.storage.stores import open_store

BUFFER_NBYTES = 2**20  # the least that is asked of a remote store at once

FileLike = File | DataFile | str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class Reach:
    """What a worker process must be told to open the files of a column, since it has settings of its own."""

    access: Access = ANYTHING
    storage_options: Mapping[str, Any] | None = None


def opened(source: FileLike) -> BinaryIO:
    """Open a file for reading at any position.

    A decoder is given this stream and never a name: FFmpeg would take a name that comes from the data as the URL of any
    protocol it knows.
    """
    if not isinstance(source, DataFile):
        return _file(source).open()
    if source.storage.is_local:
        return open(source.path, "rb")
    return cast(BinaryIO, io.BufferedReader(source.open_file(), BUFFER_NBYTES))


def content_of(source: FileLike, reach: Reach) -> bytes:
    """Return the whole content of a file that a column holds."""
    file = _file(source)
    if file.path is None:
        return file.read()
    store, key = open_store(file.path, reach.storage_options or file._options, reach.access)
    return store.read(key)


def shown(source: FileLike) -> str:
    """Return a file as an error names it."""
    if isinstance(source, DataFile):
        return repr(str(source))
    file = _file(source)
    return f"a file of {file.size()} bytes" if file.path is None else repr(str(file))


def _file(source: Any) -> File:
    if isinstance(source, File | str | os.PathLike | bytes):
        return source if isinstance(source, File) else File(source)
    raise TypeMismatchError(f"expected a File, a path or bytes; got {type(source).__name__} {source!r:.80}")


def require(package: str, extra: str, feature: str) -> None:
    """Raise MissingExtraError unless a package is there; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra, feature)

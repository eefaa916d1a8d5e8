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
from penstock.storage.access import Access
from penstock.storage.file import File
from penstock.storage.stores import Store, open_store

BUFFER_NBYTES = 2**20  # the least that is asked of a remote store at once

FileLike = File | DataFile | str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class Reach:
    """What the paths of a column may lead to, and how; an ``access`` of None is what the settings say.

    Settings of a ``with ps.config(...)`` block hold on the user's own thread, so a query built there carries them.
    """

    access: Access | None = None
    storage_options: Mapping[str, Any] | None = None


BY_SETTINGS = Reach()


def opened(source: FileLike, reach: Reach = BY_SETTINGS) -> BinaryIO:
    """Open a file for reading at any position.

    A decoder is given this stream and never a name: FFmpeg would take a name that comes from the data as the URL of any
    protocol it knows.
    """
    if not isinstance(source, DataFile):
        file = _file(source)
        return file.open() if file.path is None else _store_of(file, reach).open()
    if source.storage.is_local:
        return open(source.path, "rb")
    return cast(BinaryIO, io.BufferedReader(source.open_file(), BUFFER_NBYTES))


def content_of(source: FileLike, reach: Reach) -> bytes:
    """Return the whole content of a file that a column holds."""
    file = _file(source)
    return file.read() if file.path is None else _store_of(file, reach).read()


@dataclass(frozen=True)
class _Place:
    store: Store
    key: str

    def open(self) -> BinaryIO:
        return self.store.open(self.key, BUFFER_NBYTES)

    def read(self) -> bytes:
        return self.store.read(self.key)


def _store_of(file: File, reach: Reach) -> _Place:
    return _Place(*open_store(file.path or "", reach.storage_options or file._options, reach.access))


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

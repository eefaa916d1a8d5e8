"""From a path to the store that holds it, and the one client a process has for each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

from penstock.errors import PathNotFoundError, ReadError
from penstock.storage.urls import local_path, redacted


class Store(Protocol):
    """Reads the files of one place. Thread-safe; keys are as ``open_store`` gives them.

    A file that is not there raises PathNotFoundError, everything else that goes wrong ReadError.
    """

    def size(self, key: str) -> int:
        """Return the size in bytes without reading the content."""
        ...

    def read(self, key: str) -> bytes:
        """Return the whole content."""
        ...

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        """Open for reading at any position."""
        ...


class LocalStore:
    """The local disk; a key is a path."""

    def size(self, key: str) -> int:
        try:
            return os.stat(key).st_size
        except OSError as exc:
            raise local_error(key, exc) from exc

    def read(self, key: str) -> bytes:
        with self.open(key, -1) as file:
            return file.read()

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        try:
            return open(key, "rb")
        except OSError as exc:
            raise local_error(key, exc) from exc


def local_error(path: str, exc: OSError) -> ReadError:
    """Return what to tell of a path that the system will not give."""
    if isinstance(exc, FileNotFoundError | NotADirectoryError):
        return PathNotFoundError(f"File {path!r} does not exist.")
    return ReadError(f"Cannot read {path!r}: {exc.strerror or exc}")


def open_store(path: str, options: Mapping[str, Any] | None = None) -> tuple[Store, str]:
    """Return the store that a path or URL lies in, and its key there."""
    local = local_path(path)
    if local is not None:
        return LocalStore(), local
    raise ReadError(f"Cannot read {redacted(path)!r}: this kind of store is not supported yet.")

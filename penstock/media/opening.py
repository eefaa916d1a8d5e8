"""A file to decode, however a column holds it: a path or URL, the bytes themselves, or a ``File``."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from penstock.errors import PathNotFoundError, ReadError, TypeMismatchError


@contextmanager
def opened(source: Any) -> Iterator[BinaryIO]:
    """Open a file for reading at any position.

    A decoder is given this stream and never a name: FFmpeg would take a name that comes from the data as the URL of any
    protocol it knows.
    """
    path, data = path_and_data(source)
    if data is not None:
        yield io.BytesIO(data)
        return
    assert path is not None
    with _opened_path(path) as stream:
        yield stream


@contextmanager
def _opened_path(path: str) -> Iterator[BinaryIO]:
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below; here only what opening raises is translated
    except FileNotFoundError as exc:
        raise PathNotFoundError(f"File {path!r} does not exist.") from exc
    except OSError as exc:
        raise ReadError(f"Cannot read {path!r}: {os.strerror(exc.errno or 0)}") from exc
    with stream:
        yield stream


def path_and_data(source: Any) -> tuple[str | None, bytes | None]:
    """Return where a file lies, or its bytes where it lies in memory."""
    if isinstance(source, Mapping):  # a File column's value
        source = source["data"] if source.get("data") is not None else source.get("path")
    if isinstance(source, str | os.PathLike):
        return os.fspath(source), None
    if isinstance(source, bytes | bytearray | memoryview):
        return None, bytes(source)
    raise TypeMismatchError(f"expected a File, bytes, or a path; got {type(source).__name__} {source!r:.80}")


def shown(source: Any) -> str:
    """Return a file as an error names it."""
    path, data = path_and_data(source)
    return repr(path) if data is None else f"a file of {len(data)} bytes"

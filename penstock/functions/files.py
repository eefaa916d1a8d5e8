"""Files as values: made from paths, and their path, size and type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call, lit, method
from penstock.expr.kinds import BINARY, STRING, Kind
from penstock.expr.signatures import strict, takes
from penstock.expr.udf import Target
from penstock.functions.calls import transfer_call
from penstock.storage.access import configured_access
from penstock.storage.mime import sniff
from penstock.storage.options import StorageOptions, kinds_for, share_options
from penstock.storage.urls import KINDS
from penstock.types import DataType

FILE = Kind("a file", DataType.is_file, "make one of a path with file(...)")


@method
def file(expr: Expression, *, storage_options: Mapping[str, Any] | None = None) -> Expression:
    """Make a ``ps.File`` of each path or URL, or of bytes. Nothing is read.

    ``storage_options`` apply to all files of their store that have no other options: those of S3 to every ``s3://``
    file. Headers for web servers are refused; ``from_files`` and ``download`` take them.

    >>> ps.from_pydict({"path": ["a/b.txt"]}).select(file(ps.col("path"))).to_pydict()
    {'path': [File('a/b.txt')]}
    """
    return _as_file(expr, None, storage_options)


@method
def image_file(expr: Expression, *, storage_options: Mapping[str, Any] | None = None) -> Expression:
    """Make a ``ps.ImageFile`` of each path or URL, or of bytes.

    >>> ps.from_pydict({"path": ["a/b.png"]}).select(image_file(ps.col("path"))).to_pydict()
    {'path': [ImageFile('a/b.png')]}
    """
    return _as_file(expr, "image", storage_options)


@method
def audio_file(expr: Expression, *, storage_options: Mapping[str, Any] | None = None) -> Expression:
    """Make a ``ps.AudioFile`` of each path or URL, or of bytes.

    >>> ps.from_pydict({"path": ["a/b.mp3"]}).select(audio_file(ps.col("path"))).to_pydict()
    {'path': [AudioFile('a/b.mp3')]}
    """
    return _as_file(expr, "audio", storage_options)


@method
def video_file(expr: Expression, *, storage_options: Mapping[str, Any] | None = None) -> Expression:
    """Make a ``ps.VideoFile`` of each path or URL, or of bytes.

    >>> ps.from_pydict({"path": ["a/b.mp4"]}).select(video_file(ps.col("path"))).to_pydict()
    {'path': [VideoFile('a/b.mp4')]}
    """
    return _as_file(expr, "video", storage_options)


def _as_file(expr: Expression, media: str | None, options: Mapping[str, Any] | None) -> Expression:
    if options:
        _remember_for_stores(StorageOptions.of(options))
    return lit(expr).cast(DataType.file(media))


def _remember_for_stores(options: StorageOptions) -> None:
    """Use options for every bucket of their store; refuse headers, which every web server would receive."""
    if "headers" in options:
        raise InvalidArgumentError(
            "file(storage_options=...) takes no headers: every web server would receive them. Pass them to "
            "from_files(urls, storage_options=...), File(url, storage_options=...) or download(storage_options=...), "
            "which only sends them to the servers in its column."
        )
    kinds = kinds_for(options)
    share_options([f"{scheme}://" for scheme, kind in {**KINDS, "hf": "hf"}.items() if kind in kinds], options)


@method
def file_path(expr: Expression) -> Expression:
    """Return the path or URL of each file; null for a file in memory.

    >>> ps.from_pydict({"f": [ps.File("a/b.txt")]}).select(file_path(ps.col("f"))).to_pydict()
    {'f': ['a/b.txt']}
    """
    return call("file_path", expr)


@strict("file_path", takes(FILE, returns=STRING))
@on_arrays
def _file_path(files: pa.Array) -> pa.Array:
    return files.storage.flatten()[0]


@method
def file_size(expr: Expression) -> Expression:
    """Return the size of each file, or of the file at each path, in bytes.

    >>> ps.from_pydict({"f": [ps.File(b"hello")]}).select(file_size(ps.col("f"))).to_pydict()
    {'f': [5]}
    """
    return _inspected("file_size", "size", expr, DataType.int64())


@method
def file_exists(expr: Expression) -> Expression:
    """Check whether each file, or the file at each path, exists.

    >>> ps.from_pydict({"path": ["/no/such/file"]}).select(file_exists(ps.col("path"))).to_pydict()
    {'path': [False]}
    """
    return _inspected("file_exists", "exists", expr, DataType.bool())


def _inspected(name: str, method_name: str, expr: Expression, dtype: DataType) -> Expression:
    from penstock.storage.transfer import Inspector

    return transfer_call(name, Target(Inspector, method_name, (configured_access(), None)), dtype, expr)


@method
def guess_mime_type(expr: Expression) -> Expression:
    r"""Return the MIME type of bytes, or of files, by their first bytes; null if it is unknown.

    >>> ps.from_pydict({"data": [b"%PDF-1.7", b"hello"]}).select(guess_mime_type(ps.col("data"))).to_pydict()
    {'data': ['application/pdf', None]}
    """
    return call("guess_mime_type", expr)


def _sniffable(dtype: DataType) -> bool:
    return dtype.is_binary() or dtype.is_file()


@strict("guess_mime_type", takes(Kind("binary or a file", _sniffable, "read paths with download()"), returns=STRING))
@on_arrays
def _guess_mime_type(contents: pa.Array) -> pa.Array:
    if not DataType(contents.type).is_file():
        return pa.array(
            [None if row is None else sniff(row) for row in contents.cast(BINARY.arrow).to_pylist()], pa.string()
        )
    from concurrent.futures import ThreadPoolExecutor

    from penstock.storage.transfer import Inspector

    with ThreadPoolExecutor(16) as threads:
        sniffed = threads.map(Inspector(configured_access(), None).sniff_file, contents.to_pylist())
        return pa.array(list(sniffed), pa.string())

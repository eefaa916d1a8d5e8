"""Files as values, made from paths; their path, size and type; downloads and uploads.

The calls that read or write files are async, so that many wait at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa

from penstock.config import get_config, parse_bytes, task_share
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import BINARY, STRING, Kind
from penstock.expr.public_functions import method
from penstock.expr.signatures import strict, takes
from penstock.expr.udf import Target
from penstock.functions.calls import ENCODED, transfer_call
from penstock.storage.access import access_from, configured_access
from penstock.storage.mime import sniff
from penstock.storage.storage_options import StorageOptions, check_known
from penstock.types import DataType
from penstock.types.plain import arrow_array
from penstock.udf.options import refusing_unknown

FILE = Kind("a file", DataType.is_file, "make one of a path with file(...)")


@method
@refusing_unknown("file")
def file(expr: Expression) -> Expression:
    """Make a ``ps.File`` of each path or URL, or of bytes. Nothing is read.

    >>> ps.from_pydict({"path": ["a/b.txt"]}).select(file(ps.col("path"))).to_pydict()
    {'path': [File('a/b.txt')]}
    """
    return lit(expr).cast(DataType.file())


@method
@refusing_unknown("image_file")
def image_file(expr: Expression) -> Expression:
    """Make a ``ps.ImageFile`` of each path or URL, or of bytes.

    >>> ps.from_pydict({"path": ["a/b.png"]}).select(image_file(ps.col("path"))).to_pydict()
    {'path': [ImageFile('a/b.png')]}
    """
    return lit(expr).cast(DataType.file("image"))


@method
@refusing_unknown("audio_file")
def audio_file(expr: Expression) -> Expression:
    """Make a ``ps.AudioFile`` of each path or URL, or of bytes.

    >>> ps.from_pydict({"path": ["a/b.mp3"]}).select(audio_file(ps.col("path"))).to_pydict()
    {'path': [AudioFile('a/b.mp3')]}
    """
    return lit(expr).cast(DataType.file("audio"))


@method
@refusing_unknown("video_file")
def video_file(expr: Expression) -> Expression:
    """Make a ``ps.VideoFile`` of each path or URL, or of bytes.

    >>> ps.from_pydict({"path": ["a/b.mp4"]}).select(video_file(ps.col("path"))).to_pydict()
    {'path': [VideoFile('a/b.mp4')]}
    """
    return lit(expr).cast(DataType.file("video"))


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

    return transfer_call(name, Target(Inspector, method_name, (configured_access(),)), dtype, expr)


@method
def guess_mime_type(expr: Expression) -> Expression:
    r"""Return the MIME type of bytes, or of files, by their first bytes; null if it is unknown.

    >>> ps.from_pydict({"data": [b"%PDF-1.7", b"hello"]}).select(guess_mime_type(ps.col("data"))).to_pydict()
    {'data': ['application/pdf', None]}
    """
    return call("guess_mime_type", expr)


@strict("guess_mime_type", takes(ENCODED, returns=STRING))
@on_arrays
def _guess_mime_type(contents: pa.Array) -> pa.Array:
    if not DataType(contents.type).is_file():
        return arrow_array(
            [None if row is None else sniff(row) for row in contents.cast(BINARY.arrow).to_pylist()], pa.string()
        )
    from concurrent.futures import ThreadPoolExecutor

    from penstock.storage.transfer import Inspector

    with ThreadPoolExecutor(16) as threads:
        sniffed = threads.map(Inspector(configured_access()).sniff_file, contents.to_pylist())
        return arrow_array(list(sniffed), pa.string())


# --- download and upload ----------------------------------------------------------------------------------------------


@method
@refusing_unknown("download")
def download(
    expr: Expression,
    max_connections: int = 32,
    on_error: str = "raise",
    *,
    max_bytes: int | str | None = None,
    allow: Literal["any", "public"] | None = None,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Expression:
    """Read the file at each path or URL: local, ``http(s)://``, ``s3://``, ``gs://``, ``az://``, ``hf://``.

    At most ``max_connections`` files are read at once, and at most an eighth of the memory limit. Temporary failures of
    a server are retried. With ``on_error="null"`` a file that cannot be read is null and listed by ``df.errors()``;
    ``timeout`` (seconds) and ``max_bytes`` bound each file. ``allow="public"`` refuses local files and private
    addresses, also behind redirects. None applies the settings
    (``ps.set_config(allow_local_files=..., allow_private_urls=...)``).

    >>> from pathlib import Path
    >>> path = Path("a.txt")
    >>> _ = path.write_text("hello")
    >>> ps.from_pydict({"path": [str(path)]}).select(download(ps.col("path"))).to_pydict()
    {'path': [b'hello']}
    """
    from penstock.storage.transfer import Downloader

    limit = None if max_bytes is None else parse_bytes(max_bytes)
    budget = task_share(get_config().memory_bytes, 1)
    target = Target(Downloader, "fetch", (access_from(allow), _options(storage_options), limit, budget))
    limits: dict[str, Any] = {"max_connections": max_connections, "on_error": on_error, "timeout_s": timeout}
    at_once = "fetch_all" if timeout is None else None
    return transfer_call("download", target, DataType.binary(), expr, at_once=at_once, **limits)


@method
@refusing_unknown("upload")
def upload(
    expr: Expression,
    location: str | Expression,
    max_connections: int = 32,
    on_error: str = "raise",
    *,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Expression:
    """Write bytes, text or files to ``location``, a folder or a column of paths, and return the URL of each.

    In a folder every file gets a unique name. A file appears whole or not at all. The settings apply to paths from a
    column: with ``allow_local_files=False`` they may not be local.

    >>> df = ps.from_pydict({"data": [b"hello"]}).select(upload(ps.col("data"), "uploads").alias("path"))
    >>> df.with_column("data", ps.col("path").download()).select("data").to_pydict()
    {'data': [b'hello']}
    """
    from penstock.storage.transfer import Uploader

    folder = location if isinstance(location, str) else None
    target = Target(Uploader, "put", (configured_access(), folder, _options(storage_options)))
    paths = [location] if folder is None else []
    limits: dict[str, Any] = {"max_connections": max_connections, "on_error": on_error, "timeout_s": timeout}
    return transfer_call("upload", target, DataType.string(), expr, *paths, **limits)


def _options(given: Mapping[str, Any] | None) -> StorageOptions | None:
    """Return options that hide their secrets, because plans show them; None uses the options known for the store."""
    if given is None:
        return None
    options = StorageOptions.of(given)
    check_known(options, is_final=False)
    return options

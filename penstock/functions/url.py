"""Downloads from and uploads to paths and URLs. The calls are async, so that many wait at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.config import get_config, parse_bytes
from penstock.expr.column import Expression, method
from penstock.expr.udf import Target
from penstock.functions.calls import transfer_call
from penstock.storage.access import access_from, configured_access
from penstock.storage.options import StorageOptions, check_known
from penstock.types import DataType


@method
def download(
    expr: Expression,
    max_connections: int = 32,
    on_error: str = "raise",
    *,
    max_bytes: int | str | None = None,
    allow: str | Iterable[str] | None = None,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Expression:
    """Read the file at each path or URL: local, ``http(s)://``, ``s3://``, ``gs://``, ``az://``, ``hf://``.

    At most ``max_connections`` files are read at once, and at most an eighth of the memory limit. Temporary failures of
    a server are retried. With ``on_error="null"`` a file that cannot be read is null and listed by ``df.errors()``;
    ``timeout`` (seconds) and ``max_bytes`` bound each file. ``allow="public"`` refuses local files and private
    addresses, also behind redirects; a list of prefixes allows only URLs below them. None applies the settings
    (``ps.set_config(allow_local_files=..., allow_private_urls=...)``).

    >>> path = getfixture("tmp_path") / "a.txt"
    >>> _ = path.write_text("hello")
    >>> ps.from_pydict({"path": [str(path)]}).select(download(ps.col("path"))).to_pydict()
    {'path': [b'hello']}
    """
    from penstock.storage.transfer import Downloader

    limit = None if max_bytes is None else parse_bytes(max_bytes)
    budget = max(get_config().memory_bytes // 8, 2**20)
    target = Target(Downloader, "fetch", (access_from(allow), _options(storage_options), limit, budget))
    return transfer_call(
        "download",
        target,
        DataType.binary(),
        expr,
        max_connections=max_connections,
        on_error=on_error,
        timeout_s=timeout,
    )


@method
def upload(
    expr: Expression,
    location: str | Expression,
    max_connections: int = 32,
    on_error: str = "raise",
    *,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Expression:
    """Write bytes, text or files to ``location``, a folder or a column of paths, and return the path of each.

    In a folder every file gets a unique name. A file appears whole or not at all. The settings apply to paths from a
    column: with ``allow_local_files=False`` they may not be local.

    >>> folder = str(getfixture("tmp_path"))
    >>> df = ps.from_pydict({"data": [b"hello"]}).select(upload(ps.col("data"), folder).alias("path"))
    >>> df.with_column("data", ps.col("path").download()).select("data").to_pydict()
    {'data': [b'hello']}
    """
    from penstock.storage.transfer import Uploader

    folder = location if isinstance(location, str) else None
    return transfer_call(
        "upload",
        Target(Uploader, "put", (configured_access(), folder, _options(storage_options))),
        DataType.string(),
        expr,
        *([] if folder is not None else [location]),
        max_connections=max_connections,
        on_error=on_error,
        timeout_s=timeout,
    )


def _options(given: Mapping[str, Any] | None) -> StorageOptions | None:
    """Return options that hide their secrets, because plans show them; None uses the options known for the store."""
    if given is None:
        return None
    options = StorageOptions.of(given)
    check_known(options, is_final=False)
    return options

"""``download`` and ``upload``: the content of paths and URLs, and back. Async calls, so that many wait at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.config import get_config, parse_bytes
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression, lit, method
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import Builtin, OnError, Policy, Resources, Target, UdfSpec
from penstock.storage.access import access_from, configured_access
from penstock.storage.options import StorageOptions, check_known
from penstock.types import DataType

TASK_NBYTES = 64 * 2**20
"""About what one task downloads: it is held in memory until all of the task is there."""

_ON_ERROR: dict[str, OnError] = {"raise": "raise", "null": "ignore", "ignore": "ignore", "log": "log"}


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

    At most ``max_connections`` are read at once, and no more bytes than an eighth of the memory limit. What a server
    cannot give just now is tried again. With ``on_error="null"`` a file that cannot be read is null, and listed by
    ``df.errors()``; ``timeout`` (seconds) and ``max_bytes`` bound each file. ``allow="public"`` refuses local files and
    private addresses, also behind redirects; a list of prefixes allows only what lies below them. None means what the
    settings say (``ps.set_config(allow_local_files=..., allow_private_urls=...)``).

    >>> path = getfixture("tmp_path") / "a.txt"
    >>> _ = path.write_text("hello")
    >>> ps.from_pydict({"path": [str(path)]}).select(download(ps.col("path"))).to_pydict()
    {'path': [b'hello']}
    """
    from penstock.storage.transfer import Downloader

    limit = None if max_bytes is None else parse_bytes(max_bytes)
    budget = max(get_config().memory_bytes // 8, 2**20)
    init = (access_from(allow), _options(storage_options), limit, budget)
    spec = _spec("download", Downloader, "fetch", init, DataType.binary(), max_connections, on_error, timeout)
    return _called(spec, expr)


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
    """Write bytes, text or files to ``location`` and return where each is: a folder, or a column with a path a row.

    In a folder every file gets a name of its own, which no other has. A file appears whole or not at all. Paths of a
    column are held to the settings: with ``allow_local_files=False`` they may not be local.

    >>> folder = str(getfixture("tmp_path"))
    >>> df = ps.from_pydict({"data": [b"hello"]}).select(upload(ps.col("data"), folder).alias("path"))
    >>> df.with_column("data", ps.col("path").download()).select("data").to_pydict()
    {'data': [b'hello']}
    """
    from penstock.storage.transfer import Uploader

    folder = location if isinstance(location, str) else None
    spec = _spec(
        "upload",
        Uploader,
        "put",
        (configured_access(), folder, _options(storage_options)),
        DataType.string(),
        max_connections,
        on_error,
        timeout,
    )
    return _called(spec, expr, *([] if folder is not None else [location]))


def _options(given: Mapping[str, Any] | None) -> StorageOptions | None:
    """Return options that do not show their secrets, as they stand in plans; None leaves it to what is remembered."""
    if given is None:
        return None
    options = StorageOptions.of(given)
    check_known(options, is_final=False)
    return options


def _called(spec: UdfSpec, *args: Any) -> Expression:
    return Expression(UdfCall(spec, tuple(lit(arg)._node for arg in args), ()))


def _spec(
    name: str,
    target: type,
    method_name: str,
    init: tuple[Any, ...],
    dtype: DataType,
    max_connections: int,
    on_error: str,
    timeout_s: float | None = None,
) -> UdfSpec:
    """Return the spec of a built-in async function: what it is given per worker, and how many calls wait at once."""
    connections: Any = max_connections
    if not (isinstance(connections, int) and connections >= 1):
        raise InvalidArgumentError(f"{name}: max_connections={max_connections!r} must be a whole number of at least 1.")
    if on_error not in _ON_ERROR:
        raise InvalidArgumentError(
            f"{name}: on_error={on_error!r} is not known; use one of {', '.join(_ON_ERROR)}."
            f"{did_you_mean(str(on_error), _ON_ERROR)}"
        )
    if timeout_s is not None and not timeout_s > 0:
        raise InvalidArgumentError(f"{name}: timeout={timeout_s!r} must be a number of seconds above 0.")
    return UdfSpec(
        name=name,
        target=Target(target, method_name, init, is_async=True),
        return_dtype=dtype,
        resources=Resources(max_workers=max_connections),
        policy=Policy(on_error=_ON_ERROR[on_error], timeout_s=timeout_s),
        builtin=Builtin(task_nbytes=TASK_NBYTES),
    )

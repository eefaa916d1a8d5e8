"""Adapter for programs of Daft: ``import penstock.compat.daft as daft``.

The names of ``penstock`` are here with Daft's parameters, and so are the names that only Daft has. A missing name is
refused with an error that names the way around; ``docs/guides/migrating-from-daft.md`` lists all of them.

frame            ``DataFrame`` with Daft's verbs
functions        ``daft.functions``
expressions      ``daft.expressions``
daft_types       ``Schema``, ``DataType`` and ``File``
io               ``IOConfig`` as ``storage_options``
star_aggregates  aggregates of all columns: ``count(mode="all")``, ``col("*").count()``
run_reports      the files of a write, and ``df.metrics``

It may import everything.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import penstock as ps
from penstock.ai.provider_registry import KNOWN, detach_provider
from penstock.compat import remedies
from penstock.compat.daft import expressions, functions, io
from penstock.compat.daft.daft_types import DaftDataType, DaftFile, DaftSchema
from penstock.compat.daft.frame import DaftDataFrame as DataFrame
from penstock.compat.daft.io import IOConfig, storage_options
from penstock.compat.translation import refusal, translated
from penstock.errors import InvalidArgumentError

DataType, File, Schema = DaftDataType, DaftFile, DaftSchema


def _made(frame: ps.DataFrame) -> DataFrame:
    return DataFrame(frame._plan)


def _listed(files: ps.DataFrame) -> DataFrame:
    """Daft lists local files as URLs."""
    path = ps.col("path")
    url = path.replace("%", "%25").regexp_replace("^/", "file:///")
    return _made(files.with_column("path", path.startswith("/").if_else(url, path)))


def _reader(name: str) -> Callable[..., DataFrame]:
    return translated(
        getattr(ps, name),
        f"daft.{name}",
        renamed={
            "io_config": "storage_options",
            "path": "paths" if name == "read_webdataset" else "path",
            "ds": "dataset",
        },
        values={"io_config": storage_options},
        ignored=("partitions", "_multithreaded_io", "skip_empty_files"),  # an empty file has no rows here
        returns=_listed if name == "from_glob_path" else _made,
    )


_FRAMES = [name for name in ps.__all__ if name == "range" or name.startswith(("read_", "from_"))]
_OWN = ("DataFrame", "DataType", "File", "RetryAfterError", "Schema", "metrics")
_SHARED = [name for name in ps.__all__ if name not in (*_FRAMES, *_OWN, *remedies.DAFT)]
globals().update({name: getattr(ps, name) for name in _SHARED})
_READERS = {name: _reader(name) for name in _FRAMES}
_read_video_frames = _READERS["read_video_frames"]


def _video_frames(path: Any, image_height: int, image_width: int, *args: Any, **options: Any) -> DataFrame:
    """Take the height first, as Daft does."""
    return _read_video_frames(path, image_width, image_height, *args, **options)


_READERS["read_video_frames"] = functools.update_wrapper(_video_frames, _read_video_frames)
globals().update(_READERS)
vars(io).update(_READERS)  # Daft has them in both places
__all__ = [*_SHARED, *_FRAMES, *_OWN, "IOConfig", "ImageFormat", "ImageMode",
    "TimeUnit", "concat", "detach_provider", "execution_config_ctx",
    "expressions", "functions", "io",
    "set_execution_config", "set_runner_native", "sql", "udf"]  # fmt: skip


def range(start: int, end: int | None = None, step: int = 1, partitions: int = 1) -> DataFrame:
    """Make the whole numbers from ``start`` to below ``end``, in the column ``id``; partitions change no result."""
    return _READERS["range"](start, end, step)


set_runner_native = ps.set_runner_local


class DaftRetryAfterError(ps.RetryAfterError):
    """``penstock.RetryAfterError`` with Daft's parameters."""

    def __init__(self, retry_after: float, original: BaseException | None = None) -> None:
        super().__init__(retry_after, original=original)
        self.retry_after = retry_after

    def __reduce__(self) -> Any:
        return type(self), (self.retry_after, self.__cause__)


RetryAfterError = DaftRetryAfterError


def set_execution_config(**options: Any) -> None:
    """Ignore options of Daft's scheduler, which change no result."""


@contextlib.contextmanager
def execution_config_ctx(**options: Any) -> Iterator[None]:
    """Ignore options of Daft's scheduler, which change no result."""
    yield


class metrics:  # noqa: N801  # a module in Daft
    """Counters and gauges of your own, with Daft's parameters."""

    set_gauge = staticmethod(ps.metrics.set_gauge)

    @staticmethod
    def increment_counter(
        name: str, amount: float = 1, *, description: str | None = None, attributes: Any = None
    ) -> None:
        if attributes:
            raise refusal("increment_counter(attributes=...)", "put them into the name")
        ps.metrics.increment_counter(name, amount)


def sql(sql: str, register_globals: bool = True, **bindings: ps.DataFrame) -> DataFrame:
    """Run SQL over the caller's DataFrames, and DataFrames given by name."""
    return _made(ps.sql(sql, register_globals, **bindings))


def concat(dfs: Sequence[ps.DataFrame]) -> DataFrame:
    """Append the rows of several DataFrames."""
    if not dfs:
        raise InvalidArgumentError("concat needs at least one DataFrame")
    result = dfs[0]
    for each in dfs[1:]:
        result = result.concat(each)
    return _made(result)


class ImageFormat(StrEnum):
    """Formats of ``encode_image``."""

    PNG = "png"
    JPEG = "jpeg"
    TIFF = "tiff"
    GIF = "gif"
    BMP = "bmp"


class ImageMode(StrEnum):
    """Modes of images."""

    L = "L"
    LA = "LA"
    RGB = "RGB"
    RGBA = "RGBA"


class TimeUnit(StrEnum):
    """Units of timestamps, as ``TimeUnit.us()``."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    def __call__(self) -> TimeUnit:
        return self

    @staticmethod
    def from_str(unit: str) -> TimeUnit:
        return TimeUnit(unit)


TimeUnit.s, TimeUnit.ms, TimeUnit.us, TimeUnit.ns = TimeUnit  # type: ignore[attr-defined]


class LegacyUdf:
    """A function or class under ``@daft.udf``; each worker builds one object of a class."""

    def __init__(self, target: Any, options: dict[str, Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> None:
        functools.update_wrapper(self, target, updated=())
        self._target, self._options, self._args, self._kwargs = target, options, args, kwargs or {}

    def with_init_args(self, *args: Any, **kwargs: Any) -> LegacyUdf:
        return LegacyUdf(self._target, self._options, args, kwargs)

    def override_options(self, **options: Any) -> LegacyUdf:
        return LegacyUdf(self._target, {**self._options, **options}, self._args, self._kwargs)

    def with_concurrency(self, concurrency: int) -> LegacyUdf:
        return self.override_options(concurrency=concurrency)

    def run_on_process(self, use_process: bool | None) -> LegacyUdf:
        return self.override_options(use_process=use_process)

    @functools.cached_property
    def _function(self) -> Any:
        given = {_UDF_OPTIONS[name]: value for name, value in self._options.items() if value is not None}
        batch = {name: given.pop(name) for name in ("return_dtype", "batch_size") if name in given}
        given.pop("memory_bytes", None)
        if not isinstance(self._target, type):
            return ps.func.batch(**batch, **given)(self._target)
        methods = {"__call__": ps.method.batch(**batch)(self._target.__call__), "__module__": self._target.__module__}
        made: Any = type(self._target.__name__, (self._target,), methods)
        return ps.cls(**given)(made)(*self._args, **self._kwargs)

    def __call__(self, *columns: Any, **named: Any) -> Any:
        return self._function(*columns, **named)


_UDF_OPTIONS = {
    "return_dtype": "return_dtype", "num_cpus": "cpus", "num_gpus": "gpus", "memory_bytes": "memory_bytes",
    "batch_size": "batch_size", "concurrency": "concurrency", "use_process": "use_process",
}  # fmt: skip


def udf(*, return_dtype: Any, num_cpus: float | None = None, num_gpus: float | None = None,
        memory_bytes: int | None = None, batch_size: int | None = None, concurrency: int | None = None,
        use_process: bool | None = None) -> Callable[[Any], LegacyUdf]:  # fmt: skip
    """Make a function or a class of batches an expression; the current names are ``func.batch`` and ``cls``."""
    options = dict(locals())
    return lambda target: LegacyUdf(target, options)


# Daft keeps some of these names in modules of their own: ``from daft.window import Window``.
for _module in (
    "ai",
    "ai.openai",
    "ai.openai.provider",
    "ai.provider",
    "ai.utils",
    "context",
    "dataframe",
    "datatype",
    "file",
    "schema",
    "series",
    "window",
):
    sys.modules[f"{__name__}.{_module}"] = sys.modules[__name__]
    globals().setdefault(_module, sys.modules[__name__])

_PROVIDERS = {"OpenAIProvider": "openai", "GoogleProvider": "google", "LMStudioProvider": "lm_studio"}


def __getattr__(name: str) -> Any:
    if name in _PROVIDERS:  # of ``daft.ai.openai.provider``; loaded when it is used
        module, provider = KNOWN[_PROVIDERS[name]]
        return getattr(importlib.import_module(module), provider)
    raise remedies.refused_name("daft", name)

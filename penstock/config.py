"""Settings: one frozen record. Each field can also be set by an environment variable."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from penstock.errors import InvalidArgumentError, did_you_mean

TASKS_PER_CORE = 8
LEAST_PIECE_NBYTES = 2**20  # cutting data smaller costs more than it saves

_DECIMAL = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS = {**_DECIMAL, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_AGES_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])

MAX_IMAGE_PIXELS = 89_478_485
"""A quarter of a gigabyte in color, and the number from which Pillow warns."""


@dataclass(frozen=True, slots=True)  # ``frozen`` of penstock.types would load Arrow
class Config:
    """Settings of queries.

    Settings:
      memory_limit         bytes of data in flight, such as "1GB"; 0 means a quarter of the machine's memory
      num_threads          threads that run Arrow kernels and reads; 0 means one for each core
      max_image_pixels     a row with a larger image is an error
      max_response_bytes   a longer answer from a model server, decompressed, is an error of its row
      checkpoint_interval  seconds between commits of a resumable job; grows to twelve times that in a long job
      stall_timeout        a query whose workers give nothing for so long ("1h") ends with an error; 0 means never
      progress             show progress on a terminal or in a notebook
      dashboard            show queries on a local page (docs/DASHBOARD.md); the first query prints its URL
      cache_dir            a folder that keeps the answers of models and the results of functions with cache=True
      cache_max_size       the most bytes in cache_dir, such as "10GB"; 0 means no limit
      cache_max_age        drop cached calls that were not used for so long ("30d"); 0 means no limit
      prices               a file of model prices that precedes the built-in ones (docs/guides/costs.md)
      temp_dir             a folder for what does not fit in memory; by default the system's
      runner               "local", or "ray" for a cluster
      allow_local_files    False forbids local paths in data (File, download)
      allow_private_urls   False forbids URLs in data that lead to private addresses; True also allows them, and
                           plain http, inside conversations
    """

    memory_limit: int = 0
    num_threads: int = 0
    max_image_pixels: int = MAX_IMAGE_PIXELS
    max_response_bytes: int = 64 * 2**20
    checkpoint_interval: float = 5.0
    stall_timeout: float = 0.0
    progress: bool = True
    dashboard: bool = False
    cache_dir: str = ""
    cache_max_size: int = 0
    cache_max_age: float = 0.0
    prices: str = ""
    temp_dir: str = ""
    runner: str = "local"
    allow_local_files: bool = True
    allow_private_urls: bool | None = None  # None: allowed, but not for URLs inside conversations

    @property
    def memory_bytes(self) -> int:
        return self.memory_limit or machine_memory() // 4

    @property
    def thread_count(self) -> int:
        return self.num_threads or available_cpus()

    @property
    def task_nbytes(self) -> int:
        return task_share(self.memory_bytes, self.thread_count)


class Settings(TypedDict, total=False):
    """The fields of ``Config`` as users give them, with sizes and times as text too; None leaves one as it is."""

    memory_limit: int | str | None
    num_threads: int | None
    max_image_pixels: int | None
    max_response_bytes: int | str | None
    checkpoint_interval: float | None
    stall_timeout: float | str | None
    progress: bool | None
    dashboard: bool | None
    cache_dir: str | os.PathLike[str] | None
    cache_max_size: int | str | None
    cache_max_age: float | str | None
    prices: str | os.PathLike[str] | None
    temp_dir: str | os.PathLike[str] | None
    runner: Literal["local", "ray"] | None
    allow_local_files: bool | None
    allow_private_urls: bool | None


def task_share(memory_bytes: int, num_cores: int) -> int:
    """Return how large the input or output of a task may be, so that tasks on all cores and their queues fit.

    >>> task_share(2 * 10**9, num_cores=2)
    125000000
    """
    return max(memory_bytes // (TASKS_PER_CORE * max(num_cores, 1)), LEAST_PIECE_NBYTES)


def machine_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its control group's if fewer."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit_file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(limit_file) as file:
            total = min(total, int(file.read()))
    return total


def available_cpus() -> int:
    """Return the number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_bytes(value: int | str) -> int:
    """Return a size in bytes.

    >>> parse_bytes("2GB"), parse_bytes("1.5 MiB"), parse_bytes(512)
    (2000000000, 1572864, 512)
    """
    text = str(value).strip().lower()
    number = text.rstrip("bkmgti ")
    unit = text[len(number) :].strip() or "b"
    try:
        return int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise InvalidArgumentError(
            f"{value!r} is not a size; give bytes, or a number with one of {', '.join(_UNITS)}"
        ) from None


def parse_age(value: float | str) -> float:
    """Return a time in seconds.

    >>> parse_age("30d"), parse_age("1.5h"), parse_age(60)
    (2592000.0, 5400.0, 60.0)
    """
    text = str(value).strip().lower()
    try:
        seconds = float(text[:-1]) * _AGES_S[text[-1]] if text[-1:] in _AGES_S else float(text)
        if 0 <= seconds < float("inf") and not isinstance(value, bool):
            return seconds
    except ValueError:
        pass
    raise InvalidArgumentError(
        f"{value!r} is not an age; give seconds, or a number with one of {', '.join(_AGES_S)}, such as 30d"
    )


def _parse_whole(value: Any) -> int:
    if isinstance(value, bool) or not str(value).strip("-").isdecimal():
        raise ValueError("is not a whole number")
    return int(value)


def _parse_seconds(value: Any) -> float:
    with contextlib.suppress(TypeError, ValueError):
        if 0 < (seconds := float(value)) < float("inf"):
            return seconds
    raise ValueError("is not a number of seconds above 0")


def _parse_switch(value: Any) -> bool:
    if str(value).lower() not in _SWITCH:
        raise ValueError("is neither on nor off; use True or False")
    return _SWITCH[str(value).lower()]


def _parse_runner(value: Any) -> str:
    if value not in ("local", "ray"):
        raise ValueError("is not known; use 'local' or 'ray'")
    return str(value)


def _parse_path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ValueError("is not a path")
    return os.fspath(value)


PRICES_FIELD = "dollars_per_million_tokens"
PRICES_OF = ("input", "output", "cached", "cache_write", "cache_write_1h")


def read_prices(path: str) -> dict[str, Any]:
    """Read and check a file of prices."""
    import orjson

    try:
        prices = orjson.loads(_content(os.path.expanduser(path)))
        for provider, models in prices[PRICES_FIELD].items():
            for model, price in models.items():
                check_price(f"prices={path!r}, {provider}, {model}", {} if price is None else price)
    except OSError as exc:
        raise InvalidArgumentError(f"prices={path!r} cannot be read: {exc}") from exc
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidArgumentError(
            f"prices={path!r} is not a file of prices ({type(exc).__name__}: {exc}); write "
            f'{{"{PRICES_FIELD}": {{"openai": {{"my-model": {{"input": 0.25, "output": 2.0}}}}}}}}.'
        ) from exc
    return dict(prices)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def check_price(place: str, price: Any) -> None:
    """Raise unless ``price`` is None or a dict of dollars for a million tokens, with ``input`` at least."""
    if price is None:
        return
    if not isinstance(price, Mapping) or "input" not in price:
        raise InvalidArgumentError(
            f"{place}: price={price!r} is not a price; give dollars for a million tokens, such as "
            "price={'input': 0.25, 'output': 2.0}, with 'cached' where that is cheaper."
        )
    for kind, dollars in price.items():
        if kind not in PRICES_OF:
            raise InvalidArgumentError(
                f"{place}: price has {kind!r}; the keys are {', '.join(PRICES_OF)}.{did_you_mean(str(kind), PRICES_OF)}"
            )
        is_number = isinstance(dollars, int | float) and not isinstance(dollars, bool)
        if not is_number or not 0 <= dollars < math.inf:
            raise InvalidArgumentError(
                f"{place}: price {kind}={dollars!r} is not a number of dollars for a million tokens."
            )


def _parse_prices(value: Any) -> str:
    if path := _parse_path(value):
        read_prices(path)
    return path


_PARSERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("memory_limit", "cache_max_size", "max_response_bytes"), parse_bytes),
    **dict.fromkeys(("cache_max_age", "stall_timeout"), parse_age),
    **dict.fromkeys(("num_threads", "max_image_pixels"), _parse_whole),
    "checkpoint_interval": _parse_seconds,
    **dict.fromkeys(("progress", "dashboard", "allow_local_files", "allow_private_urls"), _parse_switch),
    "runner": _parse_runner,
    "prices": _parse_prices,
    **dict.fromkeys(("cache_dir", "temp_dir"), _parse_path),
}


def _parsed(name: str, value: Any) -> Any:
    """Return ``value`` as the type of the setting ``name``; parse text, which comes from the environment."""
    try:
        return _PARSERS[name](value)
    except InvalidArgumentError:
        raise
    except ValueError as exc:
        raise InvalidArgumentError(f"{name}={value!r} {exc}") from None


def updated(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return ``config`` with changed ``settings``; refuse an unknown name or a bad value."""
    names = [f.name for f in fields(Config)]
    for name in settings:
        if name not in names:
            raise InvalidArgumentError(
                f"Setting {name!r} is not known.{did_you_mean(name, names)} help(ps.set_config) lists the settings."
            )
    changed = replace(config, **{name: _parsed(name, value) for name, value in settings.items() if value is not None})
    if changed.cache_max_size < 0:
        raise InvalidArgumentError("cache_max_size cannot be negative; use 0 for no limit")
    if changed.memory_limit < 0 or changed.num_threads < 0:
        raise InvalidArgumentError("memory_limit and num_threads cannot be negative; use 0 for the default")
    for name in ("max_image_pixels", "max_response_bytes"):
        if getattr(changed, name) < 1:
            raise InvalidArgumentError(f"{name}={getattr(changed, name)} must be at least 1")
    return changed


def _from_environment() -> Config:
    """Return the settings in ``PENSTOCK_<NAME>`` variables; an empty variable counts as unset."""
    config = Config()
    for name in (field.name for field in fields(Config)):
        variable = f"PENSTOCK_{name.upper()}"
        if text := os.environ.get(variable):
            try:
                config = updated(config, {name: text})
            except InvalidArgumentError as exc:
                raise InvalidArgumentError(f"Environment variable {variable}: {exc}") from None
    return config


_process_config: Config = _from_environment()
_driver_task_nbytes: int | None = None  # in a worker process
_scoped_config: ContextVar[Config | None] = ContextVar("penstock_config", default=None)


def get_config() -> Config:
    """Return the current settings."""
    return _scoped_config.get() or _process_config


def piece_nbytes(most: int) -> int:
    """Return how much data one piece of work may hold: ``most``, or less if the budget is small.

    All code that makes or holds data in pieces asks this function, so that ``memory_limit`` bounds the pieces too.

    >>> with config(memory_limit="320MB", num_threads=4):
    ...     piece_nbytes(64 * 2**20), piece_nbytes(4 * 2**20)
    (10000000, 4194304)
    """
    return min(most, _driver_task_nbytes or get_config().task_nbytes)


def inherit_task_nbytes(nbytes: int) -> None:
    """Use the piece size of the process that runs the query in this worker process."""
    global _driver_task_nbytes
    _driver_task_nbytes = nbytes


def _listing_settings(function: AnyCallable) -> AnyCallable:
    """Add the lines about each setting to a docstring."""
    _, mark, lines = (Config.__doc__ or "").partition("    Settings:")
    function.__doc__ = f"{function.__doc__}\n{mark}{lines}"
    return function


@_listing_settings
def set_config(**settings: Unpack[Settings]) -> None:
    """Change settings for the whole process.

    >>> set_config(num_threads=2)
    >>> get_config().thread_count
    2
    >>> set_config(num_threads=0)
    """
    global _process_config
    _process_config = updated(_process_config, settings)


@contextlib.contextmanager
@_listing_settings
def config(**settings: Unpack[Settings]) -> Iterator[Config]:
    """Change settings inside a ``with`` block only.

    >>> with config(num_threads=1) as settings:
    ...     settings.thread_count
    1
    """
    token = _scoped_config.set(updated(get_config(), settings))
    try:
        yield get_config()
    finally:
        _scoped_config.reset(token)

"""The options of ``func``, ``cls`` and ``method``, and the checks they share with ``map_batches``."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast, get_args

from penstock.config import parse_bytes
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import BatchLimits, BatchSize, OnError, Policy

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Options:
    """What the decorators take, before it is known what they decorate."""

    return_dtype: Any = None
    unnest: bool = False
    is_batch: bool = False
    batch_size: BatchSize = "auto"
    cpus: float | None = None
    gpus: float = 0
    use_process: bool | None = None
    max_concurrency: int | None = None
    max_retries: int | None = None
    retry_on: Any = None
    on_error: OnError | None = None
    ray_options: dict[str, Any] | None = None
    max_errors: int | float | None = None
    timeout: float | None = None
    max_batch_bytes: int | str | None = None
    max_batch_tokens: int | None = None
    batch_weight: Callable[..., Any] | None = None
    split_on: Any = None
    cache: bool = False
    version: str | None = None

    def checked(self, name: str) -> Options:
        """Return the options, or raise an error that names the function and what is accepted."""
        check_batch_size(name, self.batch_size)
        if self.max_concurrency is not None:
            check_whole(name, "max_concurrency", self.max_concurrency, 1)
        if self.max_retries is not None:
            check_whole(name, "max_retries", self.max_retries, 0)
        if self.use_process is not None and not isinstance(self.use_process, bool):
            raise InvalidArgumentError(f"{name}: use_process is True, False or None; got {self.use_process!r}")
        check_cache(name, self.cache)
        if self.version is not None and not isinstance(self.version, str):
            raise InvalidArgumentError(f"{name}: version must be a string; got {self.version!r}")
        check_amount(name, "cpus", self.cpus or 0)
        check_amount(name, "gpus", self.gpus)
        check_on_error(name, self.on_error or "raise")
        exception_classes(name, "retry_on", self.retry_on)
        check_max_errors(name, self.max_errors)
        check_timeout(name, self.timeout)
        return self

    def or_else(self, defaults: Options) -> Options:
        """Return these options with those left open taken from ``defaults``, a class's for its method's."""
        left_open = [name for name in INHERITED if getattr(self, name) == getattr(_OPEN, name)]
        return replace(self, **{name: getattr(defaults, name) for name in left_open})


_OPEN = Options()
INHERITED = (
    "cpus", "gpus", "use_process", "max_concurrency", "max_retries", "retry_on", "on_error", "ray_options",
    "max_errors", "timeout", "cache", "version",
)  # fmt: skip


BATCH_OPTIONS = ("max_batch_bytes", "max_batch_tokens", "batch_weight", "split_on")
"""Options of functions over batches only, besides ``batch_size``."""


def refusing_unknown(what: str) -> Callable[[AnyCallable], AnyCallable]:
    """Make a function say which options it has when it is given one that it has not."""

    def decorate(function: AnyCallable) -> AnyCallable:
        parameters = inspect.signature(function).parameters.values()
        known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and p.name != "self"]

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            check_known(what, options, known)
            return function(*args, **options)

        return cast(AnyCallable, call)

    return decorate


def check_known(what: str, given: dict[str, Any], known: list[str]) -> None:
    """Refuse options with names that are not ``known``."""
    for name in given:
        if name not in known and name in BATCH_OPTIONS and "on_error" in known:
            raise InvalidArgumentError(
                f"{what} has no option {name!r}, which is for functions over batches: use func.batch, method.batch "
                "or map_batches"
            )
        if name not in known:
            raise InvalidArgumentError(
                f"{what} has no option {name!r}; known: {', '.join(known)}.{did_you_mean(name, known)}"
            )


def check_whole(name: str, option: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(f"{name}: {option} must be a whole number of {least} or more; got {value!r}")


def check_amount(name: str, option: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidArgumentError(f"{name}: {option} must be a number of 0 or more; got {value!r}")


def check_batch_size(name: str, value: Any) -> None:
    if value is not None and value != "auto":
        check_whole(name, "batch_size, if not 'auto',", value, 1)


def check_on_error(name: str, value: Any) -> None:
    known = get_args(OnError)
    if value not in known:
        listing = ", ".join(map(repr, known))
        raise InvalidArgumentError(
            f"{name}: on_error={value!r} is not known; use one of {listing}.{did_you_mean(str(value), known)}"
        )


def check_max_errors(name: str, value: Any) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value is not None and not is_count and not (isinstance(value, float) and 0 < value < 1):
        raise InvalidArgumentError(
            f"{name}: max_errors is a number of rows, or a fraction of them above 0 and below 1; got {value!r}"
        )


def check_cache(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name}: cache is True or False; got {value!r}")


def check_timeout(name: str, value: Any) -> None:
    if value is not None:
        check_amount(name, "timeout", value)
        if not value:
            raise InvalidArgumentError(f"{name}: timeout must be more than 0 seconds")


def make_policy(
    name: str,
    *,
    on_error: OnError,
    max_retries: int,
    retry_on: tuple[type[BaseException], ...] = (),
    max_errors: int | float | None,
    timeout_s: float | None,
    can_stop: bool,
) -> Policy:
    """Return what is to be done about failures; ``can_stop`` says whether a call can be ended from outside."""
    if max_errors is not None and on_error == "raise":
        raise InvalidArgumentError(
            f'{name}: max_errors={max_errors!r} needs on_error="log" or "ignore"; with "raise" the first error ends all'
        )
    if timeout_s is not None and not can_stop:
        raise InvalidArgumentError(
            f"{name}: timeout={timeout_s!r} cannot stop a function in a thread; set use_process=True, or make it async"
        )
    return Policy(on_error, max_retries, retry_on, timeout_s, max_errors)


def make_limits(name: str, max_bytes: Any, max_tokens: Any, weight: Any, split_on: Any) -> BatchLimits:
    """Return what a batch may weigh, or raise an error that names the option at fault."""
    if max_bytes is not None:
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, str)):
            raise InvalidArgumentError(f"{name}: max_batch_bytes is a number of bytes or '64MB'; got {max_bytes!r}")
        max_bytes = parse_bytes(max_bytes)
        check_whole(name, "max_batch_bytes", max_bytes, 1)
    if max_tokens is not None:
        check_whole(name, "max_batch_tokens", max_tokens, 1)
    if weight is not None and max_tokens is None:
        raise InvalidArgumentError(f"{name}: batch_weight says what rows weigh; give max_batch_tokens= to bound it")
    if weight is not None and not callable(weight):
        raise InvalidArgumentError(f"{name}: batch_weight is a function of what {name!r} is given; got {weight!r}")
    return BatchLimits(max_bytes, max_tokens, weight, exception_classes(name, "split_on", split_on))


def exception_classes(name: str, option: str, given: Any) -> tuple[type[BaseException], ...]:
    """Return what an option names, one exception class or several, as a tuple."""
    classes = () if given is None else tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise InvalidArgumentError(f"{name}: {option} takes exception classes; got {each!r}")
    return classes

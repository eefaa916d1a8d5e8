"""Options of ``func``, ``cls``, ``method`` and ``map_batches``: one table of checks, and the parts of a spec."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_args

from penstock.config import parse_bytes
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import BatchLimits, OnError, Policy

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
Check = Callable[[str, str, Any], None]  # of the name of a function, the name of an option, and its value

CALL_OPTIONS = (
    "cpus", "gpus", "use_process", "max_concurrency", "max_retries", "retry_on", "on_error", "max_errors", "timeout",
    "cache", "version", "ray_options",
)  # fmt: skip
BATCH_OPTIONS = ("max_batch_bytes", "max_batch_tokens", "batch_weight", "split_on")
"""Options for batch functions only, besides ``batch_size``."""


# --- unknown options --------------------------------------------------------------------------------------------------


def refusing_unknown(what: str) -> Callable[[AnyCallable], AnyCallable]:
    """Make a function raise an error that lists its options when it gets an unknown one."""

    def decorate(function: AnyCallable) -> AnyCallable:
        parameters = inspect.signature(function).parameters.values()
        known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and p.name != "self"]

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            check_known(what, options, known)
            return function(*args, **options)

        return cast(AnyCallable, call)

    return decorate


def check_known(what: str, given: Mapping[str, Any], known: list[str]) -> None:
    """Raise an error for options with names that are not ``known``."""
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


def options_of(arguments: Mapping[str, Any], *positional: str) -> dict[str, Any]:
    """Return the options among the ``locals()`` of a function at its start, without its positional arguments."""
    return {name: value for name, value in arguments.items() if name not in ("self", *positional)}


# --- checks -----------------------------------------------------------------------------------------------------------


def check_options(name: str, given: Mapping[str, Any]) -> None:
    """Check the values of options, except None, which stands for the default."""
    for option, value in given.items():
        if value is not None and option in CHECKS:
            CHECKS[option](name, option, value)


def check_whole(name: str, option: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(f"{name}: {option} must be a whole number of {least} or more; got {value!r}")


def _positive(name: str, option: str, value: Any) -> None:
    check_whole(name, option, value, 1)


def _not_negative(name: str, option: str, value: Any) -> None:
    check_whole(name, option, value, 0)


def _amount(name: str, option: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidArgumentError(f"{name}: {option} must be a number of 0 or more; got {value!r}")


def _boolean(name: str, option: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name}: {option} must be True or False; got {value!r}")


def _batch_size(name: str, option: str, value: Any) -> None:
    if value != "auto":
        check_whole(name, "batch_size, if not 'auto',", value, 1)


def _nbytes(name: str, option: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidArgumentError(f"{name}: {option} must be a number of bytes or '64MB'; got {value!r}")
    check_whole(name, option, parse_bytes(value), 1)


def _function(name: str, option: str, value: Any) -> None:
    if not callable(value):
        raise InvalidArgumentError(f"{name}: {option} must be a function of the arguments of {name!r}; got {value!r}")


def _exceptions(name: str, option: str, value: Any) -> None:
    for each in exception_classes(value):
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise InvalidArgumentError(f"{name}: {option} takes exception classes; got {each!r}")


def _on_error(name: str, option: str, value: Any) -> None:
    known = get_args(OnError)
    if value not in known:
        listing = ", ".join(map(repr, known))
        raise InvalidArgumentError(
            f"{name}: on_error={value!r} is not known; use one of {listing}.{did_you_mean(str(value), known)}"
        )


def _max_errors(name: str, option: str, value: Any) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not is_count and not (isinstance(value, float) and 0 < value < 1):
        raise InvalidArgumentError(
            f"{name}: max_errors is a number of rows, or a fraction of them above 0 and below 1; got {value!r}"
        )


def _timeout(name: str, option: str, value: Any) -> None:
    _amount(name, option, value)
    if not value:
        raise InvalidArgumentError(f"{name}: timeout must be more than 0 seconds")


def _text(name: str, option: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: {option} must be a string; got {value!r}")


CHECKS: dict[str, Check] = {
    "batch_size": _batch_size,
    "batch_weight": _function,
    "cache": _boolean,
    "cpus": _amount,
    "gpus": _amount,
    "max_batch_bytes": _nbytes,
    "max_batch_tokens": _positive,
    "max_concurrency": _positive,
    "max_errors": _max_errors,
    "max_retries": _not_negative,
    "num_cpus": _amount,
    "num_gpus": _amount,
    "on_error": _on_error,
    "retry_on": _exceptions,
    "split_on": _exceptions,
    "timeout": _timeout,
    "use_process": _boolean,
    "version": _text,
    "zero_copy_batch": _boolean,
}


# --- parts of a spec --------------------------------------------------------------------------------------------------


def make_policy(
    name: str,
    *,
    on_error: OnError,
    max_retries: int = 0,
    retry_on: Any = None,
    max_errors: int | float | None = None,
    timeout_s: float | None = None,
    can_stop: bool,
) -> Policy:
    """Return the policy of checked options; ``can_stop`` is True if a running call can be stopped."""
    if max_errors is not None and on_error == "raise":
        raise InvalidArgumentError(
            f'{name}: max_errors={max_errors!r} needs on_error="log" or "ignore"; with "raise" the first error ends all'
        )
    if timeout_s is not None and not can_stop:
        raise InvalidArgumentError(
            f"{name}: timeout={timeout_s!r} cannot stop a function in a thread; set use_process=True, or make it async"
        )
    return Policy(on_error, max_retries, exception_classes(retry_on), timeout_s, max_errors)


def make_limits(name: str, options: Mapping[str, Any]) -> BatchLimits:
    """Return the limits of checked options."""
    max_bytes, max_tokens, weight, split_on = (options.get(option) for option in BATCH_OPTIONS)
    if weight is not None and max_tokens is None:
        raise InvalidArgumentError(
            f"{name}: batch_weight returns the weight of rows; set max_batch_tokens= to limit it"
        )
    nbytes = None if max_bytes is None else parse_bytes(max_bytes)
    return BatchLimits(nbytes, max_tokens, weight, exception_classes(split_on))


def exception_classes(given: Any) -> tuple[Any, ...]:
    """Return an option that is one class, several or None, as a tuple."""
    return () if given is None else tuple(given) if isinstance(given, (tuple, list)) else (given,)

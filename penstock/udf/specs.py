"""Make the specs of user functions from checked options."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args, get_origin

from penstock.config import parse_bytes
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchSpec, BatchVerb, Resources, Target, UdfSpec
from penstock.types import DataType
from penstock.types.frozen import frozen
from penstock.udf.formats import checked_format
from penstock.udf.options import check_call_options, check_options, check_whole, make_limits, make_policy
from penstock.udf.parameters import parameter_hints, pil_parameters

_SEVERAL = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)


def check_signature(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise an error for arguments that do not fit the signature of ``function``; one written in C may have none."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise InvalidArgumentError(f"{name}: {exc}; it is defined as {name}{signature}") from None


def _common_parts(
    name: str, options: Mapping[str, Any], workers: tuple[int, int | None], is_async: bool
) -> dict[str, Any]:
    """Return the fields that both kinds of specs have."""
    gpus = options.get("gpus") or 0
    memory, use_process = options.get("memory"), options.get("use_process")
    resources = Resources(
        cpus=options.get("cpus"),
        gpus=gpus,
        memory_bytes=None if memory is None else parse_bytes(memory),
        min_workers=workers[0],
        max_workers=workers[1],
        use_process=use_process,
        ray_options=tuple((options.get("ray_options") or {}).items()),
    )
    return {
        "batch_size": options.get("batch_size", "auto"),
        "limits": make_limits(options),
        "resources": resources,
        "policy": make_policy(name, options, can_stop=is_async or bool(use_process) or gpus > 0),
        "cache": bool(options.get("cache")),
    }


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


# --- func, cls and method ---------------------------------------------------------------------------------------------


class ClsObject:
    """Base of the objects that ``cls`` makes, which ``map_batches`` does not take."""


def make_spec(
    function: Callable[..., Any], options: Mapping[str, Any], *, is_batch: bool = False, method: Target | None = None
) -> UdfSpec:
    """Return the spec of a function or a method. A ``method`` has the class; ``function`` has its signature."""
    name = getattr(function, "__name__", type(function).__name__)
    if method is not None:
        name = (
            method.function.__name__ if method.method == "__call__" else f"{method.function.__name__}.{method.method}"
        )
    check_call_options(name, options)
    hint = return_hint(function)
    is_async = _is_async(function)
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if is_batch and is_generator:
        raise InvalidArgumentError(f"{name}: a batch function returns one value a row and cannot be a generator")
    is_generator = is_generator or (not is_batch and get_origin(hint) in _SEVERAL)
    target = replace(
        method or Target(function),
        is_batch=is_batch,
        is_async=is_async,
        is_generator=is_generator,
        pil_parameters=pil_parameters(parameter_hints(function, is_method=method is not None)),
    )
    return UdfSpec(
        name=name,
        target=target,
        return_dtype=return_dtype_of(name, options.get("return_dtype"), hint, is_batch, is_generator),
        version=options.get("version"),
        **_common_parts(name, options, (1, options.get("concurrency")), is_async),
    )


def return_hint(function: Callable[..., Any]) -> Any:
    """Return the annotation of a function's result, or None if it has none."""
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError):  # a name that only a type checker knows
        return getattr(function, "__annotations__", {}).get("return")


def return_dtype_of(name: str, given: Any, hint: Any, is_batch: bool = False, is_generator: bool = False) -> DataType:
    """Return the type of a function's results: as given, or by its annotation."""
    if given is not None:
        return DataType.of(given)
    if is_batch or hint is None or isinstance(hint, str):
        example = "return_dtype=ps.DataType.string()"
        remedy = f"give {example}" if is_batch else f"annotate it (`-> str`) or give {example}"
        raise InvalidArgumentError(f"{name}: the type of its results is not known; {remedy}")
    if is_generator:
        if not get_args(hint):
            raise InvalidArgumentError(f"{name}: a generator must say what it yields, such as `-> Iterator[str]`")
        hint = get_args(hint)[0]
    return DataType.from_hint(hint)


# --- map_batches and its kind -----------------------------------------------------------------------------------------


@frozen
class ActorPoolStrategy:
    """Workers that live for the whole query: ``size`` of them, or from ``min_size`` to ``max_size`` as needed."""

    size: int | None = None
    min_size: int = 1
    max_size: int | None = None

    def __post_init__(self) -> None:
        for option in ("size", "min_size", "max_size"):
            if getattr(self, option) is not None:
                check_whole("ActorPoolStrategy", option, getattr(self, option), 1)
        if self.max_size is not None and self.max_size < self.min_size:
            raise InvalidArgumentError("ActorPoolStrategy: max_size must not be less than min_size")


@frozen
class TaskPoolStrategy:
    """Stateless workers, at most ``size`` at once."""

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_whole("TaskPoolStrategy", "size", self.size, 1)


Compute = ActorPoolStrategy | TaskPoolStrategy


def make_batch_spec(verb: BatchVerb, fn: Any, options: Mapping[str, Any], keys: tuple[str, ...] = ()) -> BatchSpec:
    """Return the spec of a function, or a class, over batches, groups or rows."""
    name = getattr(fn, "__name__", type(fn).__name__)
    check_options(verb, options)
    args, kwargs = tuple(options.get("fn_args") or ()), dict(options.get("fn_kwargs") or {})
    target = _batch_target(verb, fn, name, options, args, kwargs)
    workers = _pool_range(verb, options.get("compute"), options.get("concurrency"))
    return BatchSpec(
        name=name,
        verb=verb,
        target=target,
        args=args,
        kwargs=tuple(kwargs.items()),
        batch_format=checked_format(verb, options.get("batch_format", "default")),
        zero_copy=options.get("zero_copy_batch"),
        keys=keys,
        **_common_parts(verb, options, workers, target.is_async),
    )


def _batch_target(
    verb: str, fn: Any, name: str, options: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Target:
    init_args = tuple(options.get("fn_constructor_args") or ())
    init_kwargs = dict(options.get("fn_constructor_kwargs") or {})
    if isinstance(fn, ClsObject):
        raise InvalidArgumentError(
            f"{verb} takes a plain class and builds it in its workers; {name!r} is made by cls, whose instances are "
            "called with columns. Remove the decorator"
        )
    if not callable(fn):
        raise InvalidArgumentError(f"{verb} takes a function or a class; got {fn!r}")
    is_class = inspect.isclass(fn)
    if is_class:
        if not any("__call__" in vars(base) for base in fn.__mro__[:-1]):
            raise InvalidArgumentError(f"{verb}: class {name!r} needs a __call__ method that takes a batch")
        check_signature(fn, name, init_args, init_kwargs)
        check_signature(fn.__call__, f"{name}.__call__", (None, None, *args), kwargs)
    else:
        if init_args or init_kwargs:
            raise InvalidArgumentError(f"{verb}: {name!r} is a function; fn_constructor_args are for a class")
        check_signature(fn, name, (None, *args), kwargs)
    return Target(
        fn,
        method="__call__" if is_class else None,
        init_args=init_args,
        init_kwargs=tuple(init_kwargs.items()),
        is_batch=verb == "map_batches",
        is_async=_is_async(fn) or _is_async(fn.__call__),
    )


def _pool_range(verb: str, compute: Compute | None, concurrency: Any) -> tuple[int, int | None]:
    if compute is not None and concurrency is not None:
        raise InvalidArgumentError(f"{verb}: give compute= or concurrency=, not both")
    if isinstance(compute, ActorPoolStrategy):
        return (compute.size or compute.min_size), (compute.size or compute.max_size)
    if isinstance(compute, TaskPoolStrategy):
        return 1, compute.size
    if compute is not None:
        raise InvalidArgumentError(f"{verb}: compute is an ActorPoolStrategy or a TaskPoolStrategy; got {compute!r}")
    return worker_range(verb, concurrency)


def worker_range(name: str, concurrency: Any) -> tuple[int, int | None]:
    """Return the least and the most workers that the option ``concurrency`` allows."""
    if concurrency is None:
        return 1, None
    low, high = concurrency if isinstance(concurrency, (tuple, list)) and len(concurrency) == 2 else (concurrency,) * 2
    if isinstance(concurrency, bool) or not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
        raise InvalidArgumentError(f"{name}: concurrency is a number of 1 or more, or (min, max); got {concurrency!r}")
    return low, high

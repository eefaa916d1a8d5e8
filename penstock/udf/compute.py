"""The options of ``map_batches`` and its kind, checked and turned into a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.config import parse_bytes
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchFormat, BatchSize, BatchSpec, OnError, Resources, Target
from penstock.udf.decorators import Cls, ClsInstance, check_signature
from penstock.udf.formats import checked_format
from penstock.udf.options import (
    BATCH_OPTIONS,
    check_amount,
    check_batch_size,
    check_cache,
    check_max_errors,
    check_on_error,
    check_timeout,
    check_whole,
    make_limits,
    make_policy,
)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class TaskPoolStrategy:
    """Stateless workers, at most ``size`` at once."""

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_whole("TaskPoolStrategy", "size", self.size, 1)


Compute = ActorPoolStrategy | TaskPoolStrategy


def make_batch_spec(
    verb: Literal["map_batches", "map", "flat_map", "filter"],
    fn: Any,
    *,
    batch_size: BatchSize = "auto",
    batch_format: BatchFormat = "numpy",
    zero_copy_batch: bool | None = None,
    max_batch_bytes: int | str | None = None,
    max_batch_tokens: int | None = None,
    batch_weight: Callable[..., Any] | None = None,
    split_on: Any = None,
    compute: Compute | None = None,
    concurrency: int | tuple[int, int] | None = None,
    fn_args: Iterable[Any] = (),
    fn_kwargs: Mapping[str, Any] | None = None,
    fn_constructor_args: Iterable[Any] = (),
    fn_constructor_kwargs: Mapping[str, Any] | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    memory: int | str | None = None,
    max_retries: int = 0,
    on_error: OnError = "raise",
    max_errors: int | float | None = None,
    timeout: float | None = None,
    use_process: bool | None = None,
    cache: bool = False,
) -> BatchSpec:
    """Return the spec of a function over batches or rows, or raise an error that names the option at fault."""
    name = getattr(fn, "__name__", type(fn).__name__)
    args, kwargs = tuple(fn_args), dict(fn_kwargs or {})
    init_args, init_kwargs = tuple(fn_constructor_args), dict(fn_constructor_kwargs or {})
    is_class = _checked_kind(verb, fn, name)
    if is_class:
        check_signature(fn, name, init_args, init_kwargs)
        check_signature(fn.__call__, f"{name}.__call__", (None, None, *args), kwargs)
    else:
        if init_args or init_kwargs:
            raise InvalidArgumentError(f"{verb}: {name!r} is a function; fn_constructor_args are for a class")
        check_signature(fn, name, (None, *args), kwargs)
    check_batch_size(verb, batch_size)
    for option, value in (("zero_copy_batch", zero_copy_batch), ("use_process", use_process)):
        if value is not None and not isinstance(value, bool):
            raise InvalidArgumentError(f"{verb}: {option} is True, False or None; got {value!r}")
    check_whole(verb, "max_retries", max_retries, 0)
    check_amount(verb, "num_cpus", num_cpus or 0)
    check_amount(verb, "num_gpus", num_gpus or 0)
    check_on_error(verb, on_error)
    check_max_errors(verb, max_errors)
    check_timeout(verb, timeout)
    check_cache(verb, cache)
    is_async = _is_async(fn) or _is_async(fn.__call__)
    min_workers, max_workers = _worker_range(verb, compute, concurrency)
    return BatchSpec(
        name=name,
        verb=verb,
        target=Target(
            fn,
            method="__call__" if is_class else None,
            init_args=init_args,
            init_kwargs=tuple(init_kwargs.items()),
            is_batch=verb == "map_batches",
            is_async=is_async,
        ),
        args=args,
        kwargs=tuple(kwargs.items()),
        batch_size=batch_size,
        batch_format=checked_format(verb, batch_format),
        zero_copy=zero_copy_batch,
        limits=make_limits(verb, max_batch_bytes, max_batch_tokens, batch_weight, split_on),
        resources=Resources(
            cpus=num_cpus,
            gpus=num_gpus or 0,
            memory_bytes=None if memory is None else parse_bytes(memory),
            min_workers=min_workers,
            max_workers=max_workers,
            use_process=use_process,
        ),
        policy=make_policy(
            verb,
            on_error=on_error,
            max_retries=max_retries,
            max_errors=max_errors,
            timeout_s=timeout,
            can_stop=is_async or bool(use_process) or bool(num_gpus),
        ),
        cache=cache,
    )


ALL_OPTIONS = list(inspect.signature(make_batch_spec).parameters)[2:]
ROW_OPTIONS = [name for name in ALL_OPTIONS if name not in ("batch_format", "zero_copy_batch", *BATCH_OPTIONS)]
"""The options of ``map``, ``flat_map`` and ``filter``, whose functions are given rows."""


def _checked_kind(verb: str, fn: Any, name: str) -> bool:
    """Return whether ``fn`` is a class to be built in workers; refuse what cannot be called there."""
    if isinstance(fn, (Cls, ClsInstance)):
        raise InvalidArgumentError(
            f"{verb} takes a plain class and builds it in its workers; {name!r} is made by cls, whose instances are "
            "called with columns. Leave out the decorator"
        )
    if not callable(fn):
        raise InvalidArgumentError(f"{verb} takes a function or a class; got {fn!r}")
    if not inspect.isclass(fn):
        return False
    if not any("__call__" in vars(base) for base in fn.__mro__[:-1]):
        raise InvalidArgumentError(f"{verb}: class {name!r} needs a __call__ method that takes a batch")
    return True


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _worker_range(verb: str, compute: Compute | None, concurrency: Any) -> tuple[int, int | None]:
    if compute is not None and concurrency is not None:
        raise InvalidArgumentError(f"{verb}: give compute= or concurrency=, not both")
    if isinstance(compute, ActorPoolStrategy):
        return (compute.size or compute.min_size), (compute.size or compute.max_size)
    if isinstance(compute, TaskPoolStrategy):
        return 1, compute.size
    if compute is not None:
        raise InvalidArgumentError(f"{verb}: compute is an ActorPoolStrategy or a TaskPoolStrategy; got {compute!r}")
    if concurrency is None:
        return 1, None
    low, high = concurrency if isinstance(concurrency, (tuple, list)) and len(concurrency) == 2 else (concurrency,) * 2
    if not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
        raise InvalidArgumentError(f"{verb}: concurrency is a number of 1 or more, or (min, max); got {concurrency!r}")
    return low, high

"""The options of ``map_batches`` and its kind, checked and turned into a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from penstock.config import parse_bytes
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import BatchFormat, BatchSize, BatchSpec, OnError, Policy, Resources
from penstock.udf.decorators import check_on_error


@dataclass(frozen=True, slots=True)
class ActorPoolStrategy:
    """Workers that live for the whole query: ``size`` of them, or from ``min_size`` to ``max_size`` as needed."""

    size: int | None = None
    min_size: int = 1
    max_size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise InvalidArgumentError(f"ActorPoolStrategy: size must be 1 or more; got {self.size!r}")
        if self.max_size is not None and self.max_size < self.min_size:
            raise InvalidArgumentError("ActorPoolStrategy: max_size must not be less than min_size")


@dataclass(frozen=True, slots=True)
class TaskPoolStrategy:
    """Stateless workers, at most ``size`` at once."""

    size: int | None = None


Compute = ActorPoolStrategy | TaskPoolStrategy


def make_batch_spec(
    verb: Literal["map_batches", "map", "flat_map", "filter"],
    fn: Callable[..., Any],
    *,
    batch_size: BatchSize = "auto",
    batch_format: BatchFormat = "numpy",
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
    use_process: bool | None = None,
) -> BatchSpec:
    """Return the spec of a function over batches or rows, or raise an error that names the option at fault."""
    if not callable(fn):
        raise InvalidArgumentError(f"{verb} takes a function or a class; got {fn!r}")
    is_class = inspect.isclass(fn)
    name = getattr(fn, "__name__", type(fn).__name__)
    if is_class and "__call__" not in {attribute for base in fn.__mro__[:-1] for attribute in vars(base)}:
        raise InvalidArgumentError(f"{verb}: class {name!r} needs a __call__ method that takes a batch")
    if not is_class and (fn_constructor_args or fn_constructor_kwargs):
        raise InvalidArgumentError(f"{verb}: {name!r} is a function; fn_constructor_args are for a class")
    if batch_size not in (None, "auto") and (not isinstance(batch_size, int) or batch_size < 1):
        raise InvalidArgumentError(f"{verb}: batch_size must be a whole number of 1 or more, or 'auto'; got {batch_size!r}")
    formats = [*get_args(BatchFormat), "default"]
    if batch_format not in formats:
        raise InvalidArgumentError(
            f"{verb}: batch_format={batch_format!r} is not known; use one of {', '.join(formats)}."
            f"{did_you_mean(str(batch_format), formats)}"
        )
    check_on_error(on_error, verb)
    min_workers, max_workers = _worker_range(verb, compute, concurrency)
    return BatchSpec(
        name=name,
        verb=verb,
        target=fn,
        is_class=is_class,
        is_async=inspect.iscoroutinefunction(fn.__call__ if is_class else fn),
        args=tuple(fn_args),
        kwargs=tuple((fn_kwargs or {}).items()),
        init_args=tuple(fn_constructor_args),
        init_kwargs=tuple((fn_constructor_kwargs or {}).items()),
        batch_size=batch_size,
        batch_format="numpy" if batch_format == "default" else batch_format,
        resources=Resources(
            cpus=num_cpus,
            gpus=num_gpus or 0,
            memory_bytes=None if memory is None else parse_bytes(memory),
            min_workers=min_workers,
            max_workers=max_workers,
            use_process=use_process,
        ),
        policy=Policy(on_error=on_error, max_retries=max_retries),
    )


def _worker_range(verb: str, compute: Compute | None, concurrency: Any) -> tuple[int, int | None]:
    if compute is not None and concurrency is not None:
        raise InvalidArgumentError(f"{verb}: give compute= or concurrency=, not both")
    if isinstance(compute, ActorPoolStrategy):
        return (compute.size or compute.min_size), (compute.size or compute.max_size)
    if isinstance(compute, TaskPoolStrategy):
        return 1, compute.size
    if concurrency is None:
        return 1, None
    low, high = concurrency if isinstance(concurrency, (tuple, list)) and len(concurrency) == 2 else (concurrency,) * 2
    if not (isinstance(low, int) and isinstance(high, int) and 1 <= low <= high):
        raise InvalidArgumentError(f"{verb}: concurrency is a number of 1 or more, or (min, max); got {concurrency!r}")
    return low, high

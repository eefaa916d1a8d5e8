"""A user-defined function as data: what to build in a worker, how to call it, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.types import DataType

OnError = Literal["raise", "log", "ignore"]
BatchSize = int | Literal["auto", "paced"] | None
"""``paced`` is for functions of ours: batches cut so that each takes a moment, as rows are for functions of rows."""

ASYNC_ROWS_AT_ONCE = 256
"""Calls of an async function that wait at once where the user gives no number: each may hold a socket, and 1,024 open
files are often all that a process may have."""
ASYNC_BATCHES_AT_ONCE = 8
"""The same for calls that hold a whole batch each."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one worker of a stage takes; ``max_workers`` of None lets the engine choose."""

    cpus: float | None = None
    gpus: float = 0
    memory_bytes: int | None = None
    min_workers: int = 1
    max_workers: int | None = None
    use_process: bool | None = None
    ray_options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do when a call fails, and when that is too much."""

    on_error: OnError = "raise"
    max_retries: int = 0
    retry_on: tuple[type[BaseException], ...] = ()
    timeout_s: float | None = None  # for each call
    max_errors: int | float | None = None  # a count, or a share of the rows below 1; None: any number


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may weigh at most, and which errors say that it was too much.

    ``batch_weight`` is given what the function is given and returns the tokens of each row; without it they are
    estimated from text. A batch on which one of ``split_on`` is raised is halved, as it always is when a GPU is full.
    """

    max_batch_bytes: int | None = None
    max_batch_tokens: int | None = None
    batch_weight: Callable[..., Any] | None = None
    split_on: tuple[type[BaseException], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class UdfSpec:
    """A function over columns. Compared by identity: one decorated function, or one ``cls`` instance's method.

    ``target`` is the function itself, or a class that the worker builds once with ``init_args`` and ``init_kwargs``
    and whose ``method`` it then calls. Methods of one ``owner`` are called on the same instance in a worker.
    """

    name: str
    target: Callable[..., Any]
    return_dtype: DataType
    is_batch: bool = False
    is_async: bool = False
    is_generator: bool = False
    method: str | None = None
    init_args: tuple[Any, ...] = ()
    init_kwargs: tuple[tuple[str, Any], ...] = ()
    owner: str | None = None
    batch_size: BatchSize = "auto"
    limits: BatchLimits = BatchLimits()
    resources: Resources = Resources()
    policy: Policy = Policy()
    task_nbytes: int | None = None  # about what one task may give, where rows may be of any size
    task_rows: int | None = None  # for async functions of ours: few, so that a slow row delays few others
    first_growth: int | None = None  # for functions of ours: what they make of a byte, until that is measured
    loop: str | None = None  # async functions of ours that name the same share an event loop, and so their clients
    pil_parameters: tuple[int | str, ...] = ()  # by position and name: those annotated with Pillow's class of images
    has_cut: bool = False  # for functions of ours: ``target.cut(*args)`` says how many rows to take at a time
    prepare: str | None = None
    """For async functions of ours over rows: what of the instance is given the arguments of all rows of a task first, a
    list of tuples, and knows the results of some: see ``Prepared``. It may be None."""
    check: Callable[..., None] | None = None  # of the arguments' types, when a plan is built; for functions of ours
    cache: bool = False  # whether results are kept in the ledger
    cache_key: bytes = b""  # by this; known when a query runs, and for a function with ``cache`` only
    told: tuple[tuple[str, Any], ...] = ()  # what determines the results of a function of ours, in users' own words

    def __penstock_key__(self) -> Any:
        """Return what determines the results: what is called and how, not where or how often."""
        if self.told:
            return self.name, dict(self.told), self.return_dtype
        how = (self.is_batch, self.is_async, self.is_generator, self.method, self.pil_parameters)
        return self.target, self.init_args, dict(self.init_kwargs), self.return_dtype, how

    @property
    def is_stateful(self) -> bool:
        return self.method is not None

    @property
    def num_at_once(self) -> int:
        """How many calls of an async function may wait at once."""
        return self.resources.max_workers or (ASYNC_BATCHES_AT_ONCE if self.is_batch else ASYNC_ROWS_AT_ONCE)


BatchFormat = Literal["numpy", "pandas", "pyarrow", "pylist", "torch"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchSpec:
    """A function over whole batches or rows, as given to ``map_batches``, ``map``, ``flat_map`` or ``filter``.

    ``verb`` says how ``target`` is called: with a batch in ``batch_format``, or with one row as a dict. A batch shares
    memory with its columns where that can be, unless ``zero_copy`` is off
    and it is the function's to change; tensors, which cannot be locked, share it only if it is on.
    """

    name: str
    verb: Literal["map_batches", "map", "flat_map", "filter"]
    target: Callable[..., Any]
    is_class: bool = False
    is_async: bool = False
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    init_args: tuple[Any, ...] = ()
    init_kwargs: tuple[tuple[str, Any], ...] = ()
    batch_size: BatchSize = "auto"
    batch_format: BatchFormat = "numpy"
    zero_copy: bool | None = None
    limits: BatchLimits = BatchLimits()
    resources: Resources = Resources()
    policy: Policy = Policy()
    cache: bool = False  # as in UdfSpec
    cache_key: bytes = b""

    def __penstock_key__(self) -> Any:
        """Return what determines the results: what is called and how, not where or in batches of what size."""
        given = (self.args, dict(self.kwargs), self.init_args, dict(self.init_kwargs))
        return self.target, given, self.verb, self.is_class, self.batch_format

    @property
    def is_stateful(self) -> bool:
        return self.is_class

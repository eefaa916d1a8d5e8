"""User functions as data: the code to call, where it runs, and how failures are handled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from penstock.types import DataType
from penstock.types.frozen import frozen

OnError = Literal["raise", "null", "log", "ignore"]
"""``ignore`` is another spelling of ``null``, which policies do not have."""
MaxErrors = int | float | Literal["auto"] | None
"""``auto``: a circuit breaker stops a query when nearly all of its recent rows fail for the same reason."""
BatchSize = int | Literal["auto", "paced"] | None
"""``paced`` is internal: batches are cut so that each takes a fraction of a second, like tasks of row functions."""
BatchVerb = Literal["map_batches", "map_groups", "map", "flat_map", "filter"]
BatchFormat = Literal["numpy", "pandas", "pyarrow", "pylist", "torch"]

MAX_ASYNC_ROWS = 256
"""Default number of concurrent calls of an async function. Each may hold a socket, and many processes are limited to
1,024 open files."""
MAX_ASYNC_BATCHES = 8
"""The default for calls that each hold a whole batch."""


@frozen
class Target:
    """The code to call.

    ``function`` is called directly, or, if ``method`` is set, is a class: each worker builds one instance of it with
    ``init_args`` and ``init_kwargs`` and calls that method. Methods with the same ``owner`` share an instance.
    """

    function: Callable[..., Any]
    method: str | None = None
    init_args: tuple[Any, ...] = ()
    init_kwargs: tuple[tuple[str, Any], ...] = ()
    owner: str | None = None
    is_batch: bool = False
    is_async: bool = False
    is_generator: bool = False
    pil_parameters: tuple[int | str, ...] = ()  # positions and names of parameters annotated with PIL.Image.Image

    def __penstock_key__(self) -> Any:
        """Return the parts that decide the results. The owner is not among them."""
        how = (self.is_batch, self.is_async, self.is_generator, self.method, self.pil_parameters)
        return self.function, self.init_args, dict(self.init_kwargs), how

    @property
    def is_class(self) -> bool:
        return self.method is not None


@frozen
class Resources:
    """The resources of one worker of a function, and the number of workers. None lets the engine choose.

    With several ``tasks_per_worker``, threads of a worker call one instance at the same time: one batch can be prepared
    while another computes.
    """

    cpus: float | None = None
    gpus: float = 0
    memory_bytes: int | None = None
    min_workers: int = 1
    max_workers: int | None = None
    tasks_per_worker: int = 1
    use_process: bool | None = None
    ray_options: tuple[tuple[str, Any], ...] = ()


@frozen
class Policy:
    """The handling of failed calls."""

    on_error: OnError = "raise"
    max_retries: int = 0
    retry_on: tuple[type[BaseException], ...] = ()
    timeout_s: float | None = None  # of one call
    max_errors: int | float | None = None  # a count, or a share of the rows below 1; None: unlimited
    breaker_rows: int | None = None  # the number of recent rows that the circuit breaker looks at; None switches it off

    @property
    def may_repeat(self) -> bool:
        """True if Penstock may repeat a failed call, or its row may fail without ending the query."""
        return bool(self.max_retries or self.timeout_s or self.on_error != "raise")


@frozen
class BatchLimits:
    """The maximum weight of a batch, and the errors that mean a batch was too large.

    Tokens are estimated from text. A batch that raises one of ``split_on`` is halved, as it always is when a GPU runs
    out of memory.
    """

    max_batch_bytes: int | None = None
    max_batch_tokens: int | None = None
    split_on: tuple[type[BaseException], ...] = ()


API_LOOP = "penstock.ai"  # the event loop of the calls of remote models


class JoinsCalls(Protocol):
    """A function that returns lists, and can compute the items of other functions with the same arguments in the same
    call.
    """

    def joined(self, spec: UdfSpec, other: UdfSpec) -> JoinedCall | None:
        """Return one function for ``spec``, the function of this object, and ``other``, or None."""


@frozen
class Builtin:
    """Settings that only Penstock's own functions have."""

    identity: tuple[tuple[str, Any], ...] = ()  # replaces the code of the function in keys and fingerprints
    check: Callable[..., None] | None = None  # checks the types of the arguments when a plan is built
    task_nbytes: int | None = None  # target size of the output of a task, if rows may have any size
    task_rows: int | None = None  # rows of an async task: few, so that a slow row delays few others
    first_rows: int | None = None  # of a first batch with batch_size="auto"
    max_rows: int | None = None  # of a batch with batch_size="auto"
    initial_growth: int | None = None  # assumed output bytes for each input byte, until measured
    event_loop: str | None = None  # async functions with the same name share an event loop, and so their clients
    is_batched: bool = False  # a batch API answers all calls together, hours later: few take as long as many
    has_cut: bool = False  # ``function.cut(*args)`` returns the number of rows of each part of a batch
    has_lookup: bool = False  # the instance gets the arguments of all rows of a task, and may have some results already
    model: str | None = None  # shown in plans and in the names of stages
    note: str | None = None  # on how it runs, shown in plans
    row_options: tuple[str, ...] = ()  # the names of the last arguments, shown in plans
    at_once: str | None = None
    """An async method of the instance. It gets the argument columns of a task and returns the column of results, or
    None if the rows must be called one by one."""
    joins: JoinsCalls | None = None  # several calls on the same rows become one
    cascade: Any = None  # of plan/cascade.py: the planner makes several calls of this one


@frozen
class UdfSpec:
    """A function over columns. Compared by object identity: a decorated function, or a method of a ``cls`` instance.

    ``version``, if given, stands for the code of the function in keys and fingerprints.
    """

    name: str
    target: Target
    return_dtype: DataType
    batch_size: BatchSize = "auto"
    limits: BatchLimits = BatchLimits()
    resources: Resources = Resources()
    policy: Policy = Policy()
    builtin: Builtin = Builtin()
    cache: bool = False  # store results in the ledger
    cache_key: bytes = b""  # set when a query starts, if ``cache``
    version: str | None = None

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __penstock_key__(self) -> Any:
        """Return what determines the results, independent of where the function runs."""
        if self.builtin.identity:
            return self.name, dict(self.builtin.identity), self.return_dtype
        if self.version is not None:
            return self.name, self.version, self.target.init_args, dict(self.target.init_kwargs), self.return_dtype
        return self.target, self.return_dtype

    @property
    def is_streaming(self) -> bool:
        """True if a generator's values move on before it ends; Penstock then never repeats its call."""
        return self.target.is_generator and not (self.cache or self.policy.may_repeat)

    @property
    def max_concurrent_calls(self) -> int:
        """The maximum number of concurrent calls of an async function."""
        return self.resources.max_workers or (MAX_ASYNC_BATCHES if self.target.is_batch else MAX_ASYNC_ROWS)


@frozen
class JoinedCall:
    """A function that returns lists. They begin with the results of one function; the results of the other are at
    ``positions``.
    """

    udf: UdfSpec
    positions: tuple[int, ...]


@frozen
class BatchSpec:
    """A function over whole batches, groups or rows, as given to ``map_batches``, ``map_groups``, ``map`` and others.

    ``map_batches`` calls ``target`` with a batch in ``batch_format``, ``map_groups`` with the rows of one group, and
    the other verbs with one row as a dict. Arrays share memory with the columns unless ``zero_copy`` is False. Tensors,
    which cannot be read-only, share it only if ``zero_copy`` is True. The function may change data that is not shared.
    """

    name: str
    verb: BatchVerb
    target: Target
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    batch_size: BatchSize = "auto"
    batch_format: BatchFormat = "numpy"
    zero_copy: bool | None = None
    limits: BatchLimits = BatchLimits()
    resources: Resources = Resources()
    policy: Policy = Policy()
    keys: tuple[str, ...] = ()  # the columns that identify a group
    cache: bool = False  # as in UdfSpec
    cache_key: bytes = b""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __penstock_key__(self) -> Any:
        """Return what determines the results, independent of where the function runs and of the batch size."""
        return self.target, self.args, dict(self.kwargs), self.verb, self.batch_format

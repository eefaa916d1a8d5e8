"""The interfaces inside the engine. Each contract says who calls, whether a call may block, and who closes.

Handler                does the work of a stage         engine/handlers.py, udf/
WorkerPool             runs handlers                    engine/pools/, runners/ray/
Bundle, Task, Report   travel between executor and pool
QueryControl           pauses or cancels a query        engine/executor.py

The interfaces that users implement, such as sources and sinks, are in ``penstock/protocols.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from penstock.errors import QueryCancelledError
from penstock.types.frozen import frozen

if TYPE_CHECKING:
    from penstock.events.call_counter import CallCounter
    from penstock.events.events import RowError
    from penstock.protocols import ReadTask


@frozen
class WorkerContext:
    """The services of a pool for one handler: a cancel flag, a sink for failed rows, and the index of its worker."""

    is_cancelled: Callable[[], bool]
    record: Callable[[RowError], None]
    worker: int = 0


def check_not_cancelled(is_cancelled: Callable[[], bool]) -> None:
    """Raise QueryCancelledError if the query was stopped."""
    if is_cancelled():
        raise QueryCancelledError("the query was stopped")


class Handler(Protocol):
    """Does the work of one stage in one worker. Built there, used by one thread at a time, closed by the pool."""

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return the output of one input: a batch, or an iterator of batches that the pool draws as memory allows.

        ``item`` is a batch, a ReadTask for a scan, or EndOfInput after the last batch of a relation; ``first_row`` is
        its position in the input of the stage.
        """

    def close(self) -> None:
        """Release everything. Called once, also after an error."""


@runtime_checkable
class HoldsOutput(Protocol):
    """A handler that holds output until after its last input, such as a writer of files."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the output. Called once, after the last input."""


@runtime_checkable
class Interruptible(Protocol):
    """A handler that its pool can stop from another thread."""

    def interrupt(self, *, is_busy: bool) -> None:
        """Make a running call return soon. Never blocks; called before ``close``."""


class Origin(NamedTuple):
    """The origin of consecutive rows of a bundle, in a query that tracks lineage.

    They came, one for one, from ``num_rows`` rows of the read ``source``, beginning at ``start``. If ``start`` is None,
    they came from the lot ``source``, a group of rows whose outputs cannot be traced row by row.
    """

    source: int
    start: int | None
    num_rows: int


task_origins: ContextVar[tuple[Origin, ...]] = ContextVar("penstock_task_origins", default=())
"""The origins of the rows of the current async task; empty in a query without lineage."""


def cut_origins(origins: Sequence[Origin], offset: int, num_rows: int) -> tuple[Origin, ...]:
    """Return the origins of the ``num_rows`` rows after the first ``offset``.

    >>> cut_origins([Origin(0, 10, 5), Origin(7, None, 5)], 3, 4)
    (Origin(source=0, start=13, num_rows=2), Origin(source=7, start=None, num_rows=2))
    """
    found = []
    for source, start, length in origins:
        first, last = max(offset, 0), min(offset + num_rows, length)
        if first < last:
            found.append(Origin(source, None if start is None else start + first, last - first))
        offset -= length
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A batch of rows as the executor sees it: a handle, and the numbers that its decisions need.

    ``handle`` is the RecordBatch, on Ray a ``RemoteBatch``. ``offset`` and ``num_rows`` select a slice of it, so that
    the driver can cut without touching data. ``origins`` is empty in a query without lineage. With ``is_task`` it
    becomes a task of its own even where other outputs are gathered into one.
    """

    handle: Any
    num_rows: int
    nbytes: int
    offset: int = 0
    origins: tuple[Origin, ...] = ()
    is_task: bool = False

    def slice(self, offset: int, num_rows: int) -> Bundle:
        """Return a slice; its bytes are estimated in proportion."""
        if offset == 0 and num_rows == self.num_rows:
            return self
        nbytes = self.nbytes * num_rows // max(self.num_rows, 1)
        origins = cut_origins(self.origins, offset, num_rows) if self.origins else ()
        return Bundle(self.handle, num_rows, nbytes, self.offset + offset, origins)


@runtime_checkable
class RemoteBatch(Protocol):
    """The handle of a bundle whose rows are not in this process."""

    def fetch(self) -> pa.RecordBatch:
        """Return the rows, without the offset and length of the bundle. May block."""


@runtime_checkable
class WrittenOutput(Protocol):
    """The handle of a bundle that its worker has written. At most ``first_rows`` of it can be shown."""

    @property
    def first_rows(self) -> pa.RecordBatch: ...


@frozen
class EndOfInput:
    """The last task of a stage that needs its whole input before it gives rows."""


@dataclass(slots=True, eq=False)
class Task:
    """One input of a stage: a ReadTask, bundles that the worker joins into one batch, or the end of the input."""

    item: ReadTask | EndOfInput | tuple[Bundle, ...]
    first_row: int
    nbytes: int
    num_rows: int = 0
    nbytes_held: int = 0  # while it runs: of its input, the copies that its worker makes, and its next output
    busy_s: float = 0.0  # spent by workers so far
    nbytes_out: int = 0  # of its largest output so far
    outputs: list[Bundle] = field(default_factory=list)  # produced, not yet passed on by the executor
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A message of a pool to the executor: a task has an output, is done, or failed.

    ``task`` is None for the outputs of ``finish``; the last output has ``is_done``. ``errors`` are tolerated failed
    rows. ``wanted_cpu_s`` is the part of ``busy_s`` in which the worker had a core or waited for one, if measured.
    """

    task: Task | None
    output: Bundle | None
    is_done: bool
    busy_s: float = 0.0
    error: BaseException | None = None
    errors: tuple[RowError, ...] = ()
    wanted_cpu_s: float = 0.0


Emit = Callable[[Report], None]


class WorkerPool(Protocol):
    """Runs the handlers of one stage. Made with a thread-safe ``emit``; only ``close`` may block.

    A task gives its outputs one at a time. After each the pool emits a Report, and the task rests until it is submitted
    again. So the executor decides when a worker may produce more.
    """

    @property
    def capacity(self) -> int:
        """Tasks that it can hold at once, including resting ones. On a cluster it changes with the cluster's size."""

    def submit(self, task: Task) -> None:
        """Start a task, or resume one that rests. Never called for more than ``capacity`` tasks at once."""

    def finish(self) -> None:
        """Finish all handlers, emit their outputs, then a last Report. Called once, after the last task."""

    def close(self) -> None:
        """Stop at once and release threads, processes and memory. Returns when they are gone; may be called twice."""


@runtime_checkable
class DescribesTasks(Protocol):
    """A pool that can say where its tasks run."""

    def described_tasks(self) -> list[str]:
        """Return each task that is not done, with its worker, for an error message."""


@runtime_checkable
class CountsCalls(Protocol):
    """A pool that counts the calls of its stage while they run."""

    call_counter: CallCounter


class QueryControl(Protocol):
    """Controls a running query, from any thread. After the end of the query its methods have no effect."""

    def set_paused(self, is_paused: bool) -> None:
        """Start no more tasks and calls until it is called with False. Running ones continue to their end."""

    def num_under_way(self) -> tuple[int, int]:
        """Return the calls in flight, and the other tasks that run. A paused query is at rest when both are 0."""

    def cancel(self) -> None:
        """End the query with QueryCancelledError."""

    def limit_tasks(self, stage: int, max_running: int) -> None:
        """Let a stage run at most so many tasks at once, and at least one. Its pool may allow fewer."""


@runtime_checkable
class QueryController(Protocol):
    """A Subscriber that controls the query. It receives the control before the first event."""

    def on_control(self, control: QueryControl) -> None: ...


@runtime_checkable
class RowWatcher(Protocol):
    """A Subscriber that looks at rows."""

    def on_rows(self, stage: int, work: object, report: Report) -> None:
        """Look at the output of a task of a stage and at its failed rows. Must keep no batch and return quickly."""

"""Every seam of the engine on one page. Each contract says who calls, whether a call may block, and who closes.

Source -> ReadTask     gives rows                        io/, users
Sink -> Writer         takes rows                        io/, users
Handler                does the work of a stage          engine/handlers.py, udf/
WorkerPool             runs handlers                     engine/pools/, engine/runners/ray/
Subscriber             receives events                   observe/, users
Ledger                 stores answers of finished calls  cache/ledger/

An optional ability of a source, sink, handler or model is a protocol of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from penstock.types import Schema
from penstock.types.frozen import frozen

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from penstock.observe.events import Event, RowError


@frozen
class Condition:
    """One comparison of a column with a constant, for stores with a query language of their own."""

    column: str
    operator: Literal["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]
    value: Any = None  # a Python value of the column's type; a tuple for "in", None for the last two


@frozen
class ReadRequest:
    """The rows and columns that a scan needs.

    ``columns`` (None: all) and ``limit`` are hints: the engine selects and cuts again. Only a source with
    ``can_filter`` gets a ``predicate``, and must apply it to every row. ``conditions`` are parts of the predicate as
    plain data: a source may skip rows that fail one of them.
    """

    columns: tuple[str, ...] | None = None
    predicate: pc.Expression | None = None
    limit: int | None = None
    conditions: tuple[Condition, ...] = ()


class ReadTask(Protocol):
    """A part of a source that one worker reads. Picklable; reading it twice gives the same rows."""

    num_rows: int | None  # before any predicate; None if unknown
    nbytes: int | None  # estimated size in memory; None if unknown

    def read(self) -> Iterable[pa.RecordBatch]:
        """Yield the rows as batches of moderate size, or as ``pa.Table``. May block.

        The engine draws one batch at a time, on any thread, and closes a generator that it no longer needs.
        """
        ...


@runtime_checkable
class NamedReadTask(Protocol):
    """A ``ReadTask`` that a job recognizes in a later run; other tasks are recognized by their number."""

    origin: tuple[str, str] | None
    """The input, as named by ``VersionedSource.versions``, and the part of it. No two tasks of one request have the
    same origin, and an unchanged part has the same one in each request. None: recognized by its number."""


@runtime_checkable
class SmallReadTask(Protocol):
    """A ``ReadTask`` that may take less time to read than to schedule; one worker reads several as one task."""

    is_small: bool

    def read_with(self, others: Sequence[Any]) -> Iterable[pa.RecordBatch]:
        """Yield the rows of this task and then of ``others``, small tasks of the same request, in few batches."""
        ...


@runtime_checkable
class Source(Protocol):
    """A provider of rows. Its tasks must be picklable."""

    name: str  # shown in plans and errors
    can_filter: bool  # read_tasks applies ReadRequest.predicate exactly

    def schema(self) -> Schema:
        """Return the columns. Called when the plan is built; may open one file, never reads all."""
        ...

    def read_tasks(self, request: ReadRequest) -> Iterator[ReadTask]:
        """Yield the tasks in row order, lazily. Called once per run, in the user's process."""
        ...


@runtime_checkable
class VersionedSource(Protocol):
    """A source that knows the versions of its inputs, so that a later run of a job can tell which of them changed.

    A source without it counts by all that can be pickled of it.
    """

    def versions(self) -> Mapping[str, str]:
        """Return the version of each input by name: a text that changes with the input, such as its size and time.

        Users see names and versions, so they hold no credentials. May block; called once per run.
        """
        ...


@runtime_checkable
class CountableSource(Protocol):
    """A source that counts its rows faster than it reads any column, when a request has no columns."""

    can_count: bool


@runtime_checkable
class SourceOptions(Protocol):
    """A source that names the options it was made with; a source without it counts by the code of its class."""

    def options(self) -> Mapping[str, Any]:
        """Return how the source is read, by the names of the reader's arguments."""
        ...


class Writer(Protocol):
    """Writes the rows of one worker into a sink. Used by one thread at a time."""

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]] | None:
        """Write a batch. Return a record for each piece that it completed, such as a closed file, or None."""
        ...

    def finish(self) -> Iterable[dict[str, Any]] | None:
        """Flush the rest and return its records, as ``write`` does. Called once, unless the query fails."""
        ...

    def close(self) -> None:
        """Release handles. Called last, after ``finish`` or an error."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A destination of rows. Readers see nothing before ``commit``."""

    def start(self) -> None:
        """Check the target and prepare staging. Called once, before any row is read."""
        ...

    def open(self) -> Writer:
        """Return a writer. Called in each worker, to which the sink is pickled."""
        ...

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table | None:
        """Make everything staged visible at once. Return a table to show to the user, or None.

        Called once, after all writers are closed.
        """
        ...

    def abort(self) -> None:
        """Remove everything staged. Called instead of ``commit`` if the query fails or is cancelled."""
        ...


@runtime_checkable
class ErrorSink(Protocol):
    """A sink that also stores the failed rows."""

    def keep_errors(self, errors: pa.RecordBatchReader) -> None:
        """Stage the failed rows, which may exceed memory. Called before ``commit``, and only if there are any."""
        ...


@runtime_checkable
class NamedSink(Protocol):
    """A sink with a name for plans and messages, which also identifies its target; others are named by their class."""

    name: str


@runtime_checkable
class ModeSink(Protocol):
    """A sink that treats existing data by its mode: ``create``, ``append`` or ``overwrite``; other sinks overwrite."""

    mode: str


@runtime_checkable
class OneWriterSink(Protocol):
    """A sink that may need all rows in one writer, such as files of partitions: several would each make files."""

    needs_one_writer: bool


@runtime_checkable
class RunSink(Protocol):
    """A sink that stages rows under the id of its run."""

    run_id: str

    def discard(self, run_id: str) -> None:
        """Remove the rows that a run left staged when it was killed."""
        ...


@runtime_checkable
class OnceSink(Protocol):
    """A sink whose commit leaves a mark, so that a job that is killed then does not append twice."""

    def marked(self, run_id: str) -> Sink:
        """Return a sink whose commit leaves the mark ``run_id`` in the same transaction as the rows."""
        ...

    def has_committed(self, run_id: str) -> bool:
        """Return True if the mark exists. Without it, the rows of that write are not there."""
        ...

    def forget(self, run_id: str) -> None:
        """Remove a mark. Called once the job has recorded the commit."""
        ...


@runtime_checkable
class PartSink(Protocol):
    """A sink whose output can be written in complete parts that are committed together."""

    def open_part(self, first_row: int) -> Writer:
        """Return a writer for one part. The names of parts sort by ``first_row``. Called in a worker."""
        ...


@runtime_checkable
class CachesAnswers(Protocol):
    """A model whose answers the ledger caches: always with True, never with False, with None if there is a ledger."""

    cache: bool | None


@runtime_checkable
class Priced(Protocol):
    """A model in a plan whose calls cost money.

    ``billed_as`` names the provider and the model in the account of the query; None if each row names its model.
    """

    @property
    def billed_as(self) -> tuple[str, str] | None: ...

    def check_price(self) -> None:
        """Raise InvalidArgumentError if the price of a call is unknown. Called before a query with a budget."""
        ...


@frozen
class WorkerContext:
    """The services of a pool for one handler: a cancel flag, a sink for failed rows, and the index of its worker."""

    is_cancelled: Callable[[], bool]
    record: Callable[[RowError], None]
    worker: int = 0


class Handler(Protocol):
    """Does the work of one stage in one worker. Built there, used by one thread at a time, closed by the pool."""

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return the output of one input: a batch, or an iterator of batches that the pool draws as memory allows.

        ``item`` is a batch, a ReadTask for a scan, or EndOfInput after the last batch of a relation; ``first_row`` is
        its position in the input of the stage.
        """
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the output. Called once, after the last input."""
        ...

    def close(self) -> None:
        """Release everything. Called once, also after an error."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A handler that its pool can stop from another thread."""

    def interrupt(self, *, is_busy: bool) -> None:
        """Make a running call return soon. Never blocks; called before ``close``."""
        ...


class Origin(NamedTuple):
    """The origin of consecutive rows of a bundle, in a query that tracks lineage.

    They are ``num_rows`` rows of the read ``source`` from ``start`` on, one for one. If ``start`` is None, they were
    made of the lot ``source``, a group of rows whose outputs cannot be traced row by row.
    """

    source: int
    start: int | None
    num_rows: int


task_origins: ContextVar[tuple[Origin, ...]] = ContextVar("penstock_task_origins", default=())
"""The origins of the rows of the present async task; empty in a query without lineage."""


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
    the driver can cut without touching data. ``origins`` is empty in a query without lineage.
    """

    handle: Any
    num_rows: int
    nbytes: int
    offset: int = 0
    origins: tuple[Origin, ...] = ()

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
        ...


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
    busy_s: float = 0.0  # spent by workers so far
    outputs: list[Bundle] = field(default_factory=list)  # produced, not yet passed on by the executor
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A message of a pool to the executor: a task has an output, is done, or failed.

    ``task`` is None for the outputs of ``finish``; the last of those has ``is_done``. ``errors`` are tolerated failed
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
        ...

    def finish(self) -> None:
        """Finish all handlers, emit their outputs, then a last Report. Called once, after the last task."""
        ...

    def close(self) -> None:
        """Stop at once and release threads, processes and memory. Returns when they are gone; may be called twice."""
        ...


@runtime_checkable
class DescribesTasks(Protocol):
    """A pool that can say where its tasks run."""

    def described_tasks(self) -> list[str]:
        """Return each task that is not done, with its worker, for an error message."""
        ...


class Subscriber(Protocol):
    """Receives events in order, on the driver's thread. It must return quickly and never raise."""

    def on_event(self, event: Event) -> None: ...


@runtime_checkable
class QuerySubscribers(Protocol):
    """An attached subscriber with an object of its own for each query: several queries may run at once."""

    def for_query(self) -> Subscriber:
        """Return the subscriber for the events of a new query."""
        ...


class QueryControl(Protocol):
    """Controls a running query, from any thread. After the end of the query its methods have no effect."""

    def set_paused(self, is_paused: bool) -> None:
        """Start no more tasks until it is called with False. Tasks that run go on to their end."""
        ...

    def cancel(self) -> None:
        """End the query with QueryCancelledError."""
        ...

    def limit_tasks(self, stage: int, max_running: int) -> None:
        """Let a stage run at most so many tasks at once, and at least one. Its pool may allow fewer."""
        ...


@runtime_checkable
class QueryController(Protocol):
    """A Subscriber that controls the query. It receives the control before the first event."""

    def on_control(self, control: QueryControl) -> None: ...


@runtime_checkable
class RowWatcher(Protocol):
    """A Subscriber that looks at rows."""

    def on_rows(self, stage: int, work: object, report: Report) -> None:
        """Look at the output of a task of a stage and at its failed rows. Keeps no batch, returns quickly."""
        ...


class Ledger(Protocol):
    """A durable log of finished calls, by key. Safe to use from several threads and processes at once.

    Each process of a query opens its own and closes it.
    """

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the keys that have one. Reads files; fastest with about 1,000 keys at a time."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value unless the key has one. Returns at once; the value is durable within 100 ms.

        Blocks while the disk is far behind. Raises LedgerError if values cannot be written; this one is then kept in
        memory, if there is room, and written when the disk works again.
        """
        ...

    def flush(self) -> None:
        """Return when all values are durable. Raises LedgerError on failure; may be called again."""
        ...

    def close(self) -> None:
        """Flush, then release everything, also if the flush raises. May be called twice."""
        ...

"""Every seam of the engine on one page. Each contract says who calls, whether it may block, and who closes.

Source -> ReadTask     where rows come from           io/, readers, users
Sink -> Writer         where rows go                  io/, users
Handler                the work of a stage, opened in a worker
WorkerPool             where handlers run             engine/pools/, engine/runners/ray
Subscriber             who is told what happens       observe/, users
Ledger                 what finished calls answered   cache/ledger/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from penstock.observe.events import Event, RowError
from penstock.types import Schema

if TYPE_CHECKING:
    import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a constant, for stores that filter in a language of their own."""

    column: str
    operator: Literal["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]
    value: Any = None  # of the column's type as Python has it; a tuple for "in", None for the last two


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a scan wants of its source.

    ``columns`` (None: all) and ``limit`` are hints: the engine selects and cuts again. ``predicate`` is only given to a
    source whose ``can_filter`` is true, and must then be applied to every row. ``conditions`` are parts of it as plain
    data: every row that passes the predicate fulfils all of them, so that a source may leave out those that do not.
    """

    columns: tuple[str, ...] | None = None
    predicate: pc.Expression | None = None
    limit: int | None = None
    conditions: tuple[Condition, ...] = ()


class ReadTask(Protocol):
    """A part of a source that one worker reads. Picklable; reading it twice gives the same rows."""

    num_rows: int | None  # before any predicate; None: not known
    nbytes: int | None  # an estimate of what it holds in memory; None: not known

    def read(self) -> Iterable[pa.RecordBatch]:
        """Give the rows as batches of moderate size, best as a generator, which is closed when no more are wanted.

        A ``pa.Table`` will do too. May block. The batches are drawn one at a time, each on whichever thread is free.
        """
        ...


@runtime_checkable
class NamedReadTask(Protocol):
    """A ``ReadTask`` that a job recognizes in a later run; other tasks are recognized by their number."""

    origin: tuple[str, str] | None
    """The input, as named by ``VersionedSource.versions``, and the part of it. No two tasks of one request have the
    same origin, and an unchanged part has the same one in each request. None: recognized by its number."""


@runtime_checkable
class Source(Protocol):
    """Where rows come from. Picklable, or at least its tasks are."""

    name: str  # shown in plans and errors
    can_filter: bool  # whether read_tasks applies ReadRequest.predicate exactly

    def schema(self) -> Schema:
        """Return the columns. Called when the plan is built: may open one file, never reads them all."""
        ...

    def read_tasks(self, request: ReadRequest) -> Iterator[ReadTask]:
        """Yield the tasks in row order, lazily. Called in the user's process, once a run."""
        ...


@runtime_checkable
class VersionedSource(Protocol):
    """A source that knows the versions of its inputs, so that a later run of a job can tell which of them changed.

    A source without it counts by all that can be pickled of it.
    """

    def versions(self) -> Mapping[str, str]:
        """Return what is read, by name, each with something that changes when it does, such as size and time.

        Names and versions are shown to users and kept: they hold no credentials. May block; called once a run.
        """
        ...


@runtime_checkable
class SourceOptions(Protocol):
    """A source that names the options it was made with; a source without it counts by the code of its class."""

    def options(self) -> Mapping[str, Any]:
        """Return how the source is read, by the names of the reader's arguments."""
        ...


class Writer(Protocol):
    """One worker's way into a sink. Used by one thread at a time."""

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]] | None:
        """Take a batch; return a record for each piece finished by it, such as a closed file. None: no piece."""
        ...

    def finish(self) -> Iterable[dict[str, Any]] | None:
        """Flush what is held and return its records, as ``write`` does. Called once, unless the query fails."""
        ...

    def close(self) -> None:
        """Release handles whatever happened; called last, also after ``finish``."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where rows go. Nothing is visible to readers before ``commit``."""

    def start(self) -> None:
        """Check the target and make room for staging. Called once, before any row is read."""
        ...

    def open(self) -> Writer:
        """Return a writer. Called in each worker; the sink itself is what travels there, so it is picklable."""
        ...

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table | None:
        """Make everything staged visible at once and return what the user is shown; None: nothing.

        Called once, after all writers.
        """
        ...

    def abort(self) -> None:
        """Remove what was staged. Called instead of ``commit`` when the query failed or was cancelled."""
        ...


@runtime_checkable
class ErrorSink(Protocol):
    """A sink that also keeps the rows that failed."""

    def keep_errors(self, errors: pa.RecordBatchReader) -> None:
        """Stage the rows that failed, which may be more than memory holds.

        Called before ``commit``, which makes them visible, and only if there are any.
        """
        ...


@runtime_checkable
class NamedSink(Protocol):
    """A sink with a name for messages, which also identifies its target; other sinks are named by their class."""

    name: str


@runtime_checkable
class ModeSink(Protocol):
    """A sink that treats existing data by its mode: ``create``, ``append`` or ``overwrite``; other sinks overwrite."""

    mode: str


@runtime_checkable
class RunSink(Protocol):
    """A sink that stages rows under the id of its run."""

    run_id: str

    def discard(self, run_id: str) -> None:
        """Remove the rows that a run left staged when it was killed."""
        ...


@runtime_checkable
class OnceSink(Protocol):
    """A sink whose commit leaves a mark, so that a job that was killed just then does not append twice."""

    def marked(self, run_id: str) -> Sink:
        """Return the sink of a write that is known by ``run_id``, whose commit leaves its mark as it shows the rows."""
        ...

    def has_committed(self, run_id: str) -> bool:
        """Say whether there is the mark of a write: where there is none, its rows are not there."""
        ...

    def forget(self, run_id: str) -> None:
        """Remove the mark of a write, as it is noted elsewhere what became of it."""
        ...


@runtime_checkable
class PartSink(Protocol):
    """A sink whose output can be made in parts, each complete in itself, which are committed together."""

    def open_part(self, first_row: int) -> Writer:
        """Return a writer for one part, whose names sort by ``first_row``. Called in a worker."""
        ...


@runtime_checkable
class Named(Protocol):
    """Something with a name for plans and errors. A source must have one, a sink may."""

    name: str


@runtime_checkable
class CachesAnswers(Protocol):
    """A model whose answers the ledger caches: always with True, never with False, with None if there is a ledger."""

    cache: bool | None


@runtime_checkable
class Priced(Protocol):
    """A model in a plan whose calls cost money."""

    def check_price(self) -> None:
        """Raise InvalidArgumentError if the price of a call is unknown. Called before a query with a budget."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The services of a pool for one handler: a cancel flag, a sink for failed rows, and the index of its worker."""

    is_cancelled: Callable[[], bool]
    record: Callable[[RowError], None]
    worker: int = 0


class Handler(Protocol):
    """The work of one stage in one worker: built there, used by one thread at a time, closed by the pool."""

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return what one input gives: one batch, or an iterator of several that is drawn as there is room for them.

        ``item`` is a batch, or a ReadTask for a scan; ``first_row`` is its position in the stage's input.
        """
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield what the handler still holds once no input is left."""
        ...

    def close(self) -> None:
        """Release everything. Called exactly once, also after an error."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A handler that its pool can stop from another thread."""

    def interrupt(self, *, is_busy: bool) -> None:
        """Make a running call return soon. Never blocks; called before ``close``."""
        ...


class Origin(NamedTuple):
    """Where rows that follow each other in a bundle come from, in a query that keeps account of it.

    They are the ``num_rows`` rows of the read ``source`` from ``start`` on, one for one; or, where ``start`` is None,
    rows that were made of the lot ``source``: of several rows together, in a way that cannot be told row by row.
    """

    source: int
    start: int | None
    num_rows: int


task_origins: ContextVar[tuple[Origin, ...]] = ContextVar("penstock_task_origins", default=())
"""Where the rows of the task come from that an async handler works on; empty where nobody keeps account of it."""


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
    """A batch of rows as the executor sees it: a handle it passes on, and what it must know to decide.

    Locally ``handle`` is the RecordBatch, on Ray an ObjectRef. ``offset`` and ``num_rows`` select a part of what the
    handle holds, so that the driver can cut without touching data. ``origins`` is empty where nobody asks for it.
    """

    handle: Any
    num_rows: int
    nbytes: int
    offset: int = 0
    origins: tuple[Origin, ...] = ()

    def slice(self, offset: int, num_rows: int) -> Bundle:
        """Return a part; its bytes are taken to be in proportion."""
        if offset == 0 and num_rows == self.num_rows:
            return self
        nbytes = self.nbytes * num_rows // max(self.num_rows, 1)
        origins = cut_origins(self.origins, offset, num_rows) if self.origins else ()
        return Bundle(self.handle, num_rows, nbytes, self.offset + offset, origins)


@dataclass(slots=True, eq=False)
class Task:
    """One input on its way through a stage: a ReadTask, or bundles that the worker joins into one batch."""

    item: ReadTask | tuple[Bundle, ...]
    first_row: int
    nbytes: int
    num_rows: int = 0
    busy_s: float = 0.0  # what workers have spent on it so far
    outputs: list[Bundle] = field(default_factory=list)  # given, not yet passed on by the executor
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a pool tells the executor of a task: an output, that it is done, or both; or that it failed.

    ``task`` is None for the outputs of ``finish``; the last of those has ``is_done``. ``errors`` are the rows that
    failed on the way to this output, and were tolerated. ``wanted_cpu_s`` is for how much of ``busy_s`` the worker had
    a core or waited for one, where the pool measures it.
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
    """Runs one stage's handlers on tasks. Made with a thread-safe ``emit``; no method blocks but ``close``.

    A task gives its outputs one at a time: after each the pool emits a Report and lets the task rest until it is
    submitted again, so the executor decides when a worker may produce more.
    """

    capacity: int  # how many tasks it can hold at once, resting ones included

    def submit(self, task: Task) -> None:
        """Start a task, or carry on one that rests. Never called for more than ``capacity`` tasks at once."""
        ...

    def finish(self) -> None:
        """No task will come any more: have every worker give what it holds, then emit a last Report."""
        ...

    def close(self) -> None:
        """Stop at once and release threads, processes and memory; returns when they are gone. May be called twice."""
        ...


class Subscriber(Protocol):
    """Is told of events as they happen, in order, on the driver's thread; must return quickly and never raise."""

    def on_event(self, event: Event) -> None: ...


class Ledger(Protocol):
    """A durable log of finished calls, by key. Safe to be used by several threads and processes at once.

    Opened and closed by the query that uses it, in each process that does.
    """

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that have one. Reads files: quickest for about 1,000 keys at a time."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value for a key that has none: the first one stays. Returns at once; durable within 100 ms.

        Blocks while the disk is far behind, and raises LedgerError when it refuses and memory is full of what waits.
        """
        ...

    def flush(self) -> None:
        """Return when everything put so far is durable; raises LedgerError if that failed, and may be called again."""
        ...

    def close(self) -> None:
        """Flush, then let go of everything, also if the flush raises. May be called twice."""
        ...

"""The interfaces of sources, sinks and stores. Each contract says who calls, whether a call may block, and who closes.

Source -> ReadTask     gives rows                        io/, users
Sink -> Writer         takes rows                        io/, users
Subscriber             receives events                   observe/, users
Ledger                 stores answers of finished calls  cache/ledger/

An optional ability of a source, sink, subscriber or model is a protocol of its own. The interfaces inside the engine
are in ``penstock/contracts.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import pyarrow as pa

from penstock.errors import shortened
from penstock.types import Schema
from penstock.types.frozen import frozen
from penstock.types.row_numbers import RowPlace

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from penstock.events.events import Event


@frozen
class Condition:
    """One comparison of a column with a constant, for stores with a query language of their own."""

    column: str
    operator: Literal["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]
    value: Any = None  # a Python value of the column's type; a tuple for "in", None for the last two

    def __str__(self) -> str:
        return f"{self.column} {self.operator}{'' if self.value is None else f' {shortened(repr(self.value))}'}"


@frozen
class ReadRequest:
    """The rows and columns that a scan needs.

    ``columns`` (None: all) and ``limit`` are hints: the engine selects and cuts again. Only a source with
    ``can_filter`` gets a ``predicate``, and must apply it to every row. ``conditions`` are the same as plain data: the
    predicate is true where all of them are. Only a ``NumberedSource`` gets ``first_input``.
    """

    columns: tuple[str, ...] | None = None
    predicate: pc.Expression | None = None
    limit: int | None = None
    conditions: tuple[Condition, ...] = ()
    first_input: int | None = None


class ReadTask(Protocol):
    """A part of a source that one worker reads. Picklable; reading it twice gives the same rows."""

    num_rows: int | None  # before any predicate; None if unknown
    nbytes: int | None  # estimated size in memory; None if unknown

    def read(self) -> Iterable[pa.RecordBatch]:
        """Yield the rows as batches of moderate size, or as ``pa.Table``. May block.

        The engine draws one batch at a time, on any thread, and closes a generator that it no longer needs.
        """


@runtime_checkable
class NamedReadTask(Protocol):
    """A ``ReadTask`` that a job recognizes in a later run; other tasks are recognized by their number."""

    origin: tuple[str, str] | None
    """The input, as named by ``VersionedSource.versions``, and the part of it. No two tasks of one request have the
    same origin, and an unchanged part has the same one in each request. None: recognized by its number."""


@runtime_checkable
class ConsecutiveReadTask(Protocol):
    """A ``ReadTask`` whose output may be all rows of its input, one after the other."""

    first_place: RowPlace | None  # of its first row in the input; None if it leaves out rows


@runtime_checkable
class SmallReadTask(Protocol):
    """A ``ReadTask`` that may take less time to read than to schedule; one worker reads several as one task."""

    is_small: bool

    def read_with(self, others: Sequence[Any]) -> Iterable[pa.RecordBatch]:
        """Yield the rows of this task and then of ``others``, small tasks of the same request, in few batches."""


@runtime_checkable
class Source(Protocol):
    """A provider of rows. Its tasks must be picklable."""

    name: str  # shown in plans and errors
    can_filter: bool  # read_tasks applies ReadRequest.predicate exactly

    def schema(self) -> Schema:
        """Return the columns. Called when the plan is built; may open one file, never reads all."""

    def read_tasks(self, request: ReadRequest) -> Iterator[ReadTask]:
        """Yield the tasks in row order, lazily. Called once per run, in the user's process."""


@runtime_checkable
class VersionedSource(Protocol):
    """A source that knows the versions of its inputs, so that a later run of a job finds the changed inputs.

    A source without it is identified by everything in it that can be pickled.
    """

    def versions(self) -> Mapping[str, str]:
        """Return the version of each input by name: a text that changes with the input, such as its size and time.

        Users see names and versions, so they hold no credentials. May block; called once per run.
        """


@frozen
class DuckdbTable:
    """The text of a table in the SQL of DuckDB, and the files that it reads."""

    text: str
    paths: tuple[str, ...]


@runtime_checkable
class DuckdbSource(Protocol):
    """A source that DuckDB may be able to read by itself."""

    def sql_table(self, columns: Sequence[str]) -> DuckdbTable | None:
        """Return a table with these columns; None if DuckDB might find other values, or gains nothing. May block."""


@runtime_checkable
class CountableSource(Protocol):
    """A source that counts its rows faster than it reads any column, when a request has no columns."""

    can_count: bool


@runtime_checkable
class NumberedSource(Protocol):
    """A source that numbers its rows, so that a failed row can be found in the input.

    If ``ReadRequest.first_input`` is set, its batches end with the column of ``types/row_numbers.py``: the numbers that
    the rows have before any predicate. The first of its inputs has the number ``first_input``.
    """

    def row_inputs(self) -> Sequence[object]:
        """Return the inputs whose rows are counted from 0, such as files; their text names them. Empty if it cannot."""


@runtime_checkable
class SourceOptions(Protocol):
    """A source that names the options it was made with. Any other source is identified by the code of its class."""

    def options(self) -> Mapping[str, Any]:
        """Return the options that the source is read with, under the names of the reader's arguments."""


class Writer(Protocol):
    """Writes the rows of one worker into a sink. Used by one thread at a time."""

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]] | None:
        """Write a batch. Return a record for each piece that it completed, such as a closed file, or None."""

    def finish(self) -> Iterable[dict[str, Any]] | None:
        """Flush the rest and return its records, as ``write`` does. Called once, unless the query fails."""

    def close(self) -> None:
        """Release handles. Called last, after ``finish`` or an error."""


@runtime_checkable
class Sink(Protocol):
    """A destination of rows. Readers see nothing before ``commit``."""

    def start(self) -> None:
        """Check the target and prepare staging. Called once, before any row is read."""

    def open(self) -> Writer:
        """Return a writer. Called in each worker, to which the sink is pickled."""

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table | None:
        """Make everything staged visible at once. Return a table to show to the user, or None.

        Called once, after all writers are closed.
        """

    def abort(self) -> None:
        """Remove everything staged. Called instead of ``commit`` if the query fails or is cancelled."""


@runtime_checkable
class ErrorSink(Protocol):
    """A sink that also stores the failed rows."""

    def keep_errors(self, errors: pa.RecordBatchReader) -> None:
        """Stage the failed rows, which may exceed memory. Called before ``commit``, and only if there are any."""


@runtime_checkable
class ShortNamed(Protocol):
    """A source or sink with a name of a few words for its stage, such as ``reviews.parquet``, without secrets."""

    short_name: str


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


@runtime_checkable
class OnceSink(Protocol):
    """A sink whose commit leaves a mark, so that a job does not append twice if it is killed just then."""

    def marked(self, run_id: str) -> Sink:
        """Return a sink whose commit leaves the mark ``run_id`` in the same transaction as the rows."""

    def has_committed(self, run_id: str) -> bool:
        """Return True if the mark exists. Without it, the rows of that write are not there."""

    def forget(self, run_id: str) -> None:
        """Remove a mark. Called once the job has recorded the commit."""


@runtime_checkable
class PartSink(Protocol):
    """A sink whose output can be written in complete parts that are committed together."""

    def open_part(self, first_row: int) -> Writer:
        """Return a writer for one part. The names of parts sort by ``first_row``. Called in a worker."""


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


class Subscriber(Protocol):
    """Receives events in order, on the driver's thread. It must return quickly and never raise."""

    def on_event(self, event: Event) -> None: ...


@runtime_checkable
class QuerySubscribers(Protocol):
    """An attached subscriber with an object of its own for each query: several queries may run at once."""

    def for_query(self) -> Subscriber:
        """Return the subscriber for the events of a new query."""


class Ledger(Protocol):
    """A durable log of finished calls, by key. Safe to use from several threads and processes at once.

    Each process of a query opens its own and closes it.
    """

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the keys that have one. Reads files; fastest with about 1,000 keys at a time."""

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store the values of keys that have none yet. Returns at once; the values are durable within 100 ms.

        Blocks while the disk is far behind. Raises LedgerError if values cannot be written; these are then kept in
        memory, if there is room, and written when the disk works again.
        """

    def flush(self) -> None:
        """Return when all values are durable. Raises LedgerError on failure; may be called again."""

    def close(self) -> None:
        """Flush, then release everything, also if the flush raises. May be called twice."""

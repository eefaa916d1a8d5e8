"""Write a table of a database: rows go into a table beside it, which takes its place in one transaction."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.errors import ColumnNotFoundError, InvalidArgumentError, OutputExistsError, WriteError, did_you_mean
from penstock.io.commit.staging import new_run_id
from penstock.io.conform import ColumnMismatchError, conform_batch
from penstock.io.tables.databases import Connect, Database, Session, TableName
from penstock.io.tables.sqlite_staging import is_attached
from penstock.io.writer import MODES
from penstock.types import DataType, Schema

_sqlite_lock = (
    threading.Lock()
)  # SQLite has one writer at a time; waiting here is cheaper than asking it again and again

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SqlSink:
    """A ``Sink`` into one table; several writers at once, each on a connection of its own.

    The rows go into the table ``penstock_<run>`` of the same schema; for SQLite, into a file of that ending beside the
    database. At the end it is renamed, or its rows are added to the table that is there, in one transaction: readers
    see all of them or none. ``overwrite`` drops the old table in that transaction, with its indexes and grants. A
    process that is killed leaves what it staged behind.
    """

    database: Database
    table: TableName
    mode: str
    schema: Schema
    run_id: str = field(default_factory=new_run_id)
    has_mark: bool = False  # whether the rows come with an empty table ``penstock_<run>_done``, to be told by

    @property
    def name(self) -> str:
        return f"table {self.table} in {self.database.shown}"

    def staging(self, session: Session) -> TableName:
        """Return where the rows are put meanwhile. Called once for each session."""
        return session.staging(self.table, self._staged)

    @property
    def _staged(self) -> str:
        return f"penstock_{self.run_id}".lower().replace("-", "_")

    @property
    def _mark(self) -> TableName:
        return self.table.beside(f"{self._staged}_done")

    def start(self) -> None:
        with self.database.session(WriteError, f"Writing table {self.table}") as session:
            existing = session.table_columns(self.table)
            if self.mode == "create" and existing is not None:
                raise OutputExistsError(
                    f"Table {str(self.table)!r} exists already in {self.database.shown}; "
                    "use mode='overwrite' to replace it or mode='append' to add to it."
                )
            for name in self.schema.names if self.mode == "append" and existing is not None else ():
                if name not in (existing or ()):
                    raise ColumnNotFoundError(name, existing or (), f"table {self.table}")
            empty = session.storable(pa.RecordBatch.from_pylist([], schema=self.schema.to_arrow()))
            session.create(self.staging(session), empty.schema)

    def open(self) -> SqlWriter:
        return SqlWriter(self)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        with self.database.session(WriteError, f"Writing table {self.table}") as session:
            staging = self.staging(session)
            session.run(self._statements(session, staging))
            with self._tidying(self._staged):
                session.discard(staging)
        rows = sum(record["rows"] for record in records)
        return pa.table({"table": [str(self.table)], "rows": pa.array([rows], pa.int64())})

    def marked(self, run_id: str) -> SqlSink:
        return replace(self, run_id=run_id, has_mark=True)

    def has_committed(self, run_id: str) -> bool:
        with self.database.session(WriteError, f"Writing table {self.table}") as session:
            return session.table_columns(self.marked(run_id)._mark) is not None

    def forget(self, run_id: str) -> None:
        mark = self.marked(run_id)._mark
        with self._tidying(mark.name), self.database.session(WriteError, f"Removing table {mark}") as session:
            session.run([f"DROP TABLE IF EXISTS {mark.quoted(session)}"])

    def abort(self) -> None:
        with (
            self._tidying(self._staged),
            self.database.session(WriteError, f"Removing table {self._staged}") as session,
        ):
            session.discard(self.staging(session))

    @contextlib.contextmanager
    def _tidying(self, table: str) -> Iterator[None]:
        """Let what cannot be removed stay: whether the rows were written is settled by then."""
        try:
            with self.database.errors(WriteError, f"Removing table {table}"):
                yield
        except WriteError as exc:
            logger.warning("The table %s is left behind: %s", table, exc)

    def _statements(self, session: Session, staging: TableName) -> list[str]:
        is_new = self.mode != "append" or session.table_columns(self.table) is None
        moved = session.moved(staging, self.table, self.schema.names, is_new)
        if self.mode == "overwrite":
            return [f"DROP TABLE IF EXISTS {self.table.quoted(session)}", *moved]
        return [*moved, f"CREATE TABLE {self._mark.quoted(session)} (done INTEGER)"] if self.has_mark else moved


class SqlWriter:
    """One connection that adds batches to the staged table. It connects when the first rows come."""

    def __init__(self, sink: SqlSink) -> None:
        self._sink = sink
        self._session: Session | None = None
        self._staging: TableName | None = None
        self._num_rows = 0

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        if not batch.num_rows:
            return []
        with self._sink.database.errors(WriteError, f"Writing table {self._sink.table}"):
            session = self._session = self._session or self._sink.database.open()
            staging = self._staging = self._staging or self._sink.staging(session)
            rows = session.storable(self._conformed(batch))
            with _sqlite_lock if is_attached(staging) else contextlib.nullcontext():
                session.insert(staging, rows)
        self._num_rows += batch.num_rows
        return []

    def finish(self) -> Iterable[dict[str, Any]]:
        return [{"rows": self._num_rows}]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return conform_batch(batch, self._sink.schema.to_arrow(), is_strict=True)
        except ColumnMismatchError as exc:
            raise WriteError(
                f"Writing table {self._sink.table}: column {exc.column!r} is {DataType(exc.found)} in a batch, "
                f"where {DataType(exc.wanted)} was promised."
            ) from exc


def sql_sink(table_name: str, conn: Connect, *, mode: str, schema: Schema) -> SqlSink:
    """Return the sink for a table as the user names it."""
    if mode not in MODES:
        raise InvalidArgumentError(
            f"mode={mode!r} is not known; use one of {', '.join(MODES)}.{did_you_mean(str(mode), MODES)}"
        )
    if not len(schema):
        raise InvalidArgumentError("There are no columns to write; select at least one.")
    return SqlSink(Database.of(conn), TableName.parsed(table_name), mode, schema)

"""Write a table of a database: stage the rows, then show all of them in one transaction."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.errors import ColumnNotFoundError, InvalidArgumentError, OutputExistsError, WriteError, check_choice
from penstock.io.commit.output import WRITE_MODES, new_run_id
from penstock.io.match_schema import conform_rows
from penstock.io.tables.sql.database_spec import Connect, Database
from penstock.io.tables.sql.driver import Session, TableName
from penstock.protocols import Writer
from penstock.storage.urls import short_path
from penstock.types import Schema

logger = logging.getLogger(__name__)

PART = pa.field("penstock_part", pa.int64())  # of a staged row: the first row of the part that it belongs to


@dataclass(frozen=True)
class SqlSink:
    """A ``Sink`` into one table; several writers load rows at once, each on its own connection.

    The rows go into the table ``penstock_<run>`` of the same schema. The commit is one transaction, so readers see all
    rows or none: it renames that table, or adds its rows to the existing one. ``overwrite`` drops the old table, with
    its indexes and grants. A process that is killed leaves its staged rows behind.

    SQLite commits a writer only when all readers of the file are done, and a query that reads the file it writes would
    wait for itself. So its writers put rows into Arrow files beside the database, and the commit loads them.
    """

    database: Database
    table: TableName
    mode: str
    schema: Schema
    run_id: str = field(default_factory=new_run_id)
    has_mark: bool = False  # the commit also creates the empty table ``penstock_<run>_done`` as its mark

    @property
    def name(self) -> str:
        return f"table {self.table} in {self.database.label}"

    @property
    def short_name(self) -> str:
        return short_path(f"table {self.table}")

    @property
    def staging(self) -> TableName:
        """The table that the rows are loaded into before the commit."""
        return self.table.beside(f"penstock_{self.run_id}".lower().replace("-", "_"))

    @property
    def mark(self) -> TableName:
        return self.table.beside(f"{self.staging.name}_done")

    def marked(self, run_id: str) -> SqlSink:
        return replace(self, run_id=run_id, has_mark=True)

    def has_committed(self, run_id: str) -> bool:
        with self.session() as session:
            return session.table_columns(self.marked(run_id).mark) is not None

    def forget(self, run_id: str) -> None:
        mark = self.marked(run_id).mark
        with self._cleanup(mark) as session:
            session.execute(f"DROP TABLE IF EXISTS {mark.quoted(session.dialect)}")

    def start(self) -> None:
        with self.session() as session:
            existing = session.table_columns(self.table)
            if self.mode == "create" and existing is not None:
                raise OutputExistsError(
                    f"Table {str(self.table)!r} exists already in {self.database.label}; "
                    "use mode='overwrite' to replace it or mode='append' to add to it."
                )
            for name in self.schema.names if self.mode == "append" and existing is not None else ():
                if name not in (existing or ()):
                    raise ColumnNotFoundError(name, existing or (), f"table {self.table}")
            if session.dialect.kind != "sqlite":
                self._create_staging(session)
                session.execute()

    def open(self) -> Writer:
        return SqlWriter(self)

    def open_part(self, first_row: int) -> Writer:
        return SqlWriter(self, first_row)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        num_rows = sum(record["rows"] for record in records)
        with self.session() as session:
            statements = self._statements(session)
            if session.dialect.kind == "sqlite":
                self._create_staging(session)
                for record in records:
                    for batch in _staged_batches(record["file"]):
                        session.load(self.staging, batch)
            else:
                self._check_staged(session, num_rows)
            session.execute(*statements)
        self.abort()
        return pa.table({"table": [str(self.table)], "rows": pa.array([num_rows], pa.int64())})

    def discard(self, run_id: str) -> None:
        replace(self, run_id=run_id).abort()

    def abort(self) -> None:
        """Remove the staged rows."""
        with self._cleanup(self.staging) as session:
            if session.dialect.kind == "sqlite":
                for file in glob.glob(f"{glob.escape(self.staged_files(session))}-*"):
                    os.remove(file)
            else:
                session.execute(f"DROP TABLE IF EXISTS {self.staging.quoted(session.dialect)}")

    def session(self) -> contextlib.AbstractContextManager[Session]:
        return self.database.session(WriteError, f"Writing table {self.table}")

    def staged_files(self, session: Session) -> str:
        """Return the beginning of the paths of staged files, beside the SQLite database."""
        query = "SELECT file FROM pragma_database_list WHERE name = 'main'"
        [path] = pa.Table.from_batches(session.batches(query)).column("file").to_pylist()
        return f"{path or os.path.join(tempfile.gettempdir(), 'memory')}-{self.staging.name}"

    def _create_staging(self, session: Session) -> None:
        schema = self.schema.to_arrow()
        schema = schema if session.dialect.kind == "sqlite" else schema.append(PART)
        session.load(self.staging, pa.RecordBatch.from_pylist([], schema=schema), create=True)

    def _check_staged(self, session: Session, num_rows: int) -> None:
        """Raise WriteError if a writer that was believed dead has staged its part after another one did."""
        counted = session.batches(f"SELECT COUNT(*) AS num_rows FROM {self.staging.quoted(session.dialect)}")
        if pa.Table.from_batches(counted).column(0).to_pylist() != [num_rows]:
            raise WriteError(
                f"Writing table {self.table}: a worker that was lost went on and staged rows a second time. Nothing "
                "is written; run the query again."
            )

    def _statements(self, session: Session) -> list[str]:
        """Return the statements that show the staged rows."""
        dialect = session.dialect
        staging, table = self.staging.quoted(dialect), self.table.quoted(dialect)
        mark = [f"CREATE TABLE {self.mark.quoted(dialect)} (done INTEGER)"] if self.has_mark else []
        if self.mode == "append" and session.table_columns(self.table) is not None:
            columns = ", ".join(map(dialect.quoted, self.schema.names))
            copy = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging}"
            return [copy, f"DROP TABLE {staging}", *mark]
        changes = [f"DROP TABLE IF EXISTS {table}"] if self.mode == "overwrite" else []
        if dialect.kind != "sqlite":
            changes.append(f"ALTER TABLE {staging} DROP COLUMN {dialect.quoted(PART.name)}")
        return [*changes, f"ALTER TABLE {staging} RENAME TO {dialect.quoted(self.table.name)}", *mark]

    @contextlib.contextmanager
    def _cleanup(self, table: TableName) -> Iterator[Session]:
        """Log failures instead of raising them, because the rows are already committed or abandoned."""
        try:
            with self.database.session(WriteError, f"Removing table {table}") as session:
                yield session
        except WriteError as exc:
            logger.warning("The table %s is left behind: %s", table, exc)


class SqlWriter:
    """Stages batches: in a table of the database, or for SQLite in a file. Connects when the first rows come.

    A part is one transaction, which replaces what a writer that died has staged of it.
    """

    def __init__(self, sink: SqlSink, part: int | None = None) -> None:
        self._sink = sink
        self._part = part
        self._schema = sink.schema.to_arrow()
        self._resources = contextlib.ExitStack()
        self._session: Session | None = None
        self._file: Any = None
        self._path: str | None = None
        self._num_rows = self._nbytes = 0

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        if not batch.num_rows:
            return []
        rows = conform_rows(batch, self._schema, str(self._sink.table))
        with self._sink.database.errors(WriteError, f"Writing table {self._sink.table}"):
            if self._session is None and self._file is None:
                self._open()
            if self._session is not None:
                parts = pa.repeat(pa.scalar(self._part, PART.type), rows.num_rows)
                self._session.load(self._sink.staging, rows.append_column(PART, parts))
                if self._part is None:
                    self._session.execute()
            else:
                self._file.write_batch(rows)
        self._num_rows += batch.num_rows
        self._nbytes += batch.nbytes
        return []

    def finish(self) -> Iterable[dict[str, Any]]:
        if self._session is not None:
            with self._sink.database.errors(WriteError, f"Writing table {self._sink.table}"):
                self._session.execute()
        self.close()
        return [{"rows": self._num_rows, "nbytes": self._nbytes, "file": self._path}]

    def close(self) -> None:
        self._resources.close()

    def _open(self) -> None:
        session = self._resources.enter_context(self._sink.session())
        if session.dialect.kind != "sqlite":
            self._session = session
            if self._part is not None:
                staging, part = self._sink.staging.quoted(session.dialect), session.dialect.quoted(PART.name)
                session.execute(f"DELETE FROM {staging} WHERE {part} = {self._part}")
            return
        self._path = f"{self._sink.staged_files(session)}-{uuid.uuid4().hex}"
        self._resources.close()  # an open connection may hold a lock on the database
        self._file = self._resources.enter_context(pa.ipc.new_file(self._path, self._schema))


def _staged_batches(path: str | None) -> Iterator[pa.RecordBatch]:
    if path is not None:
        with pa.memory_map(path) as content, pa.ipc.open_file(content) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def sql_sink(table_name: str, conn: Connect, *, mode: str, schema: Schema) -> SqlSink:
    """Return the sink for the user's arguments."""
    check_choice("mode", mode, WRITE_MODES)
    if not len(schema):
        raise InvalidArgumentError("There are no columns to write; select at least one.")
    return SqlSink(Database.of(conn), TableName.parsed(table_name), mode, schema)

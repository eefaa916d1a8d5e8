"""Databases that speak Arrow, through ADBC: PostgreSQL by binary COPY, SQLite in the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import ReadError
from penstock.io.batches import BATCH_ROWS, rows_per_batch
from penstock.io.formats.json import json_texts
from penstock.io.tables.databases import Described, Dialect, ResultColumn, TableName, nested
from penstock.io.tables.sqlite_staging import StagesTables
from penstock.types import normalize_batch
from penstock.types.normalize import normal_type

SAMPLE_ROWS = 1000  # what SQLite's columns, which have no types of their own, are judged by
LOCK_TIMEOUT_MS = 60_000  # how long one writer waits for another where only one may write, as in SQLite

_VIEW = "penstock_declared"
# By SQLite's own rules of affinity; dates, times and JSON it keeps as text.
_DECLARED: dict[tuple[str, ...], pa.DataType] = {
    ("CHAR", "CLOB", "TEXT", "DATE", "TIME", "JSON"): pa.string(),
    ("BLOB",): pa.binary(),
    ("REAL", "FLOA", "DOUB"): pa.float64(),
}
# What PostgreSQL has and Arrow has not, or ADBC does not read right, comes as text.
_TEXT_TYPES = {"uuid", "interval", "money", "record"}


class AdbcSession(StagesTables):
    """One connection of an ADBC driver."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self.dialect = dialect
        self.is_sqlite = dialect == "sqlite"
        self._connection = connection
        if dialect == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_MS}")
                cursor.fetchall()

    def describe(self, query: str) -> Described:
        if self.dialect == "sqlite":
            with contextlib.closing(self._stream(query, SAMPLE_ROWS)) as batches:  # type: ignore[type-var]
                sample = next(batches)
            types = [normal_type(found.type) for found in sample.schema]
            if any(column.null_count == sample.num_rows for column in sample.columns):
                types = self._declared(query, sample, types)
            columns = map(ResultColumn, sample.schema.names, types)
            return Described(tuple(columns), rows_per_batch(max(sample.num_rows, 1), sample.nbytes))
        with self._connection.cursor() as cursor:
            return Described(tuple(_result_column(found) for found in cursor.adbc_execute_schema(query)))

    def _declared(self, query: str, sample: pa.RecordBatch, types: list[pa.DataType]) -> list[pa.DataType]:
        """Return the types with those that SQLite's tables declare where the sample has no value to judge by.

        The driver does not tell them; SQLite does of a view, which is how the query is put to it for a moment.
        """
        import adbc_driver_manager

        try:
            self._execute(f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM {nested(query)}")
            declared = [row["type"] for row in self.rows(f"PRAGMA temp.table_info({_VIEW})")]
            self._execute(f"DROP VIEW temp.{_VIEW}")
        except adbc_driver_manager.Error:  # not every statement that gives rows can be a view
            return types
        is_unknown = [column.null_count == sample.num_rows for column in sample.columns]
        return [
            declared_type(name, dtype) if judge else dtype
            for name, dtype, judge in zip(declared, types, is_unknown, strict=True)
        ]

    def batches(
        self, query: str, batch_rows: int | None = None, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        if self.dialect == "postgresql":
            yield from map(_finite, self._stream(query, batch_rows))
            return
        if self.dialect != "sqlite" or schema is None:
            yield from self._stream(query, batch_rows)
            return
        # The driver takes the types from the first rows, which may all be null: so the first one is ours.
        columns = ", ".join(f"{_sample_value(found.type)} AS {self.quoted(found.name)}" for found in schema)
        typed = f"SELECT {columns} UNION ALL SELECT * FROM {nested(query)}"
        num_ours = 1
        for batch in self._stream(typed, batch_rows):
            yield batch.slice(num_ours)
            num_ours = 0

    def _stream(self, query: str, batch_rows: int | None) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            if self.dialect == "sqlite":
                rows = str(batch_rows or BATCH_ROWS)
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": rows})
            cursor.execute(f"{query}\n")  # PostgreSQL is sent it within COPY (...): a comment at its end ends here
            with cursor.fetch_record_batch() as reader:
                is_empty = True
                for batch in reader:
                    is_empty = False
                    yield batch
                if is_empty:  # it still has columns
                    yield pa.RecordBatch.from_pylist([], schema=reader.schema)

    def create(self, table: TableName, schema: pa.Schema) -> None:
        self._ingest(table, pa.RecordBatch.from_pylist([], schema=schema), "create")
        decimals = [column for column in schema if pt.is_decimal(column.type)]
        for column in decimals if self.dialect == "postgresql" else ():
            wanted = f"numeric({column.type.precision}, {column.type.scale})"
            self._execute(f"ALTER TABLE {table.quoted(self)} ALTER COLUMN {self.quoted(column.name)} TYPE {wanted}")
        self._connection.commit()

    def insert(self, table: TableName, batch: pa.RecordBatch) -> None:
        self._ingest(table, batch, "append")
        self._connection.commit()

    def run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._execute(statement)
        self._connection.commit()

    def table_columns(self, table: TableName) -> list[str] | None:
        import adbc_driver_manager

        place = "catalog_filter" if self.dialect == "sqlite" else "db_schema_filter"  # SQLite has no schemas
        try:
            return list(self._connection.adbc_get_table_schema(table.name, **{place: table.schema}).names)
        except adbc_driver_manager.Error as exc:
            if exc.status_code != adbc_driver_manager.AdbcStatusCode.NOT_FOUND:
                raise
            self._connection.rollback()
            return None

    def storable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        make = _for_sqlite if self.dialect == "sqlite" else _for_postgresql
        return pa.RecordBatch.from_arrays([make(column) for column in batch.columns], names=batch.schema.names)

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it failed already, and that is what the user must see
            self._connection.rollback()
        self._connection.close()

    def _ingest(self, table: TableName, batch: pa.RecordBatch, mode: str) -> None:
        with self._connection.cursor() as cursor:
            place = "catalog_name" if self.dialect == "sqlite" else "db_schema_name"
            cursor.adbc_ingest(table.name, batch, mode=mode, **{place: table.schema})

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return what a statement gives."""
        rows: list[dict[str, Any]] = pa.Table.from_batches(self._stream(query, None)).to_pylist()
        return rows

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)


def declared_type(name: str, otherwise: pa.DataType) -> pa.DataType:
    """Return the type of a column by the name that SQLite's table declares for it.

    >>> [str(declared_type(name, pa.int64())) for name in ("VARCHAR(20)", "double", "BLOB", "BIGINT", "DATE", "")]
    ['string', 'double', 'binary', 'int64', 'string', 'int64']
    """
    if "INT" in name.upper():  # SQLite looks for this first
        return otherwise
    found = (dtype for words, dtype in _DECLARED.items() if any(word in name.upper() for word in words))
    return next(found, otherwise)


def _sample_value(dtype: pa.DataType) -> str:
    """Return a value of the kind that SQLite keeps for a type."""
    if pt.is_integer(dtype) or pt.is_boolean(dtype):
        return "1"
    if pt.is_floating(dtype):
        return "0.5"
    return "x'00'" if pt.is_binary(dtype) else "''"


def _result_column(found: pa.Field) -> ResultColumn:
    metadata = found.metadata or {}
    kind = metadata.get(b"POSTGRESQL:type", b"").decode()
    if kind == "numeric":
        typmod = int(metadata.get(b"POSTGRESQL:typmod", b"-1"))
        if typmod < 0:  # no precision given: exact decimals would need one
            return ResultColumn(found.name, pa.float64(), "float8", is_numeric=True)
        dtype = pa.decimal128((typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF)
        return ResultColumn(found.name, dtype, is_numeric=True)
    if kind in _TEXT_TYPES or isinstance(found.type, pa.OpaqueType):
        return ResultColumn(found.name, pa.string(), "text")
    return ResultColumn(found.name, normal_type(found.type))


def _finite(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows; Arrow has no time without end, and what the driver makes of PostgreSQL's is a time long ago."""
    for column, values in zip(batch.schema, batch.columns, strict=True):
        ends = _ENDLESS.get(str(column.type).partition(",")[0].removesuffix("]"))
        if ends is not None and pc.any(pc.is_in(values.view(ends.type), ends)).as_py():
            raise ReadError(
                f"Column {column.name!r} holds 'infinity' or '-infinity', which times in Arrow cannot be. Make it "
                f"something else in the query, such as NULLIF({column.name}, 'infinity')."
            )
    return batch


# The days and microseconds since 2000 that PostgreSQL keeps for them, as the driver counts them from 1970.
_ENDLESS = {
    "date32[day": pa.array([-(2**31) + 10_956, -(2**31) + 10_957], pa.int32()),
    "timestamp[us": pa.array([-(2**63) + 946_684_799_999_999, -(2**63) + 946_684_800_000_000], pa.int64()),
}


def _for_postgresql(column: pa.Array) -> pa.Array:
    column = _plain(column)
    dtype = column.type
    if pt.is_uint64(dtype):
        return column.cast(pa.decimal128(20, 0))
    if pt.is_list(dtype) or pt.is_fixed_size_list(dtype):
        return column if _is_flat(dtype.value_type) and not pt.is_uint64(dtype.value_type) else json_texts(column)
    return column if _is_flat(dtype) or pt.is_time(dtype) or pt.is_duration(dtype) else json_texts(column)


def _for_sqlite(column: pa.Array) -> pa.Array:
    column = _plain(column)
    dtype = column.type
    if pt.is_uint64(dtype):
        return column.cast(pa.int64())
    if pt.is_decimal(dtype) or pt.is_time(dtype):
        return column.cast(pa.string())
    return column if _is_flat(dtype) else json_texts(column)


def _plain(column: pa.Array) -> pa.Array:
    """Return the column without an extension type, where lists can stand for it."""
    [column] = normalize_batch(pa.record_batch([column], ["column"])).columns
    if isinstance(column.type, pa.BaseExtensionType) and pt.is_fixed_size_list(column.type.storage_type):
        return column.storage
    return column.cast(pa.float32()) if pt.is_float16(column.type) else column


def _is_flat(dtype: pa.DataType) -> bool:
    return bool(
        not isinstance(dtype, pa.BaseExtensionType)
        and (pt.is_primitive(dtype) or pt.is_string(dtype) or pt.is_binary(dtype) or pt.is_null(dtype)
             or pt.is_decimal(dtype))
        and not (pt.is_time(dtype) or pt.is_duration(dtype) or pt.is_interval(dtype))
    )  # fmt: skip

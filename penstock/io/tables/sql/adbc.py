"""Databases that speak Arrow, through ADBC: PostgreSQL by binary COPY, SQLite in the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import ReadError
from penstock.io.batch_sizes import BATCH_ROWS, rows_per_batch
from penstock.io.formats.json_values import json_texts
from penstock.io.tables.sql.driver import (
    DatabaseKind,
    Dialect,
    QueryDescription,
    ResultColumn,
    TableName,
    plain,
    subquery,
)
from penstock.types.normalize import normal_type

SAMPLE_ROWS = 1000  # the rows that determine the types of SQLite's columns, which have none of their own
LOCK_TIMEOUT_MS = 60_000  # time that a writer waits for another, since SQLite admits one at a time

# PostgreSQL types that Arrow lacks, or that ADBC misreads, are read as text.
_TEXT_TYPES = {"uuid", "interval", "money", "record"}
# PostgreSQL's days and microseconds since 2000 for "infinity", as the driver counts them from 1970.
_INFINITE = {
    "date32[day": pa.array([-(2**31) + 10_956, -(2**31) + 10_957], pa.int32()),
    "timestamp[us": pa.array([-(2**63) + 946_684_799_999_999, -(2**63) + 946_684_800_000_000], pa.int64()),
}


class AdbcSession:
    """One connection of an ADBC driver."""

    def __init__(self, connection: Any, kind: DatabaseKind) -> None:
        self.dialect = Dialect(kind)
        self._connection = connection
        if kind == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_MS}")
                cursor.fetchall()

    def describe(self, query: str) -> QueryDescription:
        if self.dialect.kind != "sqlite":
            with self._connection.cursor() as cursor:
                return QueryDescription(tuple(_result_column(found) for found in cursor.adbc_execute_schema(query)))
        with contextlib.closing(self._stream(query, SAMPLE_ROWS)) as batches:  # type: ignore[type-var]
            sample = next(batches)
        columns = tuple(
            ResultColumn(found.name, pa.string(), "text")
            if values.null_count == len(values)
            else ResultColumn(found.name, normal_type(found.type))
            for found, values in zip(sample.schema, sample.columns, strict=True)
        )
        return QueryDescription(columns, rows_per_batch(max(sample.num_rows, 1), sample.nbytes))

    def batches(
        self, query: str, batch_rows: int | None = None, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        if self.dialect.kind == "postgresql":
            yield from map(_checked_times, self._stream(query, batch_rows))
            return
        if self.dialect.kind != "sqlite" or schema is None:
            yield from self._stream(query, batch_rows)
            return
        # The driver takes the types from the first rows, which may all be null. So add a first row of these types.
        columns = ", ".join(f"{_sample_value(found.type)} AS {self.dialect.quoted(found.name)}" for found in schema)
        typed = f"SELECT {columns} UNION ALL SELECT * FROM {subquery(query)}"
        num_added = 1
        for batch in self._stream(typed, batch_rows):
            yield batch.slice(num_added)
            num_added = 0

    def table_columns(self, table: TableName) -> list[str] | None:
        import adbc_driver_manager

        place = "catalog_filter" if self.dialect.kind == "sqlite" else "db_schema_filter"  # SQLite has no schemas
        try:
            return list(self._connection.adbc_get_table_schema(table.name, **{place: table.schema}).names)
        except adbc_driver_manager.Error as exc:
            if exc.status_code != adbc_driver_manager.AdbcStatusCode.NOT_FOUND:
                raise
            self._connection.rollback()
            return None

    def load(self, table: TableName, batch: pa.RecordBatch, *, create: bool = False) -> None:
        columns = [_storable(column, self.dialect.kind == "sqlite") for column in batch.columns]
        rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        place = "catalog_name" if self.dialect.kind == "sqlite" else "db_schema_name"
        with self._connection.cursor() as cursor:
            mode = "create" if create else "append"
            cursor.adbc_ingest(table.name, rows, mode=mode, **{place: table.schema})
        if create and self.dialect.kind == "postgresql":
            for column in rows.schema:
                if pt.is_decimal(column.type):  # the driver creates decimals without precision and scale
                    wanted = f"numeric({column.type.precision}, {column.type.scale})"
                    name = self.dialect.quoted(column.name)
                    self._run(f"ALTER TABLE {table.quoted(self.dialect)} ALTER COLUMN {name} TYPE {wanted}")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self._run(statement)
        self._connection.commit()

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _stream(self, query: str, batch_rows: int | None) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            if self.dialect.kind == "sqlite":
                rows = str(batch_rows or BATCH_ROWS)
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": rows})
            cursor.execute(f"{query}\n")  # the driver puts it into COPY (...): a comment at its end must end first
            with cursor.fetch_record_batch() as reader:
                is_empty = True
                for batch in reader:
                    is_empty = False
                    yield batch
                if is_empty:  # pass on the columns
                    yield pa.RecordBatch.from_pylist([], schema=reader.schema)


def _sample_value(dtype: pa.DataType) -> str:
    """Return a constant of SQLite's storage class for a type."""
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
        if typmod < 0:  # without a precision, which exact decimals need
            return ResultColumn(found.name, pa.float64(), "float8")
        return ResultColumn(found.name, pa.decimal128((typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF))
    if kind in _TEXT_TYPES or isinstance(found.type, pa.OpaqueType):
        return ResultColumn(found.name, pa.string(), "text")
    return ResultColumn(found.name, normal_type(found.type))


def _checked_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Refuse infinite times: Arrow has none, and the driver turns them into dates long ago."""
    for column, values in zip(batch.schema, batch.columns, strict=True):
        infinite = _INFINITE.get(str(column.type).partition(",")[0].removesuffix("]"))
        if infinite is not None and pc.any(pc.is_in(values.view(infinite.type), infinite)).as_py():
            raise ReadError(
                f"Column {column.name!r} holds 'infinity' or '-infinity', which Arrow cannot store. Replace it in the "
                f"query, such as by NULLIF({column.name}, 'infinity')."
            )
    return batch


def _storable(column: pa.Array, is_sqlite: bool) -> pa.Array:
    """Return a column in a type that the database has, otherwise as JSON text."""
    column = plain(column)
    dtype = column.type
    if pt.is_uint64(dtype):
        return column.cast(pa.int64() if is_sqlite else pa.decimal128(20, 0))
    if is_sqlite:
        if pt.is_decimal(dtype) or pt.is_time(dtype):
            return column.cast(pa.string())
        return column if _is_flat(dtype) else json_texts(column)
    if pt.is_list(dtype) or pt.is_fixed_size_list(dtype):
        has_type = _is_flat(dtype.value_type) and not pt.is_uint64(dtype.value_type)
    else:
        has_type = _is_flat(dtype) or pt.is_time(dtype) or pt.is_duration(dtype)
    return column if has_type else json_texts(column)


def _is_flat(dtype: pa.DataType) -> bool:
    is_time = pt.is_time(dtype) or pt.is_duration(dtype) or pt.is_interval(dtype)
    if isinstance(dtype, pa.BaseExtensionType) or is_time:
        return False
    is_plain = pt.is_primitive(dtype) or pt.is_string(dtype) or pt.is_binary(dtype)
    return bool(is_plain or pt.is_null(dtype) or pt.is_decimal(dtype))

"""Databases that speak Arrow, through ADBC: PostgreSQL by binary COPY, and the drivers of the user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import ReadError
from penstock.io.formats.json_values import json_texts
from penstock.io.tables.sql.driver import (
    DatabaseKind,
    Dialect,
    QueryDescription,
    ResultColumn,
    TableName,
    described_by_rows,
    plain,
)
from penstock.types.normalize import normal_type

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

    def describe(self, query: str) -> QueryDescription:
        if self.dialect.kind != "postgresql":
            return described_by_rows(self._stream(query))
        with self._connection.cursor() as cursor:
            return QueryDescription(tuple(_result_column(found) for found in cursor.adbc_execute_schema(query)))

    def batches(self, query: str, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self._stream(query):
            yield _checked_times(batch) if self.dialect.kind == "postgresql" else batch

    def table_columns(self, table: TableName) -> list[str] | None:
        import adbc_driver_manager

        try:
            return list(self._connection.adbc_get_table_schema(table.name, db_schema_filter=table.schema).names)
        except adbc_driver_manager.Error as exc:
            if exc.status_code != adbc_driver_manager.AdbcStatusCode.NOT_FOUND:
                raise
            self._connection.rollback()
            return None

    def load(self, table: TableName, batch: pa.RecordBatch, *, create: bool = False) -> None:
        rows = pa.RecordBatch.from_arrays(list(map(_storable, batch.columns)), names=batch.schema.names)
        with self._connection.cursor() as cursor:
            mode = "create" if create else "append"
            cursor.adbc_ingest(table.name, rows, mode=mode, db_schema_name=table.schema)
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

    def _stream(self, query: str) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"{query}\n")  # the driver puts it into COPY (...): a comment at its end must end first
            with cursor.fetch_record_batch() as reader:
                is_empty = True
                for batch in reader:
                    is_empty = False
                    yield batch
                if is_empty:  # pass on the columns
                    yield pa.RecordBatch.from_pylist([], schema=reader.schema)


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


def _storable(column: pa.Array) -> pa.Array:
    """Return a column in a type that the database has, otherwise as JSON text."""
    column = plain(column)
    dtype = column.type
    if pt.is_uint64(dtype):
        return column.cast(pa.decimal128(20, 0))
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

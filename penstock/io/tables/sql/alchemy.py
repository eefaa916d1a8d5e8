"""Databases that SQLAlchemy knows, row by row through their Python drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import ReadError
from penstock.io.formats.json_values import json_texts
from penstock.io.tables.sql.driver import DatabaseKind, Dialect, QueryDescription, TableName, described_by_rows
from penstock.types import to_arrow_array

SAMPLE_ROWS = 1000


class AlchemySession:
    """One connection of SQLAlchemy. The first rows determine the types, since drivers return Python values."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        names = connection.dialect.identifier_preparer
        kind: DatabaseKind = "sqlite" if connection.dialect.name == "sqlite" else "other"
        self.dialect = Dialect(kind, names.initial_quote, names.final_quote)

    def describe(self, query: str) -> QueryDescription:
        return described_by_rows(self.batches(query, SAMPLE_ROWS))

    def batches(self, query: str, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        result = self._connection.execution_options(stream_results=True).exec_driver_sql(query)
        try:
            yield from fetched_batches(list(result.keys()), result.fetchmany, batch_rows or SAMPLE_ROWS)
        finally:
            result.close()

    def table_columns(self, table: TableName) -> list[str] | None:
        import sqlalchemy

        inspector = sqlalchemy.inspect(self._connection)
        if not inspector.has_table(table.name, table.schema):
            return None
        return [column["name"] for column in inspector.get_columns(table.name, table.schema)]

    def load(self, table: TableName, batch: pa.RecordBatch, *, create: bool = False) -> None:
        columns = [_storable(column, self.dialect.kind == "sqlite") for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        target = _alchemy_table(table, batch.schema)
        if create:
            if self.dialect.kind == "sqlite":  # Python's driver begins a transaction at the first INSERT only
                self._connection.exec_driver_sql("BEGIN")
            target.create(self._connection)
        if batch.num_rows:
            self._connection.execute(target.insert(), batch.to_pylist())

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self._connection.exec_driver_sql(statement)
        self._connection.commit()


def fetched_batches(names: Sequence[str], fetch: Callable[[int], Any], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a driver fetches, in batches; an empty batch if the result has no rows."""
    yield batch_of_rows(names, fetch(num_rows))
    while rows := fetch(num_rows):
        yield batch_of_rows(names, rows)


def batch_of_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return the rows that a driver fetched as a batch."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.RecordBatch.from_arrays([_array(*column) for column in zip(names, columns, strict=True)], names)


def _storable(column: pa.Array, is_sqlite: bool) -> pa.Array:
    """Return a column in a type that the database has, otherwise as JSON text. SQLite would round decimals."""
    if is_sqlite and pt.is_decimal(column.type):
        return column.cast(pa.string())
    if is_sqlite and pt.is_uint64(column.type):
        return column.cast(pa.int64())
    return column if _type_name(column.type) else json_texts(column)


def _alchemy_table(table: TableName, schema: pa.Schema) -> Any:
    import sqlalchemy

    def column_type(dtype: pa.DataType) -> Any:
        name = _type_name(dtype)
        if name == "Numeric":
            return sqlalchemy.Numeric(dtype.precision, dtype.scale)
        if name == "DateTime":
            return sqlalchemy.DateTime(timezone=dtype.tz is not None)
        return sqlalchemy.Float(53) if name == "Float" else getattr(sqlalchemy, name)()

    columns = [sqlalchemy.Column(found.name, column_type(found.type)) for found in schema]
    return sqlalchemy.Table(table.name, sqlalchemy.MetaData(), *columns, schema=table.schema)


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return to_arrow_array(list(values), None, what=f"column {name!r}")
    except ValueError as exc:
        raise ReadError(f"The values of {name!r} have no type in common; CAST it in the query. {exc}") from exc


def _type_name(dtype: pa.DataType) -> str:
    """Return the name of SQLAlchemy's type, or an empty text where it has none."""
    if isinstance(dtype, pa.BaseExtensionType):
        return ""
    kinds = {
        "Boolean": pt.is_boolean,
        "BigInteger": pt.is_integer,
        "Float": pt.is_floating,
        "Text": lambda t: pt.is_string(t) or pt.is_null(t),
        "LargeBinary": pt.is_binary,
        "Date": pt.is_date,
        "DateTime": pt.is_timestamp,
        "Time": pt.is_time,
        "Numeric": pt.is_decimal,
    }
    return next((name for name, is_kind in kinds.items() if is_kind(dtype)), "")

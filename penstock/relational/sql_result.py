"""The columns of a query in SQL, which DuckDB derives from the columns of its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError
from penstock.plan.relations import SqlQuery
from penstock.relational.arrow import duckdb_type
from penstock.relational.parser import result_schema
from penstock.types import Field, Schema
from penstock.types.frozen import frozen

UTC = "UTC"


@frozen
class SqlMaker:
    """Makes a query of the columns of its tables.

    ``read`` has the columns of each table that the query may read. ``selected`` has the columns of the result that come
    from a table, with their names in both. ``written`` is the user's SQL. ``functions`` are other names than DuckDB's
    that the user may have meant.
    """

    text: str
    written: str
    names: tuple[str, ...]
    read: tuple[tuple[str, ...], ...]
    selected: tuple[tuple[str, str], ...]
    is_streamed: bool
    functions: tuple[str, ...]

    def made(self, *inputs: Schema) -> SqlQuery:
        timezone = _timezone(inputs)
        empty = {name: _empty_table(schema) for name, schema in zip(self.names, inputs, strict=True)}
        columns = result_schema(self.text, empty, self.written, self.functions, timezone)
        if twice := [name for name, number in Counter(columns.names).items() if number > 1]:
            raise InvalidArgumentError(f"SQL: the result has two columns {twice[0]!r}; rename one of them with AS")
        output = Schema([_restored(field, inputs, dict(self.selected)) for field in Schema.from_arrow(columns)])
        return SqlQuery(self.text, self.names, output, self.is_streamed, timezone=timezone)

    def columns_read(self, side: int) -> tuple[str, ...]:
        return self.read[side]

    def __str__(self) -> str:
        return f"sql {self.text}"


def _restored(field: Field, inputs: Sequence[Schema], selected: Mapping[str, str]) -> Field:
    """Return a column of the result. A column that is selected unchanged keeps its extension type and its time zone."""
    source = selected.get(field.name, field.name)
    source = source if any(source in schema for schema in inputs) else source.rpartition(".")[2]
    for schema in inputs:
        if source in schema:
            held = duckdb_type(schema[source].dtype.arrow)
            if held == field.dtype.arrow or _in_utc(held) == _in_utc(field.dtype.arrow):
                return Field(field.name, schema[source].dtype)
    return field


def _in_utc(dtype: pa.DataType) -> pa.DataType:
    """Return a type with all its time zones replaced by UTC."""
    if pt.is_timestamp(dtype) and dtype.tz:
        return pa.timestamp(dtype.unit, UTC)
    if pt.is_list(dtype):
        return pa.list_(_in_utc(dtype.value_type))
    if pt.is_struct(dtype):
        return pa.struct([(field.name, _in_utc(field.type)) for field in dtype])
    return dtype


def _timezone(inputs: Sequence[Schema]) -> str | None:
    """Return the time zone of a query: the zone of its tables if they have only one, else UTC."""
    zones = {zone for schema in inputs for field in schema.to_arrow() for zone in _zones(field.type)}
    return None if not zones else zones.pop() if len(zones) == 1 else UTC


def _zones(dtype: pa.DataType) -> set[str]:
    if pt.is_timestamp(dtype):
        return {dtype.tz} if dtype.tz else set()
    return set().union(*(_zones(dtype.field(i).type) for i in range(dtype.num_fields)))


def _empty_table(schema: Schema) -> pa.Table:
    fields = [(field.name, duckdb_type(field.type)) for field in schema.to_arrow()]
    # empty_table() would import pandas
    return pa.Table.from_arrays([pa.nulls(0, dtype) for _, dtype in fields], schema=pa.schema(fields))

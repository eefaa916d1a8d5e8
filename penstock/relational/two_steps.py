"""Aggregates in two steps: over some of the rows at a time, then over the results. So few rows move between nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.expr.aggregate_functions import AGGREGATES
from penstock.expr.kinds import FLOAT64, UINT64
from penstock.plan.duckdb_text import quoted
from penstock.plan.relations import Aggregate, AggregateColumn, Relation, SqlQuery, aggregate_field
from penstock.relational.arrow import from_duckdb, to_duckdb
from penstock.relational.scalar import database
from penstock.types import DataType, Field, Schema

Step = tuple[str, DataType]  # the SQL of a column, and its type


def in_two_steps(relation: Relation, schema: Schema) -> tuple[SqlQuery, SqlQuery] | None:
    """Return a query over some rows, and a query over the results of the first one that gives the result of the
    relation.

    None: a column needs all rows of a group at once, such as a median.
    """
    if not isinstance(relation, Aggregate) or not relation.keys:
        return None
    first: list[tuple[str, Field]] = []
    second: list[str] = []
    for column in relation.columns:
        steps = _steps(column, schema)
        if steps is None:
            return None
        names = [f"{column.name} {number}" for number in range(len(steps[0]))]
        first += [(sql, Field(name, dtype)) for (sql, dtype), name in zip(steps[0], names, strict=True)]
        second.append(f"{steps[1].format(*map(quoted, names))} as {quoted(column.name)}")
    between = Schema([*(schema[key] for key in relation.keys), *(field for _, field in first)])
    columns = [f"{sql} as {quoted(field.name)}" for sql, field in first]
    return _grouped(relation, columns, between), _grouped(relation, second, relation.schema(schema))


def _grouped(relation: Aggregate, columns: Sequence[str], output: Schema) -> SqlQuery:
    keys = ", ".join(map(quoted, relation.keys))
    text = f"select {', '.join([keys, *columns])} from input0 group by {keys}"
    return SqlQuery(text, ("input0",), output, is_streamed=True, title=str(relation))


def _steps(column: AggregateColumn, schema: Schema) -> tuple[list[Step], str] | None:
    """Return the columns of the first step, and the SQL of the second with a place for each."""
    if column.function not in ("count", "sum", "mean", "min", "max", "bool_and", "bool_or"):
        return None
    dtype = schema[column.inputs[0]].dtype
    value = (
        AGGREGATES[column.function].template(dtype, **dict(column.options)).format(quoted(column.inputs[0]), over="")
    )
    total = _total_type(dtype)
    match column.function:
        case "count":
            return [(value, UINT64)], "sum({0})"
        case "sum" if total is not None:
            return [(value, total)], "sum({0})"
        case "mean" if total is not None:
            name = quoted(column.inputs[0])
            return [(f"sum({name})", total), (f"count({name})", UINT64)], "sum({0})::double / sum({1})"
        case "sum" | "mean":
            return None
        case function:
            return [(value, aggregate_field(column, schema).dtype)], f"{function}({{0}})"


def _total_type(dtype: DataType) -> DataType | None:
    """Return a type that holds the sum of some rows exactly: sums of whole numbers may need a wider type."""
    if dtype.is_float():
        return FLOAT64
    if dtype.is_integer() or dtype.is_decimal():
        return DataType.decimal128(38, dtype.arrow.scale if dtype.is_decimal() else 0)
    return None


def computed(query: SqlQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the result of a query over at least one row, in the same order each time."""
    table = pa.Table.from_batches([to_duckdb(rows)])  # pa.table() would import pandas
    found = database().cursor().from_arrow(table).query("input0", query.text).to_arrow_table()
    return from_duckdb(found.combine_chunks().to_batches()[0], query.output.to_arrow())

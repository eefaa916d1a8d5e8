"""Evaluate an expression in every way it may be evaluated, and see that all agree."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.expr.column import Expression
from penstock.expr.evaluate import Program
from penstock.expr.nodes import ELEMENT, ColumnRef, Expr, Literal, rewrite
from penstock.types import DataType, Schema, to_arrow_array


def batch_of(**columns: Any) -> pa.RecordBatch:
    """Return a batch of Python values or Arrow arrays."""
    return pa.record_batch({name: to_arrow_array(values, None, what=name) for name, values in columns.items()})


def numbers(values: list[int | None], dtype: pa.DataType) -> pa.Array:
    """Return small numbers as ``dtype``."""
    via = pa.float64() if pa.types.is_floating(dtype) else pa.decimal128(10, 2)
    return pa.array(values, pa.int8()).cast(via).cast(dtype)


def resolved(expression: Expression, **columns: Any) -> DataType:
    """Return the type that the plan promises."""
    return Program([expression._node], Schema.from_arrow(batch_of(**columns).schema)).schema[0].dtype


def run(expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    """Return the result for one batch, after checking its type and its buffers."""
    program = Program([expression._node], Schema.from_arrow(batch.schema))
    result = program.run(batch).column(0)
    assert len(result) == batch.num_rows
    assert result.type == program.schema[0].dtype.arrow
    for value in program.values(batch):
        assert DataType(value.type) == program.schema[0].dtype, "the kernel gives another type than the rule promises"
    result.validate(full=True)
    return result


def evaluate(expression: Expression, **columns: Any) -> list[Any]:
    """Return the values of ``expression``: the same for a batch, a slice, single rows, constants; and null for null."""
    batch = batch_of(**columns)
    values: list[Any] = run(expression, batch).to_pylist()
    doubled = pa.RecordBatch.from_arrays(
        [pa.concat_arrays([column, column]) for column in batch.columns], schema=batch.schema
    )
    if batch.num_rows:
        middle = run(expression, doubled.slice(1, batch.num_rows)).to_pylist()
        assert repr(middle) == repr(values[1:] + values[:1]), "a slice gives other values"
    assert run(expression, batch.slice(0, 0)).to_pylist() == []
    for row, value in enumerate(values):
        assert repr(run(expression, batch.slice(row, 1)).to_pylist()) == repr([value]), "one row gives another value"
        constant = run(_with_constants(expression, batch.slice(row, 1)), batch.slice(row, 1)).to_pylist()
        assert repr(constant) == repr([value]), "constants give another value"
    _run_on_nulls(expression, batch)
    return values


def _with_constants(expression: Expression, batch: pa.RecordBatch) -> Expression:
    def constant(expr: Expr) -> Expr:
        if isinstance(expr, ColumnRef) and expr != ELEMENT:
            return Literal(batch.column(expr.column)[0])
        return expr

    return Expression(rewrite(expression._node, constant))


def _run_on_nulls(expression: Expression, batch: pa.RecordBatch) -> None:
    """Run with columns of the null type in place of each one, and of all."""
    for replaced in [*([name] for name in batch.schema.names), batch.schema.names]:
        columns = {
            name: pa.nulls(batch.num_rows) if name in replaced else batch.column(name) for name in batch.schema.names
        }
        run(expression, pa.record_batch(columns))

"""The meaning of a plan, told as plainly as possible: whole tables, rows in Python, no rule and no stage.

The optimizer and the engine are checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.steps import sample
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, ColumnRef, Expr, PythonValue, UdfCall, rewrite, walk
from penstock.expr.resolve import expand
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MapBatches,
    MonotonicId,
    Plan,
    Project,
    Repartition,
    Sample,
    Scan,
    UdfProject,
    Unpivot,
)
from penstock.plan.stages import TakeSample
from penstock.protocols import ReadRequest
from penstock.types import Schema, to_batch

Rows = list[dict[str, Any]]


def reference(plan: Plan) -> pa.RecordBatch:
    """Return the rows of a plan as one batch."""
    match plan:
        case Scan(source, columns, predicate, limit):
            batches = [b for task in source.read_tasks(ReadRequest()) for b in task.read()]
            whole = _joined(batches, source.schema().to_arrow())
            whole = whole if predicate is None else _where(whole, predicate)
            whole = whole if limit is None else whole.slice(0, limit)
            return whole if columns is None else whole.select(list(columns))
        case Project(child, exprs):
            return _project(reference(child), exprs)
        case Filter(child, predicate):
            return _where(reference(child), predicate)
        case UdfProject(child, call, column, keep):
            batch = reference(child)
            others = [n for n in (batch.schema.names if keep is None else keep) if n != column]
            return _project(batch, (*map(ColumnRef, others), Alias(call, column)))
        case MapBatches(child, spec):
            assert spec.verb == "map_batches"
            return to_batch(spec.target.function(reference(child)), "reference")
        case Limit(child, num_rows, offset):
            return reference(child).slice(offset, num_rows)
        case Sample(child, fraction, seed, is_with_replacement):
            return sample(reference(child), TakeSample(fraction, seed, is_with_replacement), 0)
        case Explode(child, columns):
            return _rows_to_rows(plan, lambda row: _exploded(row, columns))
        case Unpivot():
            return _rows_to_rows(plan, lambda row: _unpivoted(row, plan))
        case MonotonicId(child, column):
            batch = reference(child)
            ids = pa.array(np.arange(batch.num_rows, dtype=np.uint64))
            return pa.RecordBatch.from_arrays([ids, *batch.columns], names=[column, *batch.schema.names])
        case IntoBatches(child) | Repartition(child):
            return reference(child)
        case Concat(inputs):
            batches = [reference(child) for child in inputs]
            return _joined(batches, batches[0].schema)
    raise AssertionError(f"{type(plan).__name__} has no meaning")


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    batches = [batch for batch in batches if batch.num_rows]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _project(batch: pa.RecordBatch, exprs: tuple[Expr, ...]) -> pa.RecordBatch:
    exprs = expand(exprs, Schema.from_arrow(batch.schema))
    generators = {n for expr in exprs for n in walk(expr) if isinstance(n, UdfCall) and n.udf.target.is_generator}
    names = [expr.name for expr in exprs]
    for generator in generators:
        batch, made = _generated(batch, generator)
        exprs = tuple(rewrite(expr, lambda node, g=generator, m=made: m if node == g else node) for expr in exprs)
    batch, exprs = _without_calls(batch, exprs)
    return _run(batch, [Alias(expr, name) for expr, name in zip(exprs, names, strict=True)])


def _where(batch: pa.RecordBatch, predicate: Expr) -> pa.RecordBatch:
    added, (plain,) = _without_calls(batch, (predicate,))
    keep = _run(added, [Alias(plain, "keep")]).column(0).to_pylist()
    return batch.take(pa.array([i for i, value in enumerate(keep) if value], pa.int64()))


def _run(batch: pa.RecordBatch, exprs: list[Expr]) -> pa.RecordBatch:
    return Program(exprs, Schema.from_arrow(batch.schema)).run(batch)


def _without_calls(batch: pa.RecordBatch, exprs: tuple[Expr, ...]) -> tuple[pa.RecordBatch, tuple[Expr, ...]]:
    """Return the batch with a column for each UDF call met, equal or not, and the expressions that read them."""
    numbers = count(batch.num_columns)

    def compute(node: Expr) -> Expr:
        nonlocal batch
        if not isinstance(node, UdfCall):
            return node
        made = f"#{next(numbers)}"
        values = [node.udf.target.function(*row) for row in _arguments(batch, node)]
        batch = batch.append_column(made, pa.array(values, node.udf.return_dtype.arrow))
        return ColumnRef(made)

    plain = tuple(rewrite(expr, compute) for expr in exprs)
    return batch, plain


def _generated(batch: pa.RecordBatch, call: UdfCall) -> tuple[pa.RecordBatch, Expr]:
    """Return each row as often as the generator gives a value for it, with the values as one more column.

    A row without values is there once, with null.
    """
    made = f"#{batch.num_columns}"
    added, args = _without_calls(batch, call.args)
    values = [list(call.udf.target.function(*row)) or [None] for row in _arguments(added, UdfCall(call.udf, args))]
    parents = [i for i, several in enumerate(values) for _ in several]
    column = pa.array([value for several in values for value in several], call.udf.return_dtype.arrow)
    return batch.take(pa.array(parents, pa.int64())).append_column(made, column), ColumnRef(made)


def _arguments(batch: pa.RecordBatch, call: UdfCall) -> Iterator[tuple[Any, ...]]:
    columns = [
        [arg.value] * batch.num_rows
        if isinstance(arg, PythonValue)
        else _run(batch, [Alias(arg, "value")]).column(0).to_pylist()
        for arg in call.args
    ]
    return zip(*columns, strict=True)


def _rows_to_rows(plan: Explode | Unpivot, change: Callable[[dict[str, Any]], Rows]) -> pa.RecordBatch:
    child = reference(plan.child)
    rows = [new for row in child.to_pylist() for new in change(row)]
    known = plan.with_child(_Known(Schema.from_arrow(child.schema)))
    assert known.schema is not None
    return pa.RecordBatch.from_pylist(rows, schema=known.schema.to_arrow())


def _exploded(row: dict[str, Any], columns: tuple[str, ...]) -> Rows:
    num_rows = len(row[columns[0]] or []) or 1
    return [{**row, **{name: row[name][i] if row[name] else None for name in columns}} for i in range(num_rows)]


def _unpivoted(row: dict[str, Any], plan: Unpivot) -> Rows:
    ids = {name: row[name] for name in plan.ids}
    return [{**ids, plan.variable_name: name, plan.value_name: row[name]} for name in plan.values]


class _Known(Plan):
    """Stands for rows whose schema has become known."""

    def __init__(self, schema: Schema) -> None:
        object.__setattr__(self, "schema", schema)

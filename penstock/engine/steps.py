"""Steps on batches: select, filter, sample, number. Compiled on a worker's first batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.multiplying_steps import explode, melt
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, ColumnRef, Expr, Star
from penstock.plan import nodes
from penstock.plan.expression_cost import is_trivial
from penstock.plan.stages import (
    SAMPLED_ROWS,
    SIDE,
    ExplodeLists,
    MarkSide,
    Melt,
    NumberRows,
    Select,
    Step,
    TakeSample,
    Where,
)
from penstock.types import Schema
from penstock.types.frozen import frozen
from penstock.types.plain import arrow_numbers

Apply = Callable[[pa.RecordBatch, int], pa.RecordBatch | Iterator[pa.RecordBatch]]


class Steps:
    """A sequence of steps as one function, compiled again whenever the schema of the input changes."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._schema: pa.Schema | None = None
        self._compiled: list[Apply] = []

    def __call__(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return the output of steps that do not multiply rows."""
        return next(self.pieces(batch, first_row)) if self._steps else batch

    def pieces(self, batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        """Yield the output, in pieces of bounded size if a step multiplies rows."""
        if self._schema is None or not self._schema.equals(batch.schema):
            self._schema, self._compiled = batch.schema, []
        return self._pieces(batch, first_row, 0)

    def _pieces(self, batch: pa.RecordBatch, first_row: int, number: int) -> Iterator[pa.RecordBatch]:
        for index in range(number, len(self._steps)):
            if index == len(self._compiled):
                self._compiled.append(compiled(self._steps[index], Schema.from_arrow(batch.schema)))
            output = self._compiled[index](batch, first_row)
            if not isinstance(output, pa.RecordBatch):
                for piece in output:
                    yield from self._pieces(piece, first_row, index + 1)
                return
            batch = output
        yield batch


def may_grow(step: Step) -> bool:
    """Decide whether a step may make rows larger."""
    match step:
        case Select(exprs):
            return not all(is_trivial(expr) or isinstance(expr, Star) for expr in exprs)
        case _:
            return isinstance(step, ExplodeLists | Melt)


def compiled(step: Step, schema: Schema) -> Apply:
    """Return a step as a function of a batch with ``schema`` and of its position."""
    check(step, schema)
    match step:
        case Select(exprs):
            select = Program(in_place(exprs, schema), schema)
            return lambda batch, first_row: select.run(batch)
        case Where(predicate):
            return _where(Program([Alias(predicate, "keep")], schema))
        case ExplodeLists(columns):
            return lambda batch, first_row: explode(batch, columns)
        case Melt():
            return melt(step, schema)
        case TakeSample():
            return lambda batch, first_row: sample(batch, step, first_row)
        case NumberRows(column):
            return lambda batch, first_row: number_rows(batch, column, first_row)
        case MarkSide(side):
            return lambda batch, first_row: batch.replace_schema_metadata({SIDE: str(side)})


@frozen
class _Columns(nodes.Plan):
    """A plan whose columns are known from its first batch."""

    known: Schema

    def _output_schema(self) -> Schema:
        return self.known


def check(step: Step, schema: Schema) -> None:
    """Raise the errors that the plan would have raised if its columns had been known."""
    match step:
        case Where(predicate):
            nodes.Filter(_Columns(schema), predicate)
        case ExplodeLists(columns):
            nodes.check_columns(schema, columns, "explode")
            nodes.Explode(_Columns(schema), columns)
        case Melt(ids, values, variable_name, value_name):
            nodes.check_columns(schema, ids + values, "unpivot")
            nodes.Unpivot(_Columns(schema), ids, values, variable_name, value_name)
        case NumberRows(column):
            nodes.MonotonicId(_Columns(schema), column)


def in_place(exprs: Sequence[Expr], schema: Schema) -> Sequence[Expr]:
    """Put the select list of with_columns or rename in the order of the columns, which only the worker knows. The n-th
    expression after the star replaces the n-th column that the star excludes; the others come last.

    >>> in_place((Star(("b",)), Alias(ColumnRef("b"), "x")), Schema.from_pydict({"b": "int64", "c": "string"}))
    (Alias(child=ColumnRef(column='b'), alias='x'), ColumnRef(column='c'))
    """
    match exprs:
        case (Star(exclude), *added) if exclude and added:
            placed = dict(zip(exclude, added, strict=False))
            kept = [placed.pop(name, ColumnRef(name)) for name in schema.names if name not in exclude[len(added) :]]
            return (*kept, *placed.values(), *added[len(exclude) :])
        case _:
            return exprs


def _where(program: Program) -> Apply:
    def apply(batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        (keep,) = program.values(batch)
        if isinstance(keep, pa.Scalar):
            return batch if keep.as_py() else batch.slice(0, 0)
        return batch.filter(keep)

    return apply


def sample(batch: pa.RecordBatch, step: TakeSample, first_row: int) -> pa.RecordBatch:
    """Draw a share of every SAMPLED_ROWS rows. A batch starts with such a block."""
    starts = range(0, batch.num_rows, SAMPLED_ROWS)
    drawn = [_drawn(step, first_row + at, min(SAMPLED_ROWS, batch.num_rows - at)) + at for at in starts]
    return batch.take(arrow_numbers(np.concatenate([np.empty(0, np.int64), *drawn])))


def _drawn(step: TakeSample, first_row: int, num_rows: int) -> np.ndarray[Any, Any]:
    """Return the rows of a block to keep; its draws depend on the seed and the position only."""
    num_wanted = num_sampled(step, first_row + num_rows) - num_sampled(step, first_row)
    draws = _uniform(step.seed, first_row, num_rows)
    if step.is_with_replacement:
        return np.sort((draws[:num_wanted] * num_rows).astype(np.int64))
    return np.sort(np.argsort(draws)[:num_wanted])


def num_sampled(step: TakeSample, num_rows: int) -> int:
    """Return how many of the first ``num_rows`` rows are in the sample: their share, rounded up.

    Past the first block it may be one less, because the seed chooses where to round. Otherwise a small sample would
    come from the same blocks for every seed.

    >>> [num_sampled(TakeSample(0.25, 1, False), num_rows) for num_rows in (0, 1, 5, 4000)]
    [0, 1, 2, 1000]
    """
    if num_rows <= SAMPLED_ROWS:
        return math.ceil(step.fraction * num_rows)
    shift = 0.5 if step.seed is None else float(np.random.default_rng(step.seed % 2**64).random())
    return max(math.ceil(step.fraction * SAMPLED_ROWS), math.ceil(step.fraction * num_rows - shift))


def _uniform(seed: int | None, first_row: int, num_rows: int) -> np.ndarray[Any, Any]:
    if seed is None:
        return np.random.default_rng().random(num_rows)
    bits = np.random.Philox(key=seed % 2**64)
    bits.advance(first_row // 4)  # one step of Philox yields four numbers
    return np.random.Generator(bits).random(num_rows + first_row % 4)[first_row % 4 :]


def number_rows(batch: pa.RecordBatch, column: str, first_row: int) -> pa.RecordBatch:
    ids = arrow_numbers(np.arange(first_row, first_row + batch.num_rows, dtype=np.uint64))
    return pa.RecordBatch.from_arrays([ids, *batch.columns], names=[column, *batch.schema.names])

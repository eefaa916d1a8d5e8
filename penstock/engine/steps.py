"""Steps on batches: select, filter, explode, unpivot, sample, number. Compiled on a worker's first batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError
from penstock.expr.arrays import elements_of
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, ColumnRef, Expr, Star
from penstock.plan import nodes
from penstock.plan.expression_cost import is_trivial
from penstock.plan.stages import SIDE, ExplodeLists, MarkSide, Melt, NumberRows, Select, Step, TakeSample, Where
from penstock.types import DataType, Schema, supertype
from penstock.types.plain import arrow_numbers

Apply = Callable[[pa.RecordBatch, int], pa.RecordBatch]


class Steps:
    """A sequence of steps as one function, compiled again whenever the schema of the input changes."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._schema: pa.Schema | None = None
        self._compiled: list[Apply] = []

    def __call__(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        if self._schema is None or not self._schema.equals(batch.schema):
            self._schema, self._compiled = batch.schema, []
            for step in self._steps:
                apply = compiled(step, Schema.from_arrow(batch.schema))
                self._compiled.append(apply)
                batch = apply(batch, first_row)
            return batch
        for apply in self._compiled:
            batch = apply(batch, first_row)
        return batch


def may_grow(step: Step) -> bool:
    """Decide whether a step may make rows larger."""
    match step:
        case Select(exprs):
            return not all(is_trivial(expr) or isinstance(expr, Star) for expr in exprs)
        case TakeSample():
            return step.is_with_replacement
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
            return _melt(step, schema)
        case TakeSample():
            return lambda batch, first_row: sample(batch, step, first_row)
        case NumberRows(column):
            return lambda batch, first_row: number_rows(batch, column, first_row)
        case MarkSide(side):
            return lambda batch, first_row: batch.replace_schema_metadata({SIDE: str(side)})


@dataclass(frozen=True, slots=True)
class _Columns(nodes.Plan):
    """A plan whose columns are known from its first batch."""

    known: Schema

    def _output_schema(self) -> Schema:
        return self.known


def check(step: Step, schema: Schema) -> None:
    """Raise the errors that building the plan would have raised if its columns had been known."""
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
    """Return the select list of a with_columns or rename over unknown columns, in column order.

    The n-th expression after the star replaces the n-th column that the star excludes; the rest come last.

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


def explode(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return one row per list element. Lists exploded together must have equal lengths in every row."""
    lists = {name: _as_lists(batch.column(name)) for name in columns}
    lengths = {name: pc.fill_null(pc.list_value_length(array), 0).to_numpy() for name, array in lists.items()}
    counts = lengths[columns[0]]
    for name in columns[1:]:
        if not np.array_equal(lengths[name], counts):
            row = int(np.argmax(lengths[name] != counts))
            raise ComputeError(
                f"explode: in one row {columns[0]!r} has {counts[row]} elements and {name!r} {lengths[name][row]}; "
                "lists exploded together must have equal lengths"
            )
    repeats = np.maximum(counts, 1)
    parents = arrow_numbers(np.repeat(np.arange(len(counts)), repeats))
    starts = np.cumsum(counts) - counts
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    indices = arrow_numbers(np.repeat(starts, repeats) + within, np.repeat(counts == 0, repeats))
    elements = {name: elements_of(array)[0] for name, array in lists.items()}
    if not counts.all():  # otherwise the elements are the column already: images are not copied
        elements = {name: array.take(indices) for name, array in elements.items()}
    arrays = [elements[name] if name in lists else batch.column(name).take(parents) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _as_lists(array: pa.Array) -> pa.Array:
    """Return a fixed-size list as a variable-size list, whose null rows hold no elements."""
    if pa.types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_type))
    return array


def _melt(step: Melt, schema: Schema) -> Apply:
    common = DataType.null()
    for name in step.values:
        common = supertype(common, schema[name].dtype) or common
    programs = [
        Program([*(ColumnRef(i) for i in step.ids), Alias(ColumnRef(name), step.value_name)], schema)
        for name in step.values
    ]
    width = len(step.values)

    def apply(batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        num_rows = batch.num_rows
        parts = [program.run(batch) for program in programs]
        values = pa.concat_arrays([part.column(step.value_name).cast(common.arrow) for part in parts])
        by_row = pa.array(np.arange(num_rows * width).reshape(width, num_rows).T.reshape(-1))
        parents = pa.array(np.repeat(np.arange(num_rows), width))
        columns = {name: batch.column(name).take(parents) for name in step.ids}
        columns[step.variable_name] = pa.array(list(step.values) * num_rows, pa.string())
        columns[step.value_name] = values.take(by_row)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    return apply


def sample(batch: pa.RecordBatch, step: TakeSample, first_row: int) -> pa.RecordBatch:
    """Keep rows by a random number that depends on the seed and the row's position, not on its batch."""
    draws = _uniform(step.seed, first_row, batch.num_rows)
    if not step.is_with_replacement:
        return batch.filter(pa.array(draws < step.fraction))
    # Each row is drawn a Poisson number of times, the limit of drawing n rows with replacement.
    repeats = np.zeros(batch.num_rows, dtype=np.int64)
    threshold = term = np.exp(-step.fraction)
    for count in range(1, 32):
        repeats += draws > threshold
        term = term * step.fraction / count
        threshold += term
    return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), repeats)))


def _uniform(seed: int | None, first_row: int, num_rows: int) -> np.ndarray[Any, Any]:
    if seed is None:
        return np.random.default_rng().random(num_rows)
    bits = np.random.Philox(key=seed % 2**64)
    bits.advance(first_row // 4)  # one step of Philox yields four numbers
    return np.random.Generator(bits).random(num_rows + first_row % 4)[first_row % 4 :]


def number_rows(batch: pa.RecordBatch, column: str, first_row: int) -> pa.RecordBatch:
    ids = pa.array(np.arange(first_row, first_row + batch.num_rows, dtype=np.uint64))
    return pa.RecordBatch.from_arrays([ids, *batch.columns], names=[column, *batch.schema.names])

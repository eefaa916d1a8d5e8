"""Evaluate expressions: compile a select list once for a schema into a list of steps, then run it on every batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, PenstockError
from penstock.expr.arrays import elements_of, on_arrays, repeat, to_lists, validity
from penstock.expr.expression_text import describe
from penstock.expr.nodes import ELEMENT, Alias, Call, Cast, ColumnRef, Expr, ListApply, Literal, bottom_up
from penstock.expr.registry import Value, lookup
from penstock.expr.resolve import dtype_of, expand, schema_of
from penstock.types import DataType, Field, Schema
from penstock.types.plain import numpy_values

Step = Callable[[list[Any]], Value]
REFUSALS = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of Arrow, NumPy and Python for values and options that a kernel cannot use."""


class Program:
    """A select list compiled for one input schema. Equal sub-expressions share one step.

    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> Program([ColumnRef("a")], Schema.from_arrow(batch.schema)).run(batch).to_pydict()
    {'a': [1, 2]}
    """

    def __init__(self, exprs: Sequence[Expr], schema: Schema) -> None:
        exprs = expand(exprs, schema)
        self.schema = schema_of(exprs, schema)
        self._arrow_schema = self.schema.to_arrow()
        self._input = schema
        self._columns: list[int] = []
        self._steps: list[tuple[Expr, Step]] = []
        self._slots: dict[Expr, int] = {}
        for expr in exprs:
            for column in bottom_up(expr):
                if isinstance(column, ColumnRef) and column not in self._slots:
                    self._slots[column] = len(self._columns)
                    self._columns.append(schema.index(column.column))
        self._outputs = [self._compile(expr) for expr in exprs]

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        num_rows = batch.num_rows
        arrays = [
            _as_column(value, num_rows, dtype)
            for value, dtype in zip(self.values(batch), self._arrow_schema.types, strict=True)
        ]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), num_rows, [None], children=[]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def values(self, batch: pa.RecordBatch) -> list[Value]:
        """Return the results as computed: arrays, or scalars for constants."""
        values: list[Any] = [batch.column(index) for index in self._columns]
        for expr, step in self._steps:
            try:
                values.append(step(values))
            except (PenstockError, MemoryError):
                raise
            except REFUSALS as exc:
                raise ComputeError(f"{describe(expr)} cannot be computed: {exc}") from exc
        return [values[slot] for slot in self._outputs]

    def _compile(self, expr: Expr) -> int:
        if expr in self._slots:
            return self._slots[expr]
        for node in bottom_up(expr):
            if node in self._slots:
                continue
            if isinstance(node, Alias):
                self._slots[node] = self._slots[node.child]
                continue
            self._steps.append((node, self._step(node)))
            self._slots[node] = len(self._columns) + len(self._steps) - 1
        return self._slots[expr]

    def _step(self, expr: Expr) -> Step:
        """Return the function that computes one node from the slots of its children."""
        match expr:
            case Literal(scalar):
                return lambda values: scalar
            case Cast(child, dtype, is_strict):
                source, cast = self._slots[child], lookup("cast").kernel
                return lambda values: cast(values[source], dtype=dtype, is_strict=is_strict)
            case ListApply(child, body, verb):
                return _list_apply(self._slots[child], body, verb, dtype_of(child, self._input))
            case Call(function, args, options):
                compute, sources, keywords = lookup(function).kernel, [self._slots[a] for a in args], dict(options)
                return lambda values: compute(*[values[source] for source in sources], **keywords)
        raise AssertionError(f"{type(expr).__name__} cannot be evaluated in a batch")


def _as_column(value: Value, num_rows: int, dtype: pa.DataType) -> pa.Array:
    """Return ``value`` as an array that is as long as the batch and has the planned type."""
    array = repeat(value, num_rows) if isinstance(value, pa.Scalar) else value
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return (
        array
        if array.type == dtype
        else lookup("cast").kernel(array, dtype=DataType.from_arrow_type(dtype), is_strict=True)
    )


def _list_apply(source: int, body: Expr, verb: str, dtype: DataType) -> Step:
    element = Schema([Field(ELEMENT.column, dtype if dtype.is_null() else dtype.inner)])
    program = Program([Alias(body, "value")], element)

    def apply(values: list[Any]) -> Value:
        return apply_to(values[source])

    @on_arrays
    def apply_to(lists: pa.Array) -> pa.Array:
        if dtype.is_null():
            lists = lists.cast(pa.list_(pa.null()))
        elements, lengths = elements_of(lists)
        results = program.run(pa.RecordBatch.from_arrays([elements], schema=element.to_arrow())).column(0)
        if verb == "filter":
            kept = pc.fill_null(results.cast(pa.bool_()), False)
            parents = np.repeat(np.arange(len(lists)), lengths)[numpy_values(kept)]
            return to_lists(elements.filter(kept), np.bincount(parents, minlength=len(lists)), validity(lists))
        return to_lists(results, lengths, validity(lists))

    return apply

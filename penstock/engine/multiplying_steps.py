"""Steps that multiply rows: explode and unpivot. Their output comes in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import ComputeError
from penstock.expr.arrays import elements_of, text_bytes
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, ColumnRef
from penstock.plan.stages import Melt
from penstock.types import DataType, Schema, supertype
from penstock.types.plain import arrow_array, arrow_numbers

PIECE_NBYTES = 8 * 2**20

Numbers = np.ndarray[Any, Any]


def explode(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield one row per list element. Lists exploded together must have equal lengths in every row."""
    lists = {name: elements_of(_as_lists(batch.column(name))) for name in columns}
    elements = {name: values for name, (values, _) in lists.items()}
    lengths = {name: counts for name, (_, counts) in lists.items()}
    counts = lengths[columns[0]]
    for name in columns[1:]:
        if not np.array_equal(lengths[name], counts):
            row = int(np.argmax(lengths[name] != counts))
            raise ComputeError(
                f"explode: in one row {columns[0]!r} has {counts[row]} elements and {name!r} {lengths[name][row]}; "
                "lists exploded together must have equal lengths"
            )
    repeats, starts = np.maximum(counts, 1), np.cumsum(counts) - counts
    ends = np.cumsum(repeats)

    def piece(start: int, stop: int) -> pa.RecordBatch:
        """Return the output rows from ``start`` to ``stop``."""
        first, last = np.searchsorted(ends, [start, stop - 1], "right") if stop else (0, -1)
        rows = slice(first, last + 1)
        times, begins = repeats[rows].copy(), starts[rows].copy()
        if stop:
            lead = start - (ends[first] - repeats[first])
            times[-1] -= ends[last] - stop
            times[0] -= lead
            begins[0] += lead
        parents = arrow_numbers(np.repeat(np.arange(first, last + 1), times))
        within = np.arange(stop - start) - np.repeat(np.cumsum(times) - times, times)
        is_empty = counts[rows] == 0
        indices = arrow_numbers(np.repeat(begins, times) + within, np.repeat(is_empty, times))
        if is_empty.any() or not stop:
            parts = {name: array.take(indices) for name, array in elements.items()}
        else:  # the elements are the column already: images are not copied
            parts = {name: array.slice(begins[0], stop - start) for name, array in elements.items()}
        arrays = [parts[name] if name in lists else batch.column(name).take(parents) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    others = [batch.column(name) for name in batch.schema.names if name not in lists]
    nbytes_elements = sum(array.nbytes for array in elements.values()) // max(int(counts.sum()), 1)
    bounds = piece_bounds(repeats, row_nbytes(others, batch.num_rows) + nbytes_elements)
    return (piece(start, stop) for start, stop in pairwise(bounds))


def _as_lists(array: pa.Array) -> pa.Array:
    """Return fixed-size lists as lists whose null rows hold no elements, and a column of nulls as null lists."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.list_(pa.null()))
    if pa.types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_type))
    return array


def melt(step: Melt, schema: Schema) -> Callable[[pa.RecordBatch, int], Iterator[pa.RecordBatch]]:
    """Return a function that yields a row for each of a row's values, with the row's ids."""
    common = DataType.null()
    for name in step.values:
        common = supertype(common, schema[name].dtype) or common
    programs = [
        Program([*(ColumnRef(i) for i in step.ids), Alias(ColumnRef(name), step.value_name)], schema)
        for name in step.values
    ]
    width = len(step.values)

    def piece(batch: pa.RecordBatch) -> pa.RecordBatch:
        num_rows = batch.num_rows
        parts = [program.run(batch) for program in programs]
        values = pa.concat_arrays([part.column(step.value_name).cast(common.arrow) for part in parts])
        by_row = arrow_numbers(np.arange(num_rows * width).reshape(width, num_rows).T.reshape(-1))
        parents = arrow_numbers(np.repeat(np.arange(num_rows), width))
        columns = {name: batch.column(name).take(parents) for name in step.ids}
        columns[step.variable_name] = arrow_array(list(step.values) * num_rows, pa.string())
        columns[step.value_name] = values.take(by_row)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def apply(batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        ids = row_nbytes([batch.column(name) for name in step.ids], batch.num_rows)
        values = row_nbytes([batch.column(name) for name in step.values], batch.num_rows)
        bounds = piece_bounds(np.ones(batch.num_rows, np.int64), ids * width + values)
        return (piece(batch.slice(start, stop - start)) for start, stop in pairwise(bounds))

    return apply


def row_nbytes(columns: Sequence[pa.Array], num_rows: int) -> Numbers:
    """Return the bytes of each row: exact for text and binary values, the average for others."""
    nbytes = np.zeros(num_rows, np.int64)
    for column in columns:
        nbytes += column.nbytes // max(num_rows, 1)
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            _, starts, ends = text_bytes(column)
            lengths = ends - starts
            nbytes += lengths - int(lengths.mean()) if num_rows else 0
    return np.maximum(nbytes, 1)


def piece_bounds(repeats: Numbers, nbytes: Numbers) -> list[int]:
    """Return the first output row of each piece, and the end. Row i has ``nbytes[i]`` and occurs ``repeats[i]`` times.

    >>> piece_bounds(np.array([1, 4]), np.array([10, PIECE_NBYTES // 2]))
    [0, 2, 4, 5]
    """
    if not len(repeats):
        return [0, 0]
    ends, totals = np.cumsum(repeats), np.cumsum(repeats * nbytes)
    most = piece_nbytes(PIECE_NBYTES)
    targets = np.arange(most, totals[-1], most)
    rows = np.searchsorted(totals, targets)
    bounds = ends[rows] - -(-(totals[rows] - targets) // nbytes[rows])
    return [int(bound) for bound in np.unique(np.concatenate([[0], bounds, ends[-1:]]))]

"""The number of a row in the input of a query, which travels with the row in a column of its own.

A number is one integer. Its high bits name the input, such as a file; its low bits are the row's position there.
Sources add the column, filters keep it with their rows, and functions read it when a row fails. Users never see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.types.frozen import frozen
from penstock.types.plain import arrow_numbers
from penstock.types.row_ranges import RowRange

ROW_NUMBER = "penstock.row"
POSITION = "penstock.position"  # in the input of a stage; a column of rows that a worker has picked from its batch
_POSITION_BITS = 40


@frozen
class RowPlace:
    """A row of an input, counted from 0."""

    input: str
    number: int

    def __str__(self) -> str:
        return f"row {self.number} of {self.input}"


@frozen
class RowInputs:
    """The inputs of a query, in the order of their numbers. The text of each is its name."""

    inputs: tuple[object, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return RowInputs, (tuple(map(str, self.inputs)),)

    def place(self, row_number: int) -> RowPlace:
        """Return the place of a row by its value in the column ``ROW_NUMBER``.

        >>> batch = next(numbered([pa.record_batch({"a": ["x", "y", "z"]})], 1, [RowRange(2, 4), RowRange(9, None)]))
        >>> [str(RowInputs(("a.csv", "b.csv")).place(number)) for number in batch.column(ROW_NUMBER).to_pylist()]
        ['row 2 of b.csv', 'row 3 of b.csv', 'row 9 of b.csv']
        """
        position = row_number & ((1 << _POSITION_BITS) - 1)
        return RowPlace(str(self.inputs[row_number >> _POSITION_BITS]), position)


def numbered(
    batches: Iterable[pa.RecordBatch], input_number: int, ranges: Sequence[RowRange] = (RowRange(0, None),)
) -> Iterator[pa.RecordBatch]:
    """Add the column ``ROW_NUMBER`` to batches whose rows are the ``ranges`` of the input, one after another."""
    left = iter(ranges)
    start, stop = next(left)
    for batch in batches:
        pieces, num_missing = [], batch.num_rows
        while num_missing:
            if start == stop:
                start, stop = next(left)
            size = num_missing if stop is None else min(num_missing, stop - start)
            pieces.append(np.arange(start, start + size, dtype=np.int64))
            start, num_missing = start + size, num_missing - size
        positions = pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.int64), *pieces])
        yield _with_column(batch, positions + (input_number << _POSITION_BITS))


def numbered_inputs(batches: Iterable[pa.RecordBatch], first_input: int) -> Iterator[pa.RecordBatch]:
    """Add the column ``ROW_NUMBER`` to batches whose rows are inputs of one row each, such as files."""
    for batch in batches:
        numbers = np.arange(first_input, first_input + batch.num_rows, dtype=np.int64)
        yield _with_column(batch, numbers << _POSITION_BITS)
        first_input += batch.num_rows


def _with_column(batch: pa.RecordBatch, numbers: np.ndarray[Any, Any]) -> pa.RecordBatch:
    columns, names = [*batch.columns, arrow_numbers(numbers)], [*batch.schema.names, ROW_NUMBER]
    return pa.RecordBatch.from_arrays(columns, names=names)


def without_row_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([ROW_NUMBER]) if ROW_NUMBER in batch.schema.names else batch

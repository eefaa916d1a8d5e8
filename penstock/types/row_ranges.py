"""Ranges of rows of a table that comes in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa


class RowRange(NamedTuple):
    """Rows from ``start`` to before ``stop``; None: to the end."""

    start: int
    stop: int | None


def rows_within(
    batches: Iterable[pa.RecordBatch | pa.Table], ranges: Sequence[tuple[int, int | None]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows within some ranges, which are sorted; stop reading after the last one.

    >>> batches = [pa.record_batch({"a": [0, 1, 2]}), pa.record_batch({"a": [3, 4]})]
    >>> [batch.column(0).to_pylist() for batch in rows_within(batches, [(1, 2), (2, 4)])]
    [[1], [2], [3]]
    """
    left, position = list(ranges), 0
    for given in batches:
        for batch in given.to_batches() if isinstance(given, pa.Table) else (given,):
            end = position + batch.num_rows
            for start, stop in left:
                first, last = max(start, position), end if stop is None else min(stop, end)
                if first < last:
                    yield batch.slice(first - position, last - first)
            position = end
            left = [each for each in left if each[1] is None or each[1] > position]
            if not left:
                return

"""Ranges of rows of a table that comes in batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

Piece = tuple[str, int, int]  # rows of a source: its name, the first row, the row after the last


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


def rows_of_pieces(
    read: Callable[[str], Iterator[pa.RecordBatch]], pieces: Iterable[Piece]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some pieces, one after another. Pieces of one source that are in order read it once.

    >>> x = [pa.record_batch({"a": [0, 1, 2]}), pa.record_batch({"a": [3]})]
    >>> batches = {"x": x, "y": [pa.record_batch({"a": [9]})]}
    >>> pieces = [("x", 0, 1), ("y", 0, 1), ("x", 2, 4)]
    >>> [batch.column(0).to_pylist() for batch in rows_of_pieces(lambda name: iter(batches[name]), pieces)]
    [[0], [9], [2], [3]]
    """
    readers: dict[str, tuple[Iterator[pa.RecordBatch], pa.RecordBatch, int]] = {}  # with a batch and its first row
    for source, start, stop in pieces:
        batches, batch, first = readers.get(source, (iter(()), None, sys.maxsize))
        if first > start:
            batches = read(source)
            batch, first = next(batches), 0
        while start < stop:
            if start < first + batch.num_rows:
                part = batch.slice(start - first, stop - start)
                start += part.num_rows
                yield part
            else:
                batch, first = next(batches), first + batch.num_rows
        readers[source] = batches, batch, first

"""Sizes of batches and tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from penstock.config import piece_nbytes

BATCH_ROWS = 128 * 1024
BATCH_NBYTES = 16 * 2**20
"""A batch is large enough to hide the work per batch, small enough that hundreds fit in memory (``piece_nbytes``)."""

TASK_ROWS = 2**20
TASK_NBYTES = 64 * 2**20
"""The maximum bytes that a task reads, small enough that one large file keeps all cores busy."""

COLUMN_NBYTES = 32 * 2**10  # least bytes of a column in a batch: each column costs about ten microseconds

Item = TypeVar("Item")


@functools.lru_cache(maxsize=64)  # small files often have the same number of rows
def rows_alone(num_rows: int) -> pa.RecordBatch:
    """Return a batch that has rows but no columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(num_rows)], names=["rows"]).select([])


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield ``batch`` in slices of moderate size, without a copy."""
    max_nbytes = _batch_nbytes(batch.num_columns)
    # An upper bound that is found quickly: to ask for nbytes takes some microseconds for each column.
    if batch.num_rows <= BATCH_ROWS and batch.get_total_buffer_size() <= max_nbytes:
        yield batch
        return
    pieces = max(-(-batch.num_rows // BATCH_ROWS), min(round(batch.nbytes / max_nbytes), batch.num_rows))
    if pieces <= 1:
        yield batch
        return
    rows = -(-batch.num_rows // pieces)
    for offset in range(0, batch.num_rows, rows):
        yield batch.slice(offset, rows)


def rows_per_batch(num_rows: int, nbytes: int, num_columns: int = 1) -> int:
    """Return the number of rows of a batch, where ``num_rows`` rows are ``nbytes`` large.

    >>> rows_per_batch(1000, 8000), rows_per_batch(1000, 4 * 2**30), rows_per_batch(1000, 4 * 2**30, 10_000)
    (131072, 3, 76)
    """
    return max(1, min(BATCH_ROWS, _batch_nbytes(num_columns) * num_rows // max(nbytes, 1)))


def _batch_nbytes(num_columns: int) -> int:
    return piece_nbytes(max(BATCH_NBYTES, num_columns * COLUMN_NBYTES))


def grouped(
    items: Iterable[Item], nbytes_of: Callable[[Item], int], max_nbytes: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """Yield items in groups; a group ends when it has ``max_nbytes`` bytes or ``max_items`` items.

    >>> list(grouped(["a", "bcd", "e", "f"], len, 4, max_items=3))
    [['a', 'bcd'], ['e', 'f']]
    """
    group: list[Item] = []
    nbytes = 0
    for item in items:
        group.append(item)
        nbytes += nbytes_of(item)
        if nbytes >= max_nbytes or len(group) == max_items:
            yield group
            group, nbytes = [], 0
    if group:
        yield group

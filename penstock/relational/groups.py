"""Cut ordered rows into groups: each becomes one row with a list, so nothing after it can split a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.relational.arrow import to_duckdb
from penstock.types.plain import arrow_array, numpy_values


def whole_groups(batches: Iterable[pa.RecordBatch], keys: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the groups of rows that are ordered by ``keys``. Groups wait until another one starts in a later batch."""
    waiting: list[pa.RecordBatch] = []
    starts: list[int] = []  # the first rows of the groups that wait
    for batch in batches:
        found = _starts(waiting[-1:], batch, keys).tolist()
        if waiting and found:
            yield _lists([*waiting, batch.slice(0, found[0])], starts, schema)
            waiting, starts = [batch.slice(found[0])], [start - found[0] for start in found]
        else:
            waiting, starts = [*waiting, batch], starts or found
    if waiting:
        yield _lists(waiting, starts, schema)


def _starts(previous: Sequence[pa.RecordBatch], batch: pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the rows of a batch that start a group: the very first row, and each row whose keys differ from the row
    before.
    """
    before = [part.slice(part.num_rows - 1) for part in previous]
    is_start = np.zeros(batch.num_rows, bool)
    for key in keys:
        column = pa.concat_arrays([to_duckdb(part.select([key])).column(0) for part in (*before, batch)])
        is_start[1 - len(before) :] |= _changes(column)
    if not before:
        is_start[:1] = True
    return np.flatnonzero(is_start)


def _changes(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return True for each value, except the first, that differs from the value before it. Null equals null, NaN equals
    NaN."""
    if pt.is_nested(column.type):
        column = arrow_array(map(repr, column.to_pylist()), pa.string())
    here, before = column[1:], column[:-1]
    differs: npt.NDArray[np.bool_] = _flags(pc.not_equal(here, before)) | (
        _flags(pc.is_null(here)) != _flags(pc.is_null(before))
    )
    if pt.is_floating(column.type):
        differs &= ~_flags(pc.and_(pc.is_nan(here), pc.is_nan(before)))
    return differs


def _flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = numpy_values(pc.fill_null(column, False))
    return flags


def _lists(parts: Sequence[pa.RecordBatch], starts: Sequence[int], schema: pa.Schema) -> pa.RecordBatch:
    """Return a list for each group of rows."""
    dtype = schema.field(0).type
    rows = pa.concat_batches(parts).select([field.name for field in dtype.value_type])
    structs = pa.StructArray.from_arrays(rows.columns, fields=list(dtype.value_type))
    lists = pa.ListArray.from_arrays(arrow_array([*starts, rows.num_rows], pa.int32()), structs, type=dtype)
    return pa.RecordBatch.from_arrays([lists], schema=schema)

"""Batches in the formats of ``map_batches``: dicts of arrays or tensors, Arrow tables, DataFrames, lists of dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa

from penstock.errors import check_choice
from penstock.expr.udf import BatchFormat
from penstock.types import Series, default_numpy, object_array

if TYPE_CHECKING:
    import pandas


def checked_format(verb: str, batch_format: str) -> BatchFormat:
    """Return a known format, with ``default`` replaced by its name, or raise an error that lists the formats."""
    known: dict[str, BatchFormat] = {name: name for name in get_args(BatchFormat)}
    known["default"] = "numpy"
    check_choice(f"{verb}: batch_format", batch_format, known)
    return known[batch_format]


def batch_in_format(batch: pa.RecordBatch, batch_format: BatchFormat, *, zero_copy: bool | None = False) -> Any:
    """Return a batch in a format. Arrow data shares memory with it; the caller may change all other data.

    With ``zero_copy`` of True or None arrays share memory too if the layouts agree, and are read-only then. With True
    so do tensors, which must not be changed, as torch cannot make them read-only.
    """
    match batch_format:
        case "pyarrow":
            return pa.Table.from_batches([batch])
        case "pandas":
            return to_pandas(batch)
        case "pylist":
            columns = [Series(column).to_pylist() for column in batch.columns]
            names = batch.schema.names
            if not names:
                return [{} for _ in range(batch.num_rows)]
            return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        case "torch":
            names = batch.schema.names
            return {name: Series(batch.column(name), name).to_torch(zero_copy=zero_copy is True) for name in names}
        case "numpy":
            arrays = {name: default_numpy(batch.column(name)) for name in batch.schema.names}
            return arrays if zero_copy is not False else {name: writeable(array) for name, array in arrays.items()}


def to_pandas(rows: pa.RecordBatch | pa.Table) -> pandas.DataFrame:
    """Return rows as a pandas DataFrame, with ndarrays for embeddings, tensors and images."""
    import pandas

    columns = {name: _pandas_column(rows.column(name)) for name in rows.schema.names}
    return pandas.DataFrame(columns, index=pandas.RangeIndex(rows.num_rows))


def _pandas_column(column: pa.Array | pa.ChunkedArray) -> Any:
    if not _needs_python(column.type):
        return column.to_pandas()
    values = np.empty(len(column), object)  # filled one by one: NumPy would stack arrays of one shape
    for row, value in enumerate(Series(column).to_pylist()):
        values[row] = value
    return values


def _needs_python(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType) or pa.types.is_union(dtype):
        return True
    return any(_needs_python(dtype.field(i).type) for i in range(dtype.num_fields))


# --- read-only arrays -------------------------------------------------------------------------------------------------


def writeable(value: Any) -> Any:
    """Return an array that can be changed, with all arrays in it: a copy if it is read-only."""
    if not isinstance(value, np.ndarray) or not _is_read_only(value):
        return value
    return object_array([writeable(each) for each in value]) if value.dtype.kind == "O" else value.copy()


def _is_read_only(array: np.ndarray[Any, Any]) -> bool:
    if not array.flags.writeable:
        return True
    return array.dtype.kind == "O" and any(isinstance(each, np.ndarray) and not each.flags.writeable for each in array)

"""Batches in the formats of ``map_batches``: dicts of arrays or tensors, Arrow tables, DataFrames, lists of dicts.

Neither arrays nor Python values hold all types: a nullable integer becomes a float with NaN, a timestamp loses its
zone, an embedding becomes a plain array. So Penstock compares what a function returns with what it was
given, and puts the original column in place of each unchanged one.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import check_choice
from penstock.expr.udf import BatchFormat
from penstock.types import Series, default_numpy, object_array
from penstock.types.convert import is_pandas
from penstock.types.ndarrays import is_array
from penstock.types.plain import arrow_numbers

if TYPE_CHECKING:
    import pandas

IMMUTABLE = (str, bytes, int, type(None), dt.date, dt.time, dt.timedelta, decimal.Decimal)


def checked_format(verb: str, batch_format: str) -> BatchFormat:
    """Return a known format, with ``default`` replaced by its name, or raise an error that lists the formats."""
    known: dict[str, BatchFormat] = {name: name for name in get_args(BatchFormat)}
    known["default"] = "numpy"
    check_choice(f"{verb}: batch_format", batch_format, known)
    return known[batch_format]


def batch_in_format(batch: pa.RecordBatch, batch_format: BatchFormat, *, zero_copy: bool | None = False) -> Any:
    """Return a batch in a format. Arrow data shares memory with it; the caller may change all other data.

    Unless ``zero_copy`` is False, arrays share memory if the layouts agree, and are then read-only. With True, tensors
    do as well; do not change them, because torch cannot make them read-only.
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


# --- unchanged columns ------------------------------------------------------------------------------------------------


def restore_columns(result: Any, given: Any, batch: pa.RecordBatch, batch_format: BatchFormat) -> Any:
    """Return a result in which the original columns replace the ones that the function left unchanged.

    A column is recognized by its name, or as the same array. ``given`` is the batch that the function got and may have
    changed.
    """
    if isinstance(result, Iterator):
        return (restore_columns(each, given, batch, batch_format) for each in result)
    match batch_format:
        case "numpy" | "torch" if isinstance(result, Mapping):
            return _with_arrays(result, given, batch, batch_format)
        case "pandas" if is_pandas(result) and hasattr(result, "columns"):
            return _with_series(result, batch)
        case "pylist" if isinstance(result, list):
            return _with_values(result, given, batch)
        case _:
            return result


def _with_arrays(
    result: Mapping[str, Any], given: Mapping[str, Any], batch: pa.RecordBatch, batch_format: BatchFormat
) -> dict[str, Any]:
    known = set(batch.schema.names)
    names = {id(value): name for name, value in given.items() if name in known}  # the function may have added others
    restored = dict(result)
    for name, value in result.items():
        origin = names.get(id(value), name)
        if origin not in known or not is_array(value) or is_kept_by_arrays(column := batch.column(origin)):
            continue
        original = batch_in_format(batch.select([origin]), batch_format, zero_copy=True)[origin]
        if _is_unchanged(value, original):
            restored[name] = column
    return restored


def is_kept_by_arrays(column: pa.Array) -> bool:
    """Return True if a column is the same after conversion to an array and back."""
    if pt.is_string(column.type) or pt.is_binary(column.type):
        return bool(column.null_count < len(column))
    is_plain = pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_boolean(column.type)
    return is_plain and not column.null_count


def _with_series(result: Any, batch: pa.RecordBatch) -> Any:
    """Restore columns of a DataFrame. Its index tells which rows it has, as after a filter or a sort."""
    names = [
        name
        for name in dict.fromkeys(result.columns)
        if name in batch.schema.names and not _is_kept_by_pandas(batch.column(name))
    ]
    rows = _rows_of(result, batch.num_rows)
    if not names or rows is None:
        return result
    originals = batch_in_format(batch.select(names), "pandas")
    originals = originals if isinstance(rows, slice) else originals.take(rows)
    columns = dict(result.items()) if len(set(result.columns)) == result.shape[1] else {}
    for name in names:
        if name in columns and _is_unchanged(columns[name], originals[name]):
            column = batch.column(name)
            columns[name] = column if isinstance(rows, slice) else column.take(arrow_numbers(rows))
    return columns or result


def _rows_of(result: Any, num_rows: int) -> Any:
    """Return which rows of the batch a DataFrame has: a slice for all in order, or row numbers; None if unknown."""
    import pandas

    index = result.index
    if index.equals(pandas.RangeIndex(num_rows)):
        return slice(None)
    if index.dtype.kind in "iu" and index.nlevels == 1 and len(index) and index.min() >= 0 and index.max() < num_rows:
        return index.to_numpy().astype(np.int64)
    return slice(None) if len(index) == num_rows else None


def _is_kept_by_pandas(column: pa.Array) -> bool:
    """Return True if a column is the same after conversion to pandas and back. There, NaN and null are one value."""
    return is_kept_by_arrays(column) and not pt.is_floating(column.type)


def _with_values(result: list[Any], given: list[dict[str, Any]], batch: pa.RecordBatch) -> Any:
    """Restore columns of a list of dicts: the function's own dicts, or as many as it was given."""
    if not all(isinstance(row, dict) for row in result):
        return result
    numbers = {id(row): number for number, row in enumerate(given)}
    parents = [numbers.get(id(row), -1) for row in result]
    if -1 not in parents:
        return restored_rows(result, parents, batch)
    return restored_rows(result, range(len(result)), batch) if len(result) == len(given) else columns_of(result)


def restored_rows(
    rows: Sequence[Mapping[str, Any]],
    parents: Sequence[int],
    batch: pa.RecordBatch,
    is_kept: Callable[[pa.Array], bool] | None = None,
) -> dict[str, Any]:
    """Return rows as columns; an original column replaces one that still has the values of the parent rows.

    Columns for which ``is_kept`` holds stay as they are.
    """
    columns: dict[str, Any] = columns_of(rows)
    numbers = np.array(parents, np.int64)
    is_whole = len(numbers) == batch.num_rows and bool((numbers == np.arange(len(numbers))).all())
    for name in columns.keys() & set(batch.schema.names):
        column = batch.column(name)
        if (is_kept or is_kept_by_lists)(column):
            continue
        column = column if is_whole else column.take(arrow_numbers(numbers))
        if _is_unchanged(columns[name], Series(column).to_pylist()):
            columns[name] = column
    return columns


def is_kept_by_lists(column: pa.Array) -> bool:
    """Return True if a column is the same after conversion to Python values and back."""
    kept = (pt.is_string, pt.is_binary, pt.is_int64, pt.is_float64, pt.is_boolean)
    return any(is_kind(column.type) for is_kind in kept) and bool(column.null_count < len(column))


def is_number_or_kept(column: pa.Array) -> bool:
    """Return True for kept columns and for numbers, which become int64 or float64 whether a row function changes them
    or not.

    Their type then does not depend on the values of a batch.
    """
    return pt.is_integer(column.type) or pt.is_floating(column.type) or is_kept_by_lists(column)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns; a row without a name has None there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(names) > 1 and all(len(row) == len(names) for row in rows):  # the quick way, if every row has every name
        return dict(zip(names, map(list, zip(*map(operator.itemgetter(*names), rows), strict=True)), strict=True))
    return {name: [row.get(name) for row in rows] for name in names}


# --- comparison -------------------------------------------------------------------------------------------------------


def _is_unchanged(value: Any, original: Any) -> bool:
    """Compare values of a column. Objects of other types count as changed, because their ``==`` may mean anything."""
    if type(value) is not type(original):
        return False
    match original:
        case np.ndarray():
            if value.shape != original.shape or value.dtype.kind != original.dtype.kind:
                return False
            if original.dtype.kind == "O":
                return all(map(_is_unchanged, value.tolist(), original.tolist()))
            is_view = value.ctypes.data == original.ctypes.data and value.strides == original.strides
            return is_view or np.array_equal(value, original, equal_nan=original.dtype.kind in "fmM")
        case dict():
            return value.keys() == original.keys() and all(_is_unchanged(value[key], original[key]) for key in value)
        case list() | tuple():
            return len(value) == len(original) and all(map(_is_unchanged, value, original))
        case float():
            return value == original or (math.isnan(value) and math.isnan(original))
        case _ if isinstance(value, IMMUTABLE):
            return bool(value == original)
        case _ if is_pandas(value):
            return _is_unchanged_series(value, original)
        case _ if is_array(value):  # a tensor of torch
            return value.dtype == original.dtype and _is_unchanged(
                *(each.detach().cpu().numpy() for each in (value, original))
            )
        case _:
            return False


def _is_unchanged_series(value: Any, original: Any) -> bool:
    if not hasattr(value, "dtype") or value.dtype != original.dtype or len(value) != len(original):
        return False
    if value.dtype == object:
        return _is_unchanged(value.to_numpy(), original.to_numpy())
    return bool(value.reset_index(drop=True).equals(original.reset_index(drop=True)))

"""Batches in the formats of ``map_batches``: dicts of arrays or tensors, Arrow tables, DataFrames, lists of dicts.

Neither arrays nor Python values hold all types: a nullable integer becomes a float with NaN, a timestamp loses its
zone, an embedding becomes a plain array. So Penstock compares what a function returns with what it was given, and puts
the original column in place of each unchanged column.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import check_choice
from penstock.expr.udf import BatchFormat
from penstock.types import Series, default_numpy, object_array
from penstock.types.convert import is_pandas
from penstock.types.ndarrays import is_array
from penstock.types.plain import arrow_numbers, contains_type, is_extension

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
    if not contains_type(column.type, is_extension):
        return column.to_pandas()
    values = np.empty(len(column), object)  # filled one by one: NumPy would stack arrays of one shape
    for row, value in enumerate(Series(column).to_pylist()):
        values[row] = value
    return values


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
    """Return a result in which the original columns replace the columns that the function left unchanged.

    A column is recognized by its name, or as the same array. ``given`` is the batch that the function got and may have
    changed.
    """
    if isinstance(result, Iterator):
        return (restore_columns(each, given, batch, batch_format) for each in result)
    match batch_format:
        case "numpy" | "torch" if isinstance(result, Mapping):
            known = set(batch.schema.names)
            names = {id(value): name for name, value in given.items() if name in known}  # the function may have added
            origins = {name: names.get(id(value), str(name)) for name, value in result.items() if is_array(value)}
            return restored(dict(result), batch, batch_format, slice(None), origins)
        case "pandas" if is_pandas(result) and hasattr(result, "columns"):
            rows, is_unique = _rows_of(result.index, batch.num_rows), result.columns.is_unique
            return result if rows is None or not is_unique else restored(dict(result.items()), batch, "pandas", rows)
        case "pylist" if isinstance(result, list) and all(isinstance(row, dict) for row in result):
            numbers = {id(row): number for number, row in enumerate(given)}
            parents = [numbers.get(id(row), -1) for row in result]  # its own dicts, or as many as it was given
            rows = slice(None) if -1 in parents and len(result) == len(given) else parents
            columns = columns_of(result)
            return columns if rows is parents and -1 in parents else restored(columns, batch, "pylist", rows)
        case _:
            return result


def _rows_of(index: Any, num_rows: int) -> Any:
    """Return which rows of the batch a DataFrame has: a slice for all in order, or row numbers; None if unknown."""
    import pandas

    if index.equals(pandas.RangeIndex(num_rows)):
        return slice(None)
    if index.dtype.kind in "iu" and index.nlevels == 1 and len(index) and index.min() >= 0 and index.max() < num_rows:
        return index.to_numpy().astype(np.int64)
    return slice(None) if len(index) == num_rows else None


def restored(
    columns: dict[str, Any],
    batch: pa.RecordBatch,
    batch_format: BatchFormat | Literal["rows"],
    rows: slice | Sequence[int],
    origins: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return columns; an original column replaces one that still has its values in some ``rows`` of the batch.

    ``origins`` are the names of the original columns, by default the same. The format ``rows`` is for functions of one
    row. Their numbers become int64 or float64, changed or not, so that types do not depend on the batch.
    """
    is_whole = isinstance(rows, slice) or np.array_equal(rows, np.arange(batch.num_rows))
    found = dict(columns)
    for name, origin in ({name: name for name in columns} if origins is None else origins).items():
        if origin not in batch.schema.names or _is_kept(column := batch.column(origin), batch_format):
            continue
        original = _formatted(column, batch_format)
        if not is_whole:
            original = original.take(rows) if is_pandas(original) else [original[row] for row in rows]  # type: ignore[union-attr]
        if _is_unchanged(columns[name], original):
            found[name] = column if is_whole else column.take(arrow_numbers(np.asarray(rows, np.int64)))
    return found


def _formatted(column: pa.Array, batch_format: BatchFormat | Literal["rows"]) -> Any:
    if batch_format in ("rows", "pylist"):
        return Series(column).to_pylist()
    if batch_format == "pandas":
        import pandas

        return pandas.Series(_pandas_column(column))
    one = pa.RecordBatch.from_arrays([column], names=[""])
    return batch_in_format(one, cast(BatchFormat, batch_format), zero_copy=True)[""]


def _is_kept(column: pa.Array, batch_format: BatchFormat | Literal["rows"]) -> bool:
    """Return True if a column is the same after conversion to a format and back. In pandas, NaN and null are one."""
    dtype, has_values = column.type, column.null_count < len(column)
    if pt.is_string(dtype) or pt.is_binary(dtype):
        return bool(has_values)
    is_number = pt.is_integer(dtype) or pt.is_floating(dtype)
    match batch_format:
        case "rows":
            return bool(is_number or (pt.is_boolean(dtype) and has_values))
        case "pylist":
            return bool(dtype in (pa.int64(), pa.float64(), pa.bool_()) and has_values)
        case "pandas" if pt.is_floating(dtype):
            return False
        case _:
            return bool((is_number or pt.is_boolean(dtype)) and not column.null_count)


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

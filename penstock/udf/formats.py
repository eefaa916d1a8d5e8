"""Batches as user code wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError, TypeMismatchError, did_you_mean
from penstock.expr.udf import BatchFormat
from penstock.types import Series, check_one_array, default_numpy, object_array

if TYPE_CHECKING:
    import pandas


def checked_format(verb: str, batch_format: str) -> BatchFormat:
    """Return the format, ``default`` by its name, or raise an error that lists those there are."""
    known: dict[str, BatchFormat] = {name: name for name in get_args(BatchFormat)}
    known["default"] = "numpy"
    if batch_format not in known:
        raise InvalidArgumentError(
            f"{verb}: batch_format={batch_format!r} is not known; use one of {', '.join(known)}."
            f"{did_you_mean(str(batch_format), known)}"
        )
    return known[batch_format]


def batch_in_format(batch: pa.RecordBatch, batch_format: BatchFormat, *, zero_copy: bool | None = False) -> Any:
    """Return a batch as user code wants it. Arrow shares its memory; anything else is the user's to change.

    With ``zero_copy`` of True or None, arrays share it too where the layouts agree, and are read-only then; with True
    tensors do as well, which must not be written to, as torch cannot see to that.
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
            given = arrays if zero_copy is not False else {name: own(array) for name, array in arrays.items()}
            return NumpyBatch(batch, given) if any(map(_has_no_array, batch.columns)) else given


class NumpyBatch(dict[str, Any]):
    """A batch with a column whose nulls leave it without an array: an error for those who ask for that column.

    Others need not know of it, and may hand it on.
    """

    def __init__(self, batch: pa.RecordBatch, arrays: dict[str, Any]) -> None:
        super().__init__(arrays)
        self._refused = {name: batch.column(name) for name in arrays if _has_no_array(batch.column(name))}

    def __getitem__(self, name: str) -> Any:
        if name in self._refused:
            check_one_array(
                self._refused[name],
                f"Column {name!r}",
                ", or use batch_format='pandas' or 'pylist', with None for each",
            )
        return super().__getitem__(name)


def _has_no_array(column: pa.Array) -> bool:
    try:
        check_one_array(column, "")
    except TypeMismatchError:
        return True
    return False


def has_read_only(given: Any) -> bool:
    """Whether a batch in NumPy's format has arrays that may only be read."""
    return isinstance(given, dict) and any(
        isinstance(array, np.ndarray) and _is_read_only(array) for array in given.values()
    )


def to_pandas(rows: pa.RecordBatch | pa.Table) -> pandas.DataFrame:
    """Return rows as a pandas DataFrame, with ndarrays for embeddings, tensors and images, and objects as they are."""
    import pandas

    columns = {name: _pandas_column(rows.column(name)) for name in rows.schema.names}
    return pandas.DataFrame(columns, index=pandas.RangeIndex(rows.num_rows))


def _pandas_column(column: pa.Array | pa.ChunkedArray) -> Any:
    if not _has_extension(column.type):
        return column.to_pandas()
    values = np.empty(len(column), object)  # filled one by one: numpy would stack arrays of one shape
    for row, value in enumerate(Series(column).to_pylist()):
        values[row] = value
    return values


def _has_extension(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return True
    return any(_has_extension(dtype.field(i).type) for i in range(dtype.num_fields))


def own(value: Any) -> Any:
    """Return an array that may be written to, and so may the arrays in it: a copy where it may only be read."""
    if not isinstance(value, np.ndarray) or not _is_read_only(value):
        return value
    return object_array([own(each) for each in value]) if value.dtype.kind == "O" else value.copy()


def _is_read_only(array: np.ndarray[Any, Any]) -> bool:
    if not array.flags.writeable:
        return True
    return array.dtype.kind == "O" and any(isinstance(each, np.ndarray) and not each.flags.writeable for each in array)

"""Convert what users pass in and what their functions return to Arrow."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.errors import TypeMismatchError, shortened
from penstock.types import arrays
from penstock.types.cast import cast
from penstock.types.datatype import DataType
from penstock.types.encode import REFUSALS, encode, pickled
from penstock.types.infer import infer_dtype, needs_inference
from penstock.types.normalize import normalize, normalize_batch
from penstock.types.plain import arrow_array


@runtime_checkable
class ArrowConvertible(Protocol):
    """A column that converts itself to Arrow, such as ``Series``."""

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array: ...


def to_arrow_array(values: Any, dtype: DataType | None, *, what: str) -> pa.Array:
    """Return one value for each row as a normalized Arrow array, of ``dtype`` if it is given.

    ``values`` is a list, tuple or range of Python values, arrays or images; an ndarray or a torch tensor, whose first
    dimension is the rows; a pandas Series; an Arrow array; or a Series. None is null. Without a dtype, infer one and
    pickle objects that Arrow has no type for. ``what`` names the origin in errors. The result may share memory with
    ``values``.

    >>> to_arrow_array([[1, 2], None], None, what="column 'x'").type
    ListType(list<item: int64>)
    """
    if isinstance(values, ArrowConvertible) and not is_pandas(values):
        values = values.__arrow_array__()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        array = normalize(_one_chunk(values, what))
        return array if dtype is None else cast(array, dtype, what=what)
    if is_pandas(values):
        return _from_pandas(values, dtype, what)
    if _is_masked(values):
        return _from_masked(values, dtype, what)
    if arrays.is_array(values):
        return _from_array(arrays.as_ndarray(values), dtype, what)
    if isinstance(values, list | tuple | range | deque) or (
        isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray | memoryview)
    ):
        rows = values if isinstance(values, list | tuple) else list(values)
        return _infer(rows, what) if dtype is None else _encode(rows, dtype, what)
    raise TypeMismatchError(
        f"{what}: has {shortened(repr(values))} of type {type(values).__name__}, expected one value for each row: "
        "a list, ndarray, torch tensor, pandas Series, Arrow array or Series."
    )


def to_batch(output: Any, what: str) -> pa.RecordBatch:
    """Return the result of a batch function as one normalized record batch.

    The result is a dict of arrays or lists, a pyarrow Table or RecordBatch, or a pandas DataFrame, whose index is
    dropped. Raise TypeMismatchError for anything else, and for columns of unequal lengths.

    >>> to_batch({"x": [1, 2]}, "map_batches").num_rows
    2
    """
    if isinstance(output, pa.RecordBatch | pa.Table):
        columns = list(zip(output.schema.names, output.columns, strict=True))
    elif isinstance(output, Mapping) or (is_pandas(output) and hasattr(output, "columns")):
        columns = list(output.items())
    else:
        raise TypeMismatchError(
            f"{what}: returned {shortened(repr(output))} of type {type(output).__name__}, expected a dict of arrays or "
            "lists, a pyarrow Table or RecordBatch, or a pandas DataFrame."
        )
    names = [str(name) for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise TypeMismatchError(f"{what}: returned two columns named {name!r}; names must be unique.")
    if isinstance(output, pa.RecordBatch):
        return normalize_batch(output)
    converted = [to_arrow_array(values, None, what=f"{what}: column {name!r}") for name, values in columns]
    lengths = [len(array) for array in converted]
    if len(set(lengths)) > 1:
        listing = ", ".join(f"{name!r} has {length}" for name, length in zip(names, lengths, strict=True))
        raise TypeMismatchError(
            f"{what}: returned columns of unequal lengths: {listing}; each row needs a value in each."
        )
    return pa.RecordBatch.from_arrays(converted, names=names)


def _is_masked(values: Any) -> bool:
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # None while another thread imports it
    return masked is not None and isinstance(values, masked)


def _from_masked(values: Any, dtype: DataType | None, what: str) -> pa.Array:
    """Return the rows of a NumPy masked array; a row that is masked entirely is null."""
    mask: Any = np.broadcast_to(values.mask, values.shape).reshape(len(values), -1)
    is_null = mask.any(axis=1)
    if (is_null != mask.all(axis=1)).any():
        raise TypeMismatchError(f"{what}: a masked array has rows that are masked in part only; fill or split them")
    rows = [None if gone else row for gone, row in zip(is_null.tolist(), values.data, strict=True)]
    return _infer(rows, what) if dtype is None else _encode(rows, dtype, what)


def is_pandas(values: Any) -> bool:
    """Check whether an object belongs to pandas, without importing pandas."""
    return type(values).__module__.partition(".")[0] == "pandas"


def _one_chunk(array: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    if isinstance(array, pa.Array):
        return array
    try:
        combined = array.combine_chunks()
    except pa.ArrowInvalid as exc:
        raise arrays.too_large(what) from exc
    if isinstance(combined, pa.ChunkedArray):
        raise arrays.too_large(what)
    return combined


def _from_pandas(values: Any, dtype: DataType | None, what: str) -> pa.Array:
    if str(values.dtype) == "object":
        rows = [None if missing else value for value, missing in zip(values, values.isna(), strict=True)]
        return to_arrow_array(rows, dtype, what=what)
    # pandas marks missing values by NaN and NaT, so they become null.
    return to_arrow_array(pa.Array.from_pandas(values), dtype, what=what)


def _from_array(values: arrays.NDArray, dtype: DataType | None, what: str) -> pa.Array:
    is_pickled = dtype is not None and dtype.is_python()
    if values.ndim and (values.dtype == object or is_pickled):
        return to_arrow_array(values.tolist() if values.ndim == 1 else list(values), dtype, what=what)
    try:
        array = arrays.from_ndarray(values, dtype, what)
    except REFUSALS as exc:
        if isinstance(exc, TypeMismatchError):
            raise
        raise TypeMismatchError(f"{what}: cannot convert an array of {values.dtype} to {dtype}: {exc}") from exc
    return array if dtype is None else cast(array, dtype, what=what)


def _infer(values: Sequence[Any], what: str) -> pa.Array:
    first = next((value for value in values if value is not None), None)
    if not needs_inference(first):
        try:
            return normalize(_one_chunk(arrow_array(values), what))
        except REFUSALS:
            pass  # pyarrow has no single type for them: infer one from each value
    dtype = infer_dtype(values, what)
    return pickled(values) if dtype.is_python() else _encode(values, dtype, what)


def _encode(values: Sequence[Any], dtype: DataType, what: str) -> pa.Array:
    try:
        return encode(values, dtype)
    except REFUSALS as exc:
        raise _encoding_error(values, dtype, what, exc) from exc


def _encoding_error(values: Sequence[Any], dtype: DataType, what: str, reason: Exception) -> Exception:
    """Return the error that names the first row that does not fit."""
    for row, value in enumerate(values):
        try:
            encode([value], dtype)
        except REFUSALS as exc:
            return TypeMismatchError(
                f"{what}: has {shortened(repr(value))} of type {type(value).__name__} at row {row}, expected {dtype}; "
                f"{shortened(str(exc), 160)}"
            )
    return TypeMismatchError(f"{what}: the values do not fit a column of {dtype}: {reason}")

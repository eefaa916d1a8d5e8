"""Convert what users pass in and what their functions return to Arrow."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.errors import TypeMismatchError, shortened
from penstock.storage.file import File
from penstock.types import ndarrays
from penstock.types.cast import cast
from penstock.types.datatype import DataType
from penstock.types.encode import REFUSALS, encode, is_pil_image, pickled
from penstock.types.hints import dtype_from_hint, is_named_tuple, is_pydantic_model, merged_dtype
from penstock.types.normalize import normalize, normalize_batch
from penstock.types.plain import arrow_array
from penstock.types.supertype import supertype


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
    is_plain = isinstance(
        values, list | np.ndarray | pa.Array | pa.ChunkedArray
    )  # asking for a protocol takes ten microseconds
    if not is_plain and isinstance(values, ArrowConvertible) and not is_pandas(values):
        values = values.__arrow_array__()
    if isinstance(values, np.ndarray) and hasattr(values, "mask"):
        if values.ndim != 1:
            raise TypeMismatchError(f"{what}: has a masked array of shape {values.shape}; fill the masked values.")
        values = pa.array(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        array = normalize(_one_chunk(values, what))
        return array if dtype is None else cast(array, dtype, what=what)
    if is_pandas(values):
        return _from_pandas(values, dtype, what)
    if ndarrays.is_array(values):
        return _from_array(ndarrays.as_ndarray(values), dtype, what)
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
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
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


def is_pandas(values: Any) -> bool:
    """Check whether an object belongs to pandas, without importing pandas."""
    return type(values).__module__.partition(".")[0] == "pandas"


def _one_chunk(array: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    if isinstance(array, pa.Array):
        return array
    try:
        combined = array.combine_chunks()
    except pa.ArrowInvalid as exc:
        raise ndarrays.too_large(what) from exc
    if isinstance(combined, pa.ChunkedArray):
        raise ndarrays.too_large(what)
    return combined


def _from_pandas(values: Any, dtype: DataType | None, what: str) -> pa.Array:
    if str(values.dtype) == "object":
        rows = [None if missing else value for value, missing in zip(values, values.isna(), strict=True)]
        return to_arrow_array(rows, dtype, what=what)
    # pandas marks missing values by NaN and NaT, so they become null.
    return to_arrow_array(pa.Array.from_pandas(values), dtype, what=what)


def _from_array(values: ndarrays.NDArray, dtype: DataType | None, what: str) -> pa.Array:
    is_pickled = dtype is not None and dtype.is_python()
    if values.ndim and (values.dtype == object or is_pickled):
        return to_arrow_array(values.tolist() if values.ndim == 1 else list(values), dtype, what=what)
    try:
        array = ndarrays.from_ndarray(values, dtype, what)
    except REFUSALS as exc:
        if isinstance(exc, TypeMismatchError):
            raise
        raise TypeMismatchError(f"{what}: cannot convert an array of {values.dtype} to {dtype}: {exc}") from exc
    return array if dtype is None else cast(array, dtype, what=what)


def _infer(values: Sequence[Any], what: str) -> pa.Array:
    first = next((value for value in values if value is not None), None)
    if not _needs_inference(first):
        try:
            return normalize(_one_chunk(arrow_array(values), what))
        except REFUSALS:
            pass  # pyarrow has no single type for them: infer one from each value
    dtype = _inferred_dtype(values, what)
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


# --- inference --------------------------------------------------------------------------------------------------------


def _inferred_dtype(values: Sequence[Any], what: str) -> DataType:
    """Return the type that holds all the values; ``python`` if they are objects, or records without a common type.

    Refuse scalars of types that do not mix, such as 1 and "a": they are usually a mistake.
    """
    if set(map(type, values)) <= {int, NoneType}:
        return _integers(values)
    merged = DataType.null()
    for row, value in enumerate(values):
        dtype = _dtype_of(value)
        if dtype is merged:
            continue
        wider = None if dtype is None else supertype(merged, dtype)
        if wider is None:
            if dtype is not None and dtype.is_comparable() and merged.is_comparable():
                raise TypeMismatchError(
                    f"{what}: has {shortened(repr(value))} of type {type(value).__name__} at row {row}, expected "
                    f"{merged} like the rows before; make the values one type, or wrap them with "
                    "ps.Series.from_pylist(values, dtype=ps.DataType.python())."
                )
            return DataType.python()
        merged = wider
    return merged


def _needs_inference(value: Any) -> bool:
    """Check whether pyarrow infers another type for ``value`` than we do: arrays, images and records."""
    cls = type(value)
    return (
        ndarrays.is_array(value)
        or is_pil_image(value)
        or isinstance(value, enum.Enum | File)
        or dataclasses.is_dataclass(cls)
        or is_named_tuple(cls)
        or is_pydantic_model(cls)
    )


def _dtype_of(value: Any) -> DataType | None:
    """Return the type of one value, or None if Arrow has no type for it."""
    if ndarrays.is_array(value):
        array = ndarrays.as_ndarray(value)
        return _array_dtype(array.dtype, array.shape)
    if is_pil_image(value):
        return DataType.image()
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return None
        fields = {name: _dtype_of(item) for name, item in value.items()}
        return None if None in fields.values() else DataType.struct(fields)
    if isinstance(value, list | set | frozenset) or (isinstance(value, tuple) and not is_named_tuple(type(value))):
        inner = _merged([_dtype_of(item) for item in value])
        return None if inner is None else DataType.list(inner)
    if _needs_inference(value):
        return _known(dtype_from_hint(type(value)))
    if isinstance(value, np.datetime64 | np.timedelta64):
        return DataType(ndarrays.from_ndarray(np.asarray([value]), None, "value").type)
    if isinstance(value, int) and 2**63 <= value < 2**64:
        return DataType.uint64()
    try:
        return DataType(pa.array([value]).type)
    except REFUSALS:
        return None


@lru_cache(maxsize=256)
def _array_dtype(numpy_dtype: np.dtype[Any], shape: tuple[int, ...]) -> DataType | None:
    inner = _known(dtype_from_hint(numpy_dtype))
    if inner is None or not shape:
        return inner
    return DataType.tensor(inner, shape if all(shape) else None)


def _integers(values: Sequence[int | None]) -> DataType:
    """Return the type of integers beyond int64; floats would lose digits."""
    numbers = [value for value in values if value is not None]
    return DataType.uint64() if min(numbers) >= 0 and max(numbers) < 2**64 else DataType.python()


def _known(dtype: DataType) -> DataType | None:
    return None if dtype.is_python() else dtype


def _merged(dtypes: Sequence[DataType | None]) -> DataType | None:
    known = [dtype for dtype in dtypes if dtype is not None]
    return _known(merged_dtype(known)) if len(known) == len(dtypes) else None

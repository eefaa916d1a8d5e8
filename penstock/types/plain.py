"""Convert plain Python values to Arrow, and numbers to NumPy, without importing pandas.

``pyarrow.array`` and ``to_numpy`` import pandas, if it is installed, to recognize its objects: that takes a third of a
second on the first call, most of the time of a small query, and 25 MB. Until pandas is imported no value can be one of
its objects, so this module builds plain lists from their buffers.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

MAX_LENGTH = 100_000  # above this length pyarrow is faster, including its import of pandas

_NUMBERS: dict[type, type[np.generic]] = {int: np.int64, float: np.float64}


def is_extension(dtype: pa.DataType) -> bool:
    """Check whether a type is an embedding, tensor, image, file or Python object, or of another library."""
    return isinstance(dtype, pa.BaseExtensionType)


def contains_type(dtype: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Check whether a type, or a type inside its lists, structs and maps, fulfils a condition.

    >>> contains_type(pa.list_(pa.null()), pa.types.is_null), contains_type(pa.string(), pa.types.is_null)
    (True, False)
    """
    if is_wanted(dtype) or is_extension(dtype):
        return is_wanted(dtype)
    return any(contains_type(dtype.field(number).type, is_wanted) for number in range(dtype.num_fields))


def arrow_array(values: Iterable[Any], arrow_type: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    """Return the same as ``pyarrow.array`` for plain values, if possible without importing pandas.

    >>> arrow_array([1, None]).to_pylist(), arrow_array(["a", None, "é"]).to_pylist()
    ([1, None], ['a', None, 'é'])
    """
    if isinstance(values, np.ndarray):
        array = arrow_values(values)
        return array if arrow_type in (None, array.type) else array.cast(arrow_type)
    values = values if isinstance(values, Sequence) else list(values)
    if not values:
        return pa.nulls(0, arrow_type or pa.null())
    if "pandas" not in sys.modules and len(values) <= MAX_LENGTH:
        built = _build(values)
        if built is not None and _is_alike(built.type, arrow_type):
            if arrow_type in (None, built.type):
                return built
            return pa.nulls(len(values), arrow_type) if pa.types.is_null(built.type) else built.cast(arrow_type)
    return pa.array(values, arrow_type)


def arrow_scalar(value: Any, arrow_type: pa.DataType | None = None) -> pa.Scalar:
    """Return the same as ``pyarrow.scalar``, if possible without importing pandas."""
    return arrow_array([value], arrow_type)[0]


def without_nulls(array: pa.Array, value: Any) -> pa.Array:
    """Return the same as ``array.fill_null(value)``, without importing pandas."""
    return array.fill_null(arrow_scalar(value).cast(array.type)) if array.null_count else array


def _is_alike(built: pa.DataType, wanted: pa.DataType | None) -> bool:
    """Return True if a cast to the wanted type gives what ``pyarrow.array`` would."""
    is_null = pa.types.is_null(built) and not isinstance(wanted, pa.BaseExtensionType)
    is_text = built == pa.string() and wanted == pa.large_string()
    if wanted in (None, built) or is_null or is_text:
        return True
    return any(is_kind(built) and is_kind(wanted) for is_kind in (pa.types.is_integer, pa.types.is_floating))


def arrow_numbers(values: np.ndarray[Any, Any], is_null: np.ndarray[Any, Any] | None = None) -> pa.Array:
    """Return a flat ndarray of native numbers or booleans as an Arrow array. Numbers share their memory with it.

    >>> arrow_numbers(np.array([True, False])).to_pylist(), arrow_numbers(np.array([1, 2])).to_pylist()
    ([True, False], [1, 2])
    """
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    validity = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, pa.py_buffer(data)])


def arrow_values(values: np.ndarray[Any, Any]) -> pa.Array | pa.ChunkedArray:
    """Return an ndarray as an Arrow array. Native numbers and booleans convert without importing pandas."""
    is_plain = values.ndim == 1 and values.dtype.kind in "biuf" and values.dtype.isnative
    return arrow_numbers(values) if is_plain else pa.array(values)


def numpy_values(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return a column as an ndarray: a read-only view of numbers without nulls, else a copy as by pyarrow."""
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if array.null_count or not is_number:
        copy = _copied(array, is_number) if "pandas" not in sys.modules else None
        return array.to_numpy(zero_copy_only=False) if copy is None else copy
    dtype = np.dtype(array.type.to_pandas_dtype())
    if not len(array):
        return np.empty(0, dtype)
    view = np.frombuffer(array.buffers()[1], dtype, count=len(array), offset=array.offset * dtype.itemsize)
    view.flags.writeable = False  # columns share memory
    return view


def _copied(array: pa.Array, is_number: bool) -> np.ndarray[Any, Any] | None:
    """Return the same as ``to_numpy`` for numbers with nulls, booleans, text and bytes; None for other types."""
    if is_number and not pa.types.is_float16(array.type):
        floats = array if pa.types.is_floating(array.type) else array.cast(pa.float64(), safe=False)
        return numpy_values(without_nulls(floats, float("nan"))).copy()
    if pa.types.is_boolean(array.type) and not array.null_count:
        return _flags(array)
    is_short = len(array) <= MAX_LENGTH
    if is_short and (array.type in (pa.string(), pa.binary()) or pa.types.is_boolean(array.type)):
        return np.fromiter(array.to_pylist(), object, len(array))
    return None


def _flags(array: pa.BooleanArray) -> np.ndarray[Any, Any]:
    """Return booleans without nulls as an ndarray."""
    if not len(array):
        return np.empty(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(bool)


def _build(values: Sequence[Any]) -> pa.Array | None:
    kinds = set(map(type, values))
    has_null = NoneType in kinds
    kinds.discard(NoneType)
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    is_null = np.fromiter((value is None for value in values), np.bool_, len(values)) if has_null else None
    if kind is bool:
        return arrow_numbers(np.fromiter(map(bool, values), np.bool_, len(values)), is_null)
    if kind is datetime.date or (kind is datetime.datetime and not any(value and value.tzinfo for value in values)):
        unit, dtype = ("D", pa.date32()) if kind is datetime.date else ("us", pa.timestamp("us"))
        moments = np.array(values, f"datetime64[{unit}]").view(np.int64).astype(f"i{dtype.bit_width // 8}")
        return arrow_numbers(moments, is_null).view(dtype)
    if kind is dict and not has_null:
        return _build_structs(values)
    if kind is str:
        builder = pa.lib.StringBuilder()
        builder.append_values(values)
        return builder.finish()
    if kind is bytes and not has_null:
        offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), len(values), [None, *map(pa.py_buffer, (offsets, b"".join(values)))])
    if kind is np.ndarray and not has_null:
        return _build_lists(values)
    if kind is list and not has_null:
        elements = list(chain.from_iterable(values))
        built = _build(elements) if len(elements) <= MAX_LENGTH else None
        offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
        return None if built is None else pa.ListArray.from_arrays(arrow_numbers(offsets), built)
    if kind not in _NUMBERS:
        return None
    filled = [0 if value is None else value for value in values] if has_null else values
    try:
        return arrow_numbers(np.array(filled, _NUMBERS[kind]), is_null)
    except OverflowError:  # an int beyond int64
        return None


def _build_structs(rows: Sequence[dict[Any, Any]]) -> pa.Array | None:
    """Return dicts with the same keys in the same order as a column of structs; None for others."""
    names = tuple(rows[0])
    if not names or not all(type(name) is str for name in names) or any(tuple(row) != names for row in rows):
        return None
    members = [_build([row[name] for row in rows]) for name in names]
    return None if any(member is None for member in members) else pa.StructArray.from_arrays(members, names)


def _build_lists(rows: Sequence[np.ndarray[Any, Any]]) -> pa.Array | None:
    """Return one-dimensional arrays of one native numeric type as a column of lists; None for other arrays."""
    kind = rows[0].dtype
    if kind.kind not in "iuf" or not kind.isnative or any(row.ndim != 1 or row.dtype != kind for row in rows):
        return None
    offsets = np.cumsum([0, *map(len, rows)])
    if offsets[-1] > np.iinfo(np.int32).max:
        return None
    return pa.ListArray.from_arrays(arrow_numbers(offsets.astype(np.int32)), arrow_numbers(np.concatenate(rows)))

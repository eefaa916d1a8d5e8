"""Values as JSON, and back. Bytes are base64 text, durations are seconds, and times keep their nanoseconds."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import WriteError
from penstock.storage.file import File
from penstock.types import PythonType
from penstock.types.plain import contains_type

Leaf = Callable[[pa.Array, pa.DataType], pa.Array]

_NUM_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # after the decimal point of seconds


# --- writing ---


def encoded(values: Sequence[Any], options: int) -> list[bytes]:
    import orjson

    try:
        return [orjson.dumps(value, _jsonable, options) for value in values]
    except TypeError as exc:
        raise WriteError(f"JSON cannot hold a value: {exc.__cause__ or exc}") from exc


def plain_rows(batch: pa.RecordBatch, maps_as_pydicts: Any = None) -> list[dict[str, Any]]:
    """Return the rows as values that ``encoded`` accepts."""
    columns = [with_leaves(column, column.type, _exact) for column in batch.columns]
    try:
        rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist(
            maps_as_pydicts=maps_as_pydicts
        )
    except (OverflowError, ValueError) as exc:  # times outside the years 1 to 9999
        raise WriteError(f"JSON cannot hold a value: {exc}") from exc
    return rows


def has_other_keys(dtype: pa.DataType) -> bool:
    """Return whether a column may hold dicts with keys that are not text."""
    return contains_type(dtype, lambda inner: pa.types.is_map(inner) or isinstance(inner, PythonType))


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON text, for stores without a type for it.

    >>> json_texts(pa.array([{"a": [1, 2]}, None])).to_pylist()
    ['{"a":[1,2]}', None]
    """
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    values = [row["value"] for row in plain_rows(pa.record_batch([array], ["value"]), "lossy")]
    texts = zip(values, encoded(values, options), strict=True)
    return pa.array([None if value is None else text for value, text in texts], pa.string())


def _exact(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return times that Python would round as text, and durations as decimal seconds."""
    if pa.types.is_timestamp(dtype) and dtype.unit == "ns":
        return pc.strftime(array, "%Y-%m-%dT%H:%M:%S" + ("%Ez" if dtype.tz else ""))
    if pa.types.is_time(dtype) and dtype.unit == "ns":
        return array.cast(pa.string())
    if pa.types.is_duration(dtype):
        return _reinterpreted(array.cast(pa.int64()).cast(pa.decimal128(19)), _NUM_DIGITS[dtype.unit])
    return array


def _jsonable(value: Any) -> Any:
    """Convert a value that orjson cannot encode to one that it can."""
    import orjson

    match value:
        case decimal.Decimal() if value.is_finite():
            return orjson.Fragment(str(value))
        case decimal.Decimal():
            return None
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime.timedelta():
            return value.total_seconds()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case np.ndarray():  # orjson refuses arrays that are not contiguous, and types such as float16
            return value.tolist()
        case set() | frozenset() | tuple():
            return list(value)
        case File() if value.path is not None:
            return value.path
        case File():
            raise TypeError(f"{value!r} is in memory and has no path; write its content with download()")
    raise TypeError(f"{value!r} of type {type(value).__name__}")


# --- reading ---


def parsed_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's JSON parser gives a column before ``decoded`` and a cast make it ``dtype``."""
    return mapped_type(dtype, _parsed_leaf)


def _parsed_leaf(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(dtype):
        return pa.float32()
    if pa.types.is_timestamp(dtype) and dtype.unit in ("s", "ms"):
        return pa.timestamp("us", dtype.tz)  # the parser refuses more digits than the unit has
    if pa.types.is_duration(dtype):
        return pa.decimal128(38, _NUM_DIGITS[dtype.unit])
    is_number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    is_kept = is_number or pa.types.is_boolean(dtype) or pa.types.is_timestamp(dtype)
    return dtype if is_kept else pa.string()


def decoded(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return a parsed column with bytes, times and durations in place of their JSON forms.

    >>> decoded(pa.array(["AP8="]), pa.binary()).to_pylist()
    [b'\\x00\\xff']
    """
    return with_leaves(array, dtype, _decoded_leaf)


def _decoded_leaf(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if pa.types.is_duration(dtype) and pa.types.is_decimal(array.type):
        return _reinterpreted(array, 0).cast(pa.int64()).cast(dtype)
    if not pa.types.is_string(array.type):
        return array
    if pa.types.is_time(dtype):
        return pc.binary_join_element_wise("1970-01-01T", array, "").cast(pa.timestamp("ns")).cast(dtype)
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype) or pa.types.is_fixed_size_binary(dtype):
        return pa.array([None if text is None else _bytes_of(text) for text in array.to_pylist()], dtype)
    return array


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise pa.ArrowInvalid(f"{text[:80]!r} is not base64, the form of bytes in JSON: {exc}") from exc


# --- nested types ---


def mapped_type(dtype: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other types at its leaves, and lists and storage in place of special types."""
    if isinstance(dtype, pa.BaseExtensionType):
        return mapped_type(dtype.storage_type, leaf)
    if pa.types.is_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return pa.list_(mapped_type(dtype.value_type, leaf))
    if pa.types.is_struct(dtype):
        return pa.struct([(column.name, mapped_type(column.type, leaf)) for column in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(mapped_type(dtype.key_type, leaf), mapped_type(dtype.item_type, leaf))
    return leaf(dtype)


def with_leaves(array: pa.Array, dtype: pa.DataType, leaf: Leaf) -> pa.Array:
    """Apply ``leaf`` to each leaf of an array, with the type of that leaf in ``dtype``, and return the new array."""
    if pa.types.is_list(array.type) and pa.types.is_list(dtype):
        first, last = (array.offsets[end].as_py() for end in (0, -1))
        values = array.values.slice(first, last - first)
        changed = with_leaves(values, dtype.value_type, leaf)
        if changed is values:
            return array
        return pa.ListArray.from_arrays(pc.subtract(array.offsets, first), changed, mask=array.is_null())
    if pa.types.is_struct(array.type) and pa.types.is_struct(dtype):
        columns = [array.field(number) for number in range(array.type.num_fields)]
        changed = [with_leaves(column, field.type, leaf) for column, field in zip(columns, dtype, strict=True)]
        if all(new is old for new, old in zip(changed, columns, strict=True)):
            return array
        return pa.StructArray.from_arrays(changed, names=[field.name for field in dtype], mask=array.is_null())
    return array if pa.types.is_nested(dtype) or isinstance(dtype, pa.BaseExtensionType) else leaf(array, dtype)


def _reinterpreted(array: pa.Array, scale: int) -> pa.Array:
    """Return decimals with the same digits and the point moved."""
    dtype = pa.decimal128(array.type.precision, scale)
    return pa.Array.from_buffers(dtype, len(array), array.buffers(), offset=array.offset)

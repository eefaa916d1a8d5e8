"""Kernels for parts of values: ``expr[key]`` on lists, structs and maps, and slices of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import TypeMismatchError, did_you_mean
from penstock.expr.arrays import Numbers, filled, list_bounds, masked, on_arrays, ranges, text_bytes, to_lists, validity
from penstock.expr.kinds import INTEGER, LIST, STRUCT
from penstock.expr.registry import Value
from penstock.expr.signatures import strict
from penstock.types import DataType
from penstock.types.plain import arrow_array, arrow_scalar, numpy_values, without_nulls


def _field_type(dtype: DataType, *, name: str) -> DataType:
    STRUCT.check(dtype)
    if dtype.is_null():
        return dtype
    if name not in dtype.fields:
        listing = ", ".join(dtype.fields) or "(none)"
        raise TypeMismatchError(f"no field {name!r}; available: {listing}.{did_you_mean(name, dtype.fields)}")
    return dtype.fields[name]


@strict("struct_get", _field_type)
def struct_get(value: Value, *, name: str) -> Value:
    """Return one field of a struct; null for a null struct."""
    # By position, because Arrow reads a name with a dot as a path.
    position = [field.name for field in value.type].index(name)
    if isinstance(value, pa.StructArray) and not value.null_count:
        return value.field(position)  # a tenth of the time: `field` leaves out the nulls of the struct itself
    return pc.struct_field(value, indices=[position])


def _item_type(dtype: DataType, *, key: Any) -> DataType:
    if dtype.is_null():
        return dtype
    if dtype.is_struct():
        if not isinstance(key, str):
            raise TypeMismatchError(f"a struct is indexed by the name of a field, not by {key!r}")
        return _field_type(dtype, name=key)
    if dtype.is_map():
        try:
            arrow_scalar(key, dtype.key.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
            raise TypeMismatchError(f"the keys of the map are {dtype.key}, got {key!r}") from None
        return dtype.value
    if dtype.is_list() or dtype.is_embedding():
        if isinstance(key, bool) or not isinstance(key, int):
            raise TypeMismatchError(f"a list is indexed by a position, not by {key!r}")
        return dtype.inner
    remedy = "; use substr(start, length) for a part of a text" if dtype.is_string() else ""
    raise TypeMismatchError(f"expected a list, struct or map, got {dtype}{remedy}")


@strict("get_item", _item_type)
def get_item(value: Value, *, key: Any) -> Value:
    """Return the element, field or map value; null if it does not exist."""
    if pt.is_struct(value.type):
        return struct_get(value, name=key)
    if pt.is_map(value.type):
        return map_value(value, key)
    return element_at(value, arrow_scalar(key, pa.int64()))


@on_arrays
def element_at(lists: pa.Array, positions: pa.Array) -> pa.Array:
    """Return the element at the position of each row, counted from the end if negative; null outside the list."""
    values, starts, ends = list_bounds(lists)
    valid = validity(lists, positions)
    position = numpy_values(without_nulls(positions, 0))
    slots = np.where(position < 0, ends, starts) + position
    valid &= (slots >= starts) & (slots < ends)
    return values.take(masked(np.where(valid, slots, 0), valid))


def map_value(value: Value, key: Any) -> Value:
    """Return the value of ``key``, the first if it occurs twice; null if it does not occur."""
    return pc.map_lookup(value, query_key=arrow_scalar(key, value.type.key_type), occurrence="first")


def _slice_type(dtype: DataType, *positions: DataType) -> DataType:
    if not dtype.is_binary():
        LIST.check(dtype)
    for position in positions:
        INTEGER.check(position)
    return dtype if dtype.is_null() or dtype.is_binary() else DataType.list(dtype.inner)


@strict("list_slice", _slice_type)
@on_arrays
def list_slice(lists: pa.Array, start: pa.Array, stop: pa.Array | None = None) -> pa.Array:
    """Return the elements, or bytes, from ``start`` up to ``stop``; negative numbers count from the end."""
    is_binary = DataType(lists.type).is_binary()
    values, starts, ends = text_bytes(lists.cast(pa.binary())) if is_binary else list_bounds(lists)
    lengths = ends - starts
    first = _offsets(start, lengths)
    last = lengths if stop is None else _offsets(stop, lengths)
    valid = validity(lists, start) if stop is None else validity(lists, start, stop)
    kept = np.where(valid, np.maximum(last - first, 0), 0)
    rows = ranges(starts + first, kept)
    if is_binary:
        validity_bits, offsets = to_lists(arrow_array(values[rows]), kept, valid).buffers()[:2]
        return pa.Array.from_buffers(pa.binary(), len(lists), [validity_bits, offsets, pa.py_buffer(values[rows])])
    return to_lists(values.take(arrow_array(rows)), kept, valid)


def _offsets(positions: pa.Array, lengths: Numbers) -> Numbers:
    position = filled(pc.cast(positions, pa.int64()))
    return np.clip(np.where(position < 0, lengths + position, position), 0, lengths)

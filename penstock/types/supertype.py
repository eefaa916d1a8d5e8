"""The smallest type that holds the values of two types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.types.datatype import DataType
from penstock.types.plain import contains_type


def supertype(a: DataType, b: DataType) -> DataType | None:
    """Return the smallest type that values of both types convert to, or None.

    Integers widen; int64 with uint64, or a float with an integer it cannot hold, is float64. Text only combines with
    text, so a number never becomes text implicitly. Structs have the fields of both.

    >>> supertype(DataType.int8(), DataType.uint8())
    int16
    >>> supertype(DataType.string(), DataType.int64()) is None
    True
    """
    if a == b or b.is_null():
        return a
    if a.is_null():
        return b
    if a.is_python() or b.is_python():
        return DataType.python()
    if is_number(a) and is_number(b):
        return _numeric(a, b)
    if a.is_temporal() and b.is_temporal():
        return _temporal(a, b)
    if a.is_binary() and b.is_binary():
        return DataType.binary()
    if a.is_struct() and b.is_struct():
        return _struct(a, b)
    if a.is_map() and b.is_map():
        key, value = supertype(a.key, b.key), supertype(a.value, b.value)
        return DataType.map(key, value) if key and value else None
    if a.is_tensor() and b.is_tensor():
        inner = supertype(a.inner, b.inner)
        return DataType.tensor(inner, a.shape if a.shape == b.shape else None) if inner else None
    if a.is_image() and b.is_image():
        return DataType.image(*(_same(getattr(a.arrow, n), getattr(b.arrow, n)) for n in ("mode", "height", "width")))
    if a.is_file() and b.is_file():
        return DataType.file()
    if is_listed(a) and is_listed(b):
        return _listed(a, b)
    return None


def has_null_type(dtype: pa.DataType) -> bool:
    """Return True if a type contains the null type, such as a list whose elements are all unknown."""
    return contains_type(dtype, pa.types.is_null)


def _same(x: Any, y: Any) -> Any:
    return x if x == y else None


def is_number(dtype: DataType) -> bool:
    """Check whether values are numbers or booleans."""
    return dtype.is_numeric() or dtype.is_boolean()


def _numeric(a: DataType, b: DataType) -> DataType | None:
    if not a.is_decimal() and not b.is_decimal():
        # NumPy has the same rules: a float holds every integer of at most half its width.
        return DataType(pa.from_numpy_dtype(np.promote_types(*(dtype.arrow.to_pandas_dtype() for dtype in (a, b)))))
    if a.is_float() or b.is_float():
        return DataType.float64()
    if a.is_boolean() or b.is_boolean():
        return b if a.is_boolean() else a
    return _by_arrow(*(_as_decimal(dtype) if dtype.is_integer() else dtype for dtype in (a, b)))


def _as_decimal(integer: DataType) -> DataType:
    """Return the decimal type that a cast of these integers needs."""
    return DataType.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[integer.arrow.bit_width], 0)


def _temporal(a: DataType, b: DataType) -> DataType | None:
    if a.is_date() and b.is_timestamp():
        return b
    return a if a.is_timestamp() and b.is_date() else _by_arrow(a, b)


def _by_arrow(a: DataType, b: DataType) -> DataType | None:
    """Return the type to which Arrow promotes decimals of different precisions, and times of different units."""
    schemas = [pa.schema([("x", dtype.arrow)]) for dtype in (a, b)]
    try:
        return DataType(pa.unify_schemas(schemas, promote_options="permissive").field("x").type)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None


def _struct(a: DataType, b: DataType) -> DataType | None:
    fields = dict(a.fields)
    for name, dtype in b.fields.items():
        merged = supertype(fields[name], dtype) if name in fields else dtype
        if merged is None:
            return None
        fields[name] = merged
    return DataType.struct(fields)


def is_listed(dtype: DataType) -> bool:
    """Check whether values are lists or embeddings."""
    return dtype.is_list() or dtype.is_embedding()


def _listed(a: DataType, b: DataType) -> DataType | None:
    inner = supertype(a.inner, b.inner)
    if inner is None:
        return None
    is_fixed = all(dtype.is_fixed_size_list() or dtype.is_embedding() for dtype in (a, b))
    if not is_fixed or a.size != b.size:
        return DataType.list(inner)
    both_embeddings = a.is_embedding() and b.is_embedding()
    return DataType.embedding(inner, a.size) if both_embeddings else DataType.fixed_size_list(inner, a.size)

"""Infer the type of Python values."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import TypeMismatchError, shortened
from penstock.storage.file import File
from penstock.types import arrays
from penstock.types.datatype import DataType
from penstock.types.encode import REFUSALS, is_pil_image
from penstock.types.hints import dtype_from_hint, is_named_tuple, is_pydantic_model, merged_dtype
from penstock.types.supertype import supertype


def infer_dtype(values: Sequence[Any], what: str) -> DataType:
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


def needs_inference(value: Any) -> bool:
    """Check whether pyarrow infers another type for ``value`` than we do: arrays, images and records."""
    cls = type(value)
    return (
        arrays.is_array(value)
        or is_pil_image(value)
        or isinstance(value, enum.Enum | File)
        or dataclasses.is_dataclass(cls)
        or is_named_tuple(cls)
        or is_pydantic_model(cls)
    )


def _dtype_of(value: Any) -> DataType | None:
    """Return the type of one value, or None if Arrow has no type for it."""
    if arrays.is_array(value):
        array = arrays.as_ndarray(value)
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
    if needs_inference(value):
        return _known(dtype_from_hint(type(value)))
    if isinstance(value, np.datetime64 | np.timedelta64):
        return DataType(arrays.from_ndarray(np.asarray([value]), None, "value").type)
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

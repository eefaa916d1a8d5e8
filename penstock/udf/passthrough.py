"""Columns that a batch function hands back as they were keep their Arrow types and nulls, which arrays cannot all hold.

A nullable integer reaches NumPy as a float with NaN, a timestamp loses its zone, an embedding becomes a plain array.
What comes back as the same object with the same content is therefore the same column.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.types import default_numpy

FIXED = (str, bytes, int, float, type(None), dt.date, dt.time, dt.timedelta, decimal.Decimal)


class PassedColumns:
    """Remembers what a function was given of a batch, as a dict of arrays or tensors."""

    def __init__(self, batch: pa.RecordBatch, given: Any) -> None:
        self._columns: dict[int, tuple[Any, pa.Array, list[Any] | None]] = {}
        if isinstance(given, dict):
            for name, value in given.items():
                column = batch.column(name)
                if not _survives(column):
                    objects = value.tolist() if _is_boxed(value) else None
                    self._columns[id(value)] = (value, column, objects)

    def restored(self, result: Any) -> Any:
        """Return what the function gave, with the original columns in place of arrays that were only passed on."""
        if not self._columns or not isinstance(result, Mapping):
            return result
        return {name: self._original(value) for name, value in result.items()}

    def _original(self, value: Any) -> Any:
        known = self._columns.get(id(value))
        if known is None:
            return value
        given, column, objects = known
        return column if _is_unchanged(given, column, objects) else value


def _survives(column: pa.Array) -> bool:
    """Say whether a column comes back from an array as it was."""
    if pt.is_string(column.type) or pt.is_binary(column.type):
        return True
    is_plain = pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_boolean(column.type)
    return is_plain and not column.null_count


def _is_unchanged(given: Any, column: pa.Array, objects: list[Any] | None) -> bool:
    if objects is not None:
        if len(given) != len(objects) or not all(map(operator.is_, given.tolist(), objects)):
            return False
        return all(map(_is_fixed, objects)) or all(map(_is_same, objects, default_numpy(column)))
    values, original = given if isinstance(given, np.ndarray) else given.numpy(), default_numpy(column)
    if values.ctypes.data == original.ctypes.data and (values.shape, values.strides) == (
        original.shape,
        original.strides,
    ):
        return True  # it shares memory with the column
    return np.array_equal(values, original, equal_nan=values.dtype.kind in "fmM")


def _is_boxed(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def _is_fixed(value: Any) -> bool:
    """Whether nobody can have changed the value, though it is still the same object."""
    return isinstance(value, FIXED) or (isinstance(value, np.ndarray) and not value.flags.writeable)


def _is_same(value: Any, original: Any) -> bool:
    """Compare values as columns have them. Objects of other kinds count as changed: to compare may mean anything."""
    if type(value) is not type(original):
        return False
    match value:
        case np.ndarray():
            return value.dtype == original.dtype and np.array_equal(
                value, original, equal_nan=value.dtype.kind in "fmM"
            )
        case dict():
            return value.keys() == original.keys() and all(_is_same(value[key], original[key]) for key in value)
        case list():
            return len(value) == len(original) and all(map(_is_same, value, original))
        case float():
            return value == original or (math.isnan(value) and math.isnan(original))
        case _:
            return isinstance(value, FIXED) and bool(value == original)

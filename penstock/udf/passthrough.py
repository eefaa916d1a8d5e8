"""Columns that a batch function hands back as they were keep their Arrow types and nulls, which arrays cannot all hold.

A nullable integer reaches NumPy as a float with NaN, a timestamp loses its zone, an embedding becomes a plain array.
What comes back as the same object with the same content is therefore the same column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.types import default_numpy


class PassedColumns:
    """Remembers what a function was given of a batch, as a dict of arrays or tensors."""

    def __init__(self, batch: pa.RecordBatch, given: Any) -> None:
        self._columns: dict[int, tuple[Any, pa.Array, list[Any] | None]] = {}
        if isinstance(given, dict):
            for name, value in given.items():
                column = batch.column(name)
                if not _survives(column):
                    # Replaced elements of an object array are found by identity, as comparing them may mean anything.
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
        return len(given) == len(objects) and all(map(_is, given.tolist(), objects))
    values = given if isinstance(given, np.ndarray) else given.numpy()
    return np.array_equal(values, default_numpy(column), equal_nan=values.dtype.kind in "fmM")


def _is_boxed(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def _is(left: Any, right: Any) -> bool:
    return left is right

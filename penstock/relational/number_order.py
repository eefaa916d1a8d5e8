"""The order of rows by numbers, by NumPy: its sort takes a quarter of the time of DuckDB's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from penstock.types.plain import numpy_values

Numbers = np.ndarray[Any, Any]
MAX_CODES = 2**64


def order_of_numbers(keys: Sequence[pa.Array], descending: Sequence[bool]) -> npt.NDArray[np.int64] | None:
    """Return the row numbers in the order of the keys; rows with equal keys stay in their order.

    None if a key has nulls, NaN or other values than numbers and times, or if the keys together exceed 64 bits.

    >>> order_of_numbers([pa.array([2, 1, 2]), pa.array([5, 5, 7])], [True, False]).tolist()
    [0, 2, 1]
    """
    columns = [numbers for key in keys if (numbers := _numbers(key)) is not None]
    num_rows = len(keys[0])
    if len(columns) < len(keys) or num_rows == 0:
        return None
    if len(columns) == 1 and columns[0].dtype.kind == "f":
        return _stable_order(-columns[0] if descending[0] else columns[0])
    if any(column.dtype.kind == "f" for column in columns):
        return None
    columns.append(np.arange(num_rows))  # decides between equal keys
    ends = [(int(column.min()), int(column.max())) for column in columns]
    counts = [largest - smallest + 1 for smallest, largest in ends]
    if math.prod(counts) <= MAX_CODES:
        return np.argsort(_codes(columns, ends, [*descending, False]))
    if math.prod(counts[:-1]) <= MAX_CODES:
        return _stable_order(_codes(columns[:-1], ends, descending))
    return None


def _numbers(key: pa.Array) -> Numbers | None:
    """Return a column of numbers or times as numbers; None for other columns, and for columns with null or NaN."""
    if pt.is_date32(key.type) or pt.is_time32(key.type):
        key = key.view(pa.int32())
    elif pt.is_timestamp(key.type) or pt.is_date64(key.type) or pt.is_time64(key.type):
        key = key.view(pa.int64())
    if key.null_count or not (pt.is_integer(key.type) or pt.is_floating(key.type)):
        return None
    numbers = numpy_values(key)
    return None if numbers.dtype.kind == "f" and np.isnan(numbers).any() else numbers


def _codes(columns: Sequence[Numbers], ends: Sequence[tuple[int, int]], descending: Sequence[bool]) -> Numbers:
    """Combine the values of each row into one number with the same order; the first column counts most."""
    codes: Any = np.uint64(0)
    for column, (smallest, largest), is_descending in zip(columns, ends, descending, strict=False):
        values = column.astype(np.uint64)  # of negative numbers modulo 2**64, as the differences
        distance = (
            np.uint64(largest % MAX_CODES) - values if is_descending else values - np.uint64(smallest % MAX_CODES)
        )
        codes = codes * np.uint64((largest - smallest + 1) % MAX_CODES) + distance
    return np.asarray(codes)


def _stable_order(values: Numbers) -> npt.NDArray[np.int64]:
    """Return the order of values. NumPy's fast sort is not stable, so sort equal values by row afterwards."""
    order = np.argsort(values)
    ordered = values[order]
    is_new = ordered[1:] != ordered[:-1]
    if is_new.all():
        return order
    groups = np.concatenate(([0], np.cumsum(is_new)))
    return order[np.argsort(groups * len(order) + order)]

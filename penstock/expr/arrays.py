"""Helpers of kernels: broadcasting of constants, list offsets, storage of extension types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import ComputeError
from penstock.types.ndarrays import too_large
from penstock.types.plain import arrow_numbers, numpy_values, without_nulls

Numbers = np.ndarray[Any, Any]


def repeat(scalar: pa.Scalar, num_rows: int) -> pa.Array:
    """Return an array that holds ``scalar`` in every row."""
    if not scalar.is_valid or not num_rows:  # Arrow cannot repeat a list zero times
        return pa.nulls(num_rows, scalar.type)
    if isinstance(scalar, pa.ExtensionScalar):
        return pa.ExtensionArray.from_storage(scalar.type, repeat(scalar.value, num_rows))
    if isinstance(scalar, pa.StringScalar | pa.BinaryScalar) and len(scalar.as_buffer()) * num_rows >= 2**31:
        raise too_large("a constant")  # Arrow would count the bytes wrongly
    return pa.repeat(scalar, num_rows)


def broadcast(*values: pa.Array | pa.Scalar) -> list[pa.Array]:
    """Return all values as arrays: repeat each constant to the length of the arrays, or once if all are constants."""
    num_rows = next((len(value) for value in values if not isinstance(value, pa.Scalar)), 1)
    return [repeat(value, num_rows) if isinstance(value, pa.Scalar) else value for value in values]


def on_arrays(compute: Callable[..., pa.Array]) -> Callable[..., pa.Array | pa.Scalar]:
    """Let a kernel that takes arrays accept constants: repeat a constant, and return a constant if all arguments are
    constants.
    """

    @functools.wraps(compute)
    def broadcasting(*values: pa.Array | pa.Scalar, **options: Any) -> pa.Array | pa.Scalar:
        result = compute(*broadcast(*values), **options)
        return result[0] if all(isinstance(value, pa.Scalar) for value in values) else result

    return broadcasting


def storage_of(array: pa.Array) -> pa.Array:
    """Return the plain Arrow array beneath an extension array, or the array itself."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def wrapped(storage: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return ``storage`` as an array of ``dtype`` if that is an extension type."""
    is_extension = isinstance(dtype, pa.BaseExtensionType)
    return pa.ExtensionArray.from_storage(dtype, storage) if is_extension else storage


def validity(*arrays: pa.Array) -> Numbers:
    """Return a boolean ndarray, true where no array is null."""
    valid = np.ones(len(arrays[0]), dtype=bool)
    for array in arrays:
        if array.null_count:
            valid &= numpy_values(array.is_valid())
    return valid


def filled(array: pa.Array, fill: Any = 0) -> Numbers:
    """Return numbers as an ndarray, with ``fill`` in place of null."""
    return numpy_values(without_nulls(array, fill))


def empty_numbers(num_rows: int, dtype: Any = np.float64) -> Numbers:
    """Return an ndarray to compute into. Its memory comes from Arrow, which reuses it; new memory takes three times as
    long."""
    return np.frombuffer(pa.allocate_buffer(num_rows * np.dtype(dtype).itemsize), dtype)


def masked(numbers: Numbers, valid: Numbers, dtype: pa.DataType | None = None) -> pa.Array:
    """Return an ndarray as an Arrow array, null where ``valid`` is false."""
    is_null = None if valid.all() else ~valid
    if numbers.dtype.kind not in "biuf":
        return pa.array(numbers, type=dtype, mask=is_null)
    array = arrow_numbers(numbers, is_null)  # without a copy
    return array if dtype is None else array.cast(dtype)


def text_bytes(texts: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Return the bytes of a string or binary array, and the start and end of each row; null rows are empty."""
    _, offsets, data = texts.buffers()
    num_rows = len(texts)
    if not num_rows:
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + num_rows + 1].astype(np.int64)
    flat = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    flat, bounds = flat[bounds[0] : bounds[-1]], bounds - bounds[0]
    starts, ends = bounds[:-1], bounds[1:]
    return flat, starts, np.where(validity(texts), ends, starts) if texts.null_count else ends


def list_bounds(lists: pa.Array) -> tuple[pa.Array, Numbers, Numbers]:
    """Return the elements of a list, fixed-size list, embedding or map array, and the start and end of each row.

    A null row is empty. Slices are respected; the elements are not copied.
    """
    lists = storage_of(lists)
    if pt.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        starts = (np.arange(len(lists), dtype=np.int64) + lists.offset) * size
        ends = starts + size
    else:
        offsets = numpy_values(lists.offsets).astype(np.int64)
        starts, ends = offsets[:-1], offsets[1:]
    if lists.null_count:
        ends = np.where(validity(lists), ends, starts)
    return lists.values, starts, ends


def ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """Return ``start, start + 1, ...`` for every row, concatenated.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    result: Numbers = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return result


def elements_of(lists: pa.Array) -> tuple[pa.Array, Numbers]:
    """Return the elements of all rows, concatenated, and the length of each row; null rows are empty."""
    values, starts, ends = list_bounds(lists)
    lengths = ends - starts
    total = int(lengths.sum())
    if len(lists) and total == int(ends[-1] - starts[0]):  # without gaps
        return values.slice(int(starts[0]), total), lengths
    return values.take(arrow_numbers(ranges(starts, lengths))), lengths


def to_lists(elements: pa.Array, lengths: Numbers, valid: Numbers | None = None) -> pa.Array:
    """Return ``elements`` split into lists of these lengths, null where ``valid`` is false."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ComputeError(f"{offsets[-1]} elements do not fit one batch of lists; use a smaller batch size")
    mask = None if valid is None or valid.all() else arrow_numbers(~valid)
    return pa.ListArray.from_arrays(arrow_numbers(offsets.astype(np.int32)), elements, mask=mask)

"""The weight of each row of a column, in bytes or tokens, computed without Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, TypeMismatchError

Weights = npt.NDArray[np.float64]

BYTES_PER_TOKEN = 4
"""Of text in UTF-8. Tokenizers of English text differ from this by about a third."""


def row_nbytes(array: pa.Array) -> Weights:
    """Return the bytes of each value.

    >>> row_nbytes(pa.array(["abc", None, ""])).tolist()
    [3.0, 0.0, 0.0]
    >>> row_nbytes(pa.array([[1, 2], [3]])).tolist()
    [16.0, 8.0]
    """
    return _summed(array, _fixed_nbytes)


def row_tokens(columns: Sequence[pa.Array], what: str) -> Weights:
    """Estimate the tokens of the text in each row, at least one; text inside lists and structs counts.

    >>> row_tokens([pa.array(["one two three", None])], "f").tolist()
    [4.0, 1.0]
    """
    if not any(_has_text(column.type) for column in columns):
        found = ", ".join(str(column.type) for column in columns) or "none"
        raise InvalidArgumentError(
            f"{what}: max_batch_tokens counts text, and no argument has any (types: {found}). "
            "Give batch_weight=, a function that returns one number a row, or use max_batch_bytes."
        )
    nbytes = sum((_summed(column, _no_text) for column in columns), np.float64(0))
    return np.maximum(np.ceil(nbytes / BYTES_PER_TOKEN), 1.0)


def checked_weights(weights: Any, num_rows: int, what: str) -> Weights:
    """Return the result of ``batch_weight`` as numbers, or raise an error."""
    start = f"{what}: batch_weight returned"
    if not hasattr(weights, "__len__") or isinstance(weights, (str, bytes, dict)):
        raise TypeMismatchError(f"{start} {type(weights).__name__}; return a list or array with one number a row")
    if len(weights) != num_rows:
        raise TypeMismatchError(f"{start} {len(weights)} weights for {num_rows} rows; return one number a row")
    array = np.asarray(weights.to_pylist() if hasattr(weights, "to_pylist") else weights)
    if array.ndim != 1 or (num_rows and array.dtype.kind not in "iuf"):
        shown = next((value for value in array.tolist() if not isinstance(value, (int, float))), array.tolist()[0])
        raise TypeMismatchError(f"{start} {shown!r:.80}; return one number a row")
    numbers: Weights = array.astype(np.float64)
    is_bad = ~(np.isfinite(numbers) & (numbers >= 0))
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise TypeMismatchError(f"{start} {numbers[row]:g} for row {row}; a weight is a number of 0 or more")
    return numbers


def _summed(array: pa.Array, known: Callable[[pa.DataType], float | None]) -> Weights:
    """Return the weight of each value, the sum of its parts for lists and structs.

    ``known`` returns the weight of every value of a type, None if the bytes of each must be counted.
    """
    weight = known(array.type)
    if weight is not None or not len(array):
        return np.full(len(array), weight or 0.0)
    if isinstance(array, pa.ExtensionArray):
        return _summed(array.storage, known)
    if pt.is_struct(array.type):
        weights = np.zeros(len(array))
        for field in array.flatten():
            weights += _summed(field, known)
        return weights
    if pt.is_map(array.type):
        return _by_offsets(array.offsets.to_numpy(), _summed(array.keys, known) + _summed(array.items, known))
    if pt.is_list(array.type) or pt.is_large_list(array.type):
        offsets = array.offsets.to_numpy()
        if (weight := known(array.type.value_type)) is not None:
            lengths: Weights = np.diff(offsets).astype(np.float64)
            return lengths * weight
        values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        return _by_offsets(offsets - offsets[0], _summed(values, known))
    if pt.is_fixed_size_list(array.type):
        width = array.type.list_size
        values = array.values.slice(array.offset * width, len(array) * width)
        return _by_offsets(np.arange(len(array) + 1) * width, _summed(values, known))
    if pt.is_dictionary(array.type):
        return _summed(array.dictionary_decode(), known)
    if _is_text(array.type) or pt.is_binary(array.type) or pt.is_large_binary(array.type):
        return _lengths(array)
    return np.full(len(array), array.nbytes / len(array))


def _by_offsets(offsets: npt.NDArray[Any], weights: Weights) -> Weights:
    return np.diff(np.concatenate(([0.0], np.cumsum(weights)))[offsets])


def _fixed_nbytes(dtype: pa.DataType) -> float | None:
    """Return the size of all values of a type, None if they differ."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _fixed_nbytes(dtype.storage_type)
    if pt.is_fixed_size_list(dtype):
        each = _fixed_nbytes(dtype.value_type)
        return None if each is None else each * dtype.list_size
    if pt.is_null(dtype):
        return 0.0
    if pt.is_dictionary(dtype):
        return None
    try:
        return float(dtype.bit_width / 8)
    except ValueError:
        return None


def _no_text(dtype: pa.DataType) -> float | None:
    return None if _has_text(dtype) else 0.0


def _lengths(array: pa.Array) -> Weights:
    lengths: Weights = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    return lengths


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype))


def _has_text(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return _has_text(dtype.storage_type)
    if pt.is_dictionary(dtype):
        return _has_text(dtype.value_type)
    return _is_text(dtype) or any(_has_text(dtype.field(i).type) for i in range(dtype.num_fields))

"""Distances and similarities of vectors: embeddings, fixed-size lists, lists of numbers and constant query vectors.

Sums are computed in float64 on the elements of the whole batch. Vectors of different lengths are an error: when you
build the query if their types have lengths, else when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from penstock.errors import ComputeError, TypeMismatchError
from penstock.expr.arrays import (
    Numbers,
    elements_of,
    list_bounds,
    masked,
    on_arrays,
    repeat,
    storage_of,
    to_lists,
    validity,
)
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call
from penstock.expr.kinds import FLOAT64, VECTOR, vector_size
from penstock.expr.registry import Value
from penstock.expr.signatures import strict, takes
from penstock.functions.table import Builder, FunctionTable
from penstock.types import DataType
from penstock.types.plain import arrow_array, numpy_values

_table = FunctionTable(__name__)
_PAIR = {"left": VECTOR, "right": VECTOR}


def _pair_type(left: DataType, right: DataType) -> DataType:
    sizes = vector_size(left), vector_size(right)
    if None not in sizes and sizes[0] != sizes[1]:
        raise TypeMismatchError(f"vectors of {sizes[0]} and {sizes[1]} numbers cannot be compared")
    return FLOAT64


def _matrix(vectors: pa.Array, rows: Numbers | None) -> Numbers:
    """Return rows of equal length as a matrix; without a copy if ``rows`` is None, for all rows."""
    chosen = vectors if rows is None else vectors.take(arrow_array(rows))
    numbers: Numbers = numpy_values(elements_of(chosen)[0])
    # einsum sums in float64, except for float16.
    numbers = numbers.astype(np.float32) if numbers.dtype == np.float16 else numbers
    return numbers.reshape(len(chosen), -1)


def _groups(lengths: Numbers, valid: Numbers) -> Iterator[Numbers | None]:
    """Yield the rows of each length, or None if all rows have one length."""
    if valid.all() and len(lengths) and (lengths == lengths[0]).all():
        yield None
        return
    for length in np.unique(lengths[valid]):
        yield np.flatnonzero(valid & (lengths == length))


def _dot(left: Numbers, right: Numbers) -> Numbers:
    result: Numbers = np.einsum("ij,ij->i", left, right, dtype=np.float64)
    return result


def _cosine(left: Numbers, right: Numbers) -> Numbers:
    result: Numbers = _dot(left, right) / (np.sqrt(_dot(left, left)) * np.sqrt(_dot(right, right)))
    return result


def _distance(left: Numbers, right: Numbers) -> Numbers:
    difference = np.subtract(left, right, dtype=np.float64)
    return np.sqrt(_dot(difference, difference))


def _register(name: str, compute: Callable[[Numbers, Numbers], Numbers]) -> None:
    @strict(name, takes(VECTOR, VECTOR, returns=_pair_type))
    def _kernel(left: Value, right: Value) -> Value:
        arrays = [side for side in (left, right) if isinstance(side, pa.Array)]
        if not arrays:
            return _kernel(repeat(left, 1), right)[0]
        valid = validity(*arrays)
        sides = [storage_of(side if isinstance(side, pa.Array) else repeat(side, 1)) for side in (left, right)]
        lengths = [_lengths(side) for side in sides]
        bad = valid & (lengths[0] != lengths[1])
        if bad.any():
            ours, theirs = (np.broadcast_to(side, len(valid))[bad][0] for side in lengths)
            raise ComputeError(f"{name}: the vectors have {ours} and {theirs} numbers; they must have the same length")
        results = np.zeros(len(valid))
        with np.errstate(all="ignore"):
            for rows in _groups(np.broadcast_to(lengths[0], len(valid)), valid):
                # A constant is a matrix of one row, which NumPy broadcasts.
                is_array = (isinstance(side, pa.Array) for side in (left, right))
                both = [_matrix(side, rows if is_one else None) for side, is_one in zip(sides, is_array, strict=True)]
                results[... if rows is None else rows] = compute(*both)
        return masked(results, valid)


def _lengths(vectors: pa.Array) -> Numbers:
    _, starts, ends = list_bounds(vectors)
    return ends - starts


def _define(
    name: str,
    compute: Callable[[Numbers, Numbers], Numbers],
    doc: str,
    given: tuple[list[float], list[float]],
    result: float,
) -> Builder:
    _register(name, compute)
    return _table.call(name, _PAIR, doc, given, result)


def _or_null(name: str) -> Callable[[Expression, Expression], Expression]:
    """Return a builder that calls a kernel and gives null for NaN."""

    def build(left: Expression, right: Expression) -> Expression:
        found = call(name, left, right)
        return found.is_nan().if_else(None, found)

    return build


cosine_distance = _define(
    "cosine_distance", lambda left, right: 1 - _cosine(left, right),
    "Return one minus the cosine of the angle between two vectors: 0 for the same direction, 2 for the opposite.",
    ([1.0, 0.0], [0.0, 1.0]), 1.0,
)  # fmt: skip
_register("cosine_similarity", _cosine)
cosine_similarity = _table.build(
    "cosine_similarity", _PAIR, _or_null("cosine_similarity"),
    "Return the cosine of the angle between two vectors; null if one of them is zero.", ([3.0, 4.0], [3.0, 4.0]), 1.0,
)  # fmt: skip
dot_product = _define(
    "dot_product", _dot, "Return the sum of the products of the elements.", ([1.0, 2.0], [3.0, 4.0]), 11.0
)
euclidean_distance = _define(
    "euclidean_distance",
    _distance,
    "Return the length of the difference of two vectors.",
    ([0.0, 0.0], [3.0, 4.0]),
    5.0,
)


def _normalized_type(dtype: DataType) -> DataType:
    if dtype.is_null():
        return dtype
    inner = dtype.inner if dtype.inner.is_float() else FLOAT64
    if dtype.is_embedding():
        return DataType.embedding(inner, dtype.size)
    if dtype.is_tensor():
        return DataType.tensor(inner, dtype.shape)
    return DataType.fixed_size_list(inner, dtype.size) if dtype.is_fixed_size_list() else DataType.list(inner)


@on_arrays
def _l2_normalize(vectors: pa.Array) -> pa.Array:
    dtype = _normalized_type(DataType(vectors.type))
    storage, valid = storage_of(vectors), validity(vectors)
    elements, lengths = elements_of(storage)
    numbers = numpy_values(elements).astype(np.float64)
    rows = np.repeat(np.arange(len(storage)), lengths)
    norms = np.sqrt(np.bincount(rows, weights=numbers * numbers, minlength=len(storage)))
    scaled = numbers / np.where(norms == 0, 1.0, norms)[rows]
    return cast(to_lists(arrow_array(scaled), lengths, valid), dtype=dtype, is_strict=True)


_L2 = "Scale vectors to length 1; the zero vector stays unchanged. Integers become float64."
l2_normalize = _table.strict(
    "l2_normalize", {"vector": VECTOR}, _normalized_type, _l2_normalize, _L2, ([3.0, 4.0],), [0.6, 0.8]
)

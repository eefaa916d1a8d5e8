"""Distances and similarities of vectors: embeddings, fixed-size lists and lists of numbers, and constant query vectors.

All are computed in float64 on the elements of the whole batch. Two vectors of different lengths are an error: when the
query is built if the types say so, else when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.expr.arrays import ComputeError, Numbers, elements_of, masked, storage_of, to_lists, validity, wrapped
from penstock.expr.column import Expression, call, method
from penstock.expr.registry import Value
from penstock.expr.signatures import FLOAT64, VECTOR, strict, takes
from penstock.types import DataType

Vector = Expression | Sequence[float] | np.ndarray[Any, Any]


def _argument(vector: Vector) -> Any:
    # An ndarray would become a tensor; as a list it is a vector.
    return vector.tolist() if isinstance(vector, np.ndarray) else vector


@method
def cosine_distance(left: Expression, right: Vector) -> Expression:
    """Return one minus the cosine of the angle between two vectors: 0 for the same direction, 2 for the opposite.

    >>> ps.from_pydict({"v": [[1.0, 0.0]]}).select(cosine_distance(ps.col("v"), [0.0, 1.0])).to_pydict()
    {'v': [1.0]}
    """
    return call("cosine_distance", left, _argument(right))


@method
def cosine_similarity(left: Expression, right: Vector) -> Expression:
    """Return the cosine of the angle between two vectors; NaN if one of them is zero.

    >>> ps.from_pydict({"v": [[3.0, 4.0]]}).select(cosine_similarity(ps.col("v"), [3.0, 4.0])).to_pydict()
    {'v': [1.0]}
    """
    return call("cosine_similarity", left, _argument(right))


@method
def dot_product(left: Expression, right: Vector) -> Expression:
    """Return the sum of the products of the elements.

    >>> ps.from_pydict({"v": [[1.0, 2.0]]}).select(dot_product(ps.col("v"), [3.0, 4.0])).to_pydict()
    {'v': [11.0]}
    """
    return call("dot_product", left, _argument(right))


@method
def euclidean_distance(left: Expression, right: Vector) -> Expression:
    """Return the length of the difference of two vectors.

    >>> ps.from_pydict({"v": [[0.0, 0.0]]}).select(euclidean_distance(ps.col("v"), [3.0, 4.0])).to_pydict()
    {'v': [5.0]}
    """
    return call("euclidean_distance", left, _argument(right))


def _pair_type(left: DataType, right: DataType) -> DataType:
    sizes = [dtype.size for dtype in (left, right) if dtype.is_embedding() or dtype.is_fixed_size_list()]
    if len(sizes) == 2 and sizes[0] != sizes[1]:
        raise TypeMismatchError(f"vectors of {sizes[0]} and {sizes[1]} numbers cannot be compared")
    return FLOAT64


def _matrix(vectors: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the numbers of all rows in one float64 ndarray, and how many each row has."""
    elements, lengths = elements_of(vectors)
    numbers = elements.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False), lengths


def _row_sums(numbers: Numbers, lengths: Numbers) -> Numbers:
    """Add up the numbers of each row."""
    if len(lengths) and lengths[0] and (lengths == lengths[0]).all():
        equal: Numbers = numbers.reshape(len(lengths), -1).sum(axis=1)
        return equal
    sums = np.zeros(len(lengths))
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        sums[filled] = np.add.reduceat(numbers, starts)
    return sums


def _pairwise(name: str, compute: Callable[[Numbers, Numbers, Callable[[Numbers], Numbers]], Numbers]) -> None:
    @strict(name, takes(VECTOR, VECTOR, returns=_pair_type))
    def _kernel(left: Value, right: Value) -> Value:
        if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
            return kernel_of_arrays(_single(left), _single(right))[0]
        return kernel_of_arrays(left, right)

    def kernel_of_arrays(left: Value, right: Value) -> pa.Array:
        rows = left if isinstance(left, pa.Array) else right
        valid = validity(*(side for side in (left, right) if isinstance(side, pa.Array)))
        sides = [_side(side, valid) for side in (left, right)]
        lengths = next(lengths for (_, lengths), side in zip(sides, (left, right), strict=True) if side is rows)
        numbers = []
        for values, own in sides:
            bad = lengths != own
            if np.any(bad):
                theirs = own if len(own) == 1 else own[bad]
                raise ComputeError(
                    f"{name}: a vector of {lengths[bad][0]} numbers meets one of {theirs[0]}; they must be equally long"
                )
            # A constant meets every row: laid end to end as often as there are rows.
            numbers.append(np.tile(values, len(lengths)) if len(own) == 1 != len(lengths) else values)
        with np.errstate(all="ignore"):
            results = compute(numbers[0], numbers[1], lambda products: _row_sums(products, lengths))
        spread = np.zeros(len(rows))
        spread[valid] = results
        return masked(spread, valid)


def _single(vector: pa.Scalar) -> pa.Array:
    from penstock.expr.arrays import repeat

    return repeat(vector, 1)


def _side(side: Value, valid: Numbers) -> tuple[Numbers, Numbers]:
    if isinstance(side, pa.Scalar):
        return _matrix(_single(side))
    return _matrix(side if valid.all() else side.filter(pa.array(valid)))


def _cosine(left: Numbers, right: Numbers, add: Callable[[Numbers], Numbers]) -> Numbers:
    return add(left * right) / (np.sqrt(add(left * left)) * np.sqrt(add(right * right)))


_pairwise("cosine_similarity", _cosine)
_pairwise("cosine_distance", lambda left, right, add: 1 - _cosine(left, right, add))
_pairwise("dot_product", lambda left, right, add: add(left * right))
_pairwise("euclidean_distance", lambda left, right, add: np.sqrt(add((left - right) ** 2)))


@method
def l2_normalize(vector: Expression) -> Expression:
    """Scale vectors to length 1; the zero vector stays as it is. Integers become float64.

    >>> ps.from_pydict({"v": [[3.0, 4.0]]}).select(l2_normalize(ps.col("v"))).to_pydict()
    {'v': [[0.6, 0.8]]}
    """
    return call("l2_normalize", vector)


def _normalized_type(dtype: DataType) -> DataType:
    if dtype.is_null():
        return dtype
    inner = dtype.inner if dtype.inner.is_float() else FLOAT64
    if dtype.is_embedding():
        return DataType.embedding(inner, dtype.size)
    return DataType.fixed_size_list(inner, dtype.size) if dtype.is_fixed_size_list() else DataType.list(inner)

"""Distances of vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import functions as f
from penstock.errors import ComputeError, TypeMismatchError
from penstock.expr.column import Expression, col
from penstock.types import DataType, to_arrow_array
from tests.expr.evaluating import evaluate, resolved

v, w = col("v"), col("w")
KINDS = [
    "embedding[float32; 2]",
    "fixed_size_list[float64; 2]",
    "list[float32]",
    "list[int64]",
    "embedding[int8; 2]",
    "list[float16]",
]


def column(dtype: str, rows: list[Any]) -> pa.Array:
    return to_arrow_array(rows, DataType.of(dtype), what="v")


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.dot_product(v, w), [11.0, None, None, 0.0]),
        (f.dot_product(v, [3.0, 4.0]), [11.0, 25.0, None, 0.0]),
        (f.dot_product(v, np.array([3.0, 4.0])), [11.0, 25.0, None, 0.0]),
        (f.euclidean_distance(v, [4, 6]), [5.0, math.sqrt(5), None, math.sqrt(52)]),
        (f.euclidean_distance(v, w), [math.sqrt(8), None, None, 5.0]),
        (f.cosine_similarity(v, [3, 4]), [11 / (5 * math.sqrt(5)), 1.0, None, None]),
        (f.cosine_distance(v, [3, 4]), [1 - 11 / (5 * math.sqrt(5)), 0.0, None, math.nan]),
    ],
)
def test_distances(expression: Expression, expected: list[Any], dtype: str) -> None:
    left, right = column(dtype, [[1, 2], [3, 4], None, [0, 0]]), column(dtype, [[3, 4], None, [1, 1], [4, 3]])
    values = evaluate(expression, v=left, w=right)
    assert [None if value is None else pytest.approx(value, nan_ok=True) for value in values] == expected


@pytest.mark.parametrize(
    ("dtype", "inner"),
    [
        ("embedding[float32; 2]", "float32"),
        ("fixed_size_list[float64; 2]", "float64"),
        ("list[float32]", "float32"),
        ("list[int64]", "float64"),
        ("embedding[int8; 2]", "float64"),
        ("list[float16]", "float16"),
    ],
)
def test_l2_normalize(dtype: str, inner: str) -> None:
    vectors = column(dtype, [[3, 4], None, [0, 0]])
    one, null, zero = evaluate(f.l2_normalize(v), v=vectors)
    assert list(one) == pytest.approx([0.6, 0.8], rel=1e-3)
    assert null is None
    assert list(zero) == [0.0, 0.0]
    assert str(resolved(f.l2_normalize(v), v=vectors).inner) == inner


def test_rows_of_different_lengths() -> None:
    assert evaluate(f.dot_product(v, w), v=[[1.0], [1.0, 2.0], None, []], w=[[2.0], [3.0, 4.0], [1.0], []]) == [
        2.0,
        11.0,
        None,
        0.0,
    ]
    assert evaluate(f.l2_normalize(v), v=[[2.0], [], [0.0, 2.0]]) == [[1.0], [], [0.0, 1.0]]


def test_precision_is_that_of_float64() -> None:
    vectors = column("embedding[float32; 3]", [[1e4, 1.0, -1e4]])
    assert evaluate(f.dot_product(v, v), v=vectors) == [200000001.0]


def test_vectors_of_known_different_sizes_are_refused_when_built() -> None:
    with pytest.raises(TypeMismatchError, match="vectors of 2 and 3 numbers cannot be compared"):
        resolved(
            f.dot_product(v, w),
            v=column("embedding[float32; 2]", [[1, 2]]),
            w=column("fixed_size_list[float32; 3]", [[1, 2, 3]]),
        )


def test_vectors_of_different_sizes_are_refused_when_run() -> None:
    with pytest.raises(ComputeError, match="dot_product: the vectors have 1 and 2 numbers"):
        evaluate(f.dot_product(v, [1, 2]), v=[[1.0, 1.0], [1.0]])


def test_wrong_type() -> None:
    with pytest.raises(TypeMismatchError, match="expected an embedding or a list of numbers, got string"):
        resolved(f.cosine_distance(v, [1.0]), v=["a"])

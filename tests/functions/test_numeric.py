"""Functions of numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import functions as f
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, col
from penstock.types import DataType
from tests.expr.evaluating import evaluate, resolved

x, y, i = col("x"), col("y"), col("i")
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("function", "reference", "argument"),
    [
        (f.sqrt, math.sqrt, 2.0),
        (f.cbrt, np.cbrt, 5.0),
        (f.exp, math.exp, 1.5),
        (f.expm1, math.expm1, 1e-9),
        (f.ln, math.log, 2.5),
        (f.log, math.log, 2.5),
        (f.log2, math.log2, 2.5),
        (f.log10, math.log10, 2.5),
        (f.log1p, math.log1p, 1e-9),
        (f.sin, math.sin, 0.5),
        (f.cos, math.cos, 0.5),
        (f.tan, math.tan, 0.5),
        (f.arcsin, math.asin, 0.5),
        (f.arccos, math.acos, 0.5),
        (f.arctan, math.atan, 0.5),
        (f.asin, math.asin, 0.5),
        (f.acos, math.acos, 0.5),
        (f.atan, math.atan, 0.5),
        (f.sinh, math.sinh, 0.5),
        (f.cosh, math.cosh, 0.5),
        (f.tanh, math.tanh, 0.5),
        (f.arcsinh, math.asinh, 0.5),
        (f.arccosh, math.acosh, 1.5),
        (f.arctanh, math.atanh, 0.5),
        (f.degrees, math.degrees, 0.5),
        (f.radians, math.radians, 0.5),
    ],
)
def test_function_of_a_real(function: Any, reference: Any, argument: float) -> None:
    value, null = evaluate(function(x), x=[argument, None])
    assert value == pytest.approx(float(reference(argument)))
    assert null is None
    assert resolved(function(x), x=[1]) == DataType.float64()
    with pytest.raises(TypeMismatchError, match="expected a number, got string"):
        resolved(function(x), x=["a"])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.abs(x), [2.5, 0.5, None, NAN, INF]),
        (f.negate(x), [2.5, -0.5, None, NAN, INF]),
        (f.sign(x), [-1.0, 1.0, None, NAN, -1.0]),
        (f.ceil(x), [-2.0, 1.0, None, NAN, -INF]),
        (f.floor(x), [-3.0, 0.0, None, NAN, -INF]),
        (f.round(x), [-3.0, 1.0, None, NAN, -INF]),
        (f.round(x, 1), [-2.5, 0.5, None, NAN, -INF]),
        (f.clip(x, -1, 1), [-1.0, 0.5, None, NAN, -1.0]),
        (f.clip(x, max=0.0), [-2.5, 0.0, None, NAN, -INF]),
        (f.clip(x, NAN, 0.0), [-2.5, 0.0, None, NAN, -INF]),
        (f.is_nan(x), [False, False, None, True, False]),
        (f.is_inf(x), [False, False, None, False, True]),
        (f.fill_nan(x, 0.0), [-2.5, 0.5, None, 0.0, -INF]),
        (f.pow(x, 2), [6.25, 0.25, None, NAN, INF]),
        (f.power(x, 2.0), [6.25, 0.25, None, NAN, INF]),
        (f.ln(x), [NAN, math.log(0.5), None, NAN, NAN]),
        (f.log(x, 2), [NAN, -1.0, None, NAN, NAN]),
    ],
)
def test_function_of_floats(expression: Expression, expected: list[Any]) -> None:
    assert repr(evaluate(expression, x=[-2.5, 0.5, None, NAN, -INF])) == repr(expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.abs(i), [7, 15, None]),
        (f.negate(i), [7, -15, None]),
        (f.sign(i), [-1, 1, None]),
        (f.ceil(i), [-7, 15, None]),
        (f.floor(i), [-7, 15, None]),
        (f.round(i), [-7, 15, None]),
        (f.round(i, -1), [-10, 20, None]),
        (f.clip(i, 0, 10), [0, 10, None]),
        (f.clip(i, y), [-3, 15, None]),
        (f.greatest(i, y, 0), [0, 15, 5]),
        (f.least(i, y), [-7, 15, 5]),
        (f.power(i, 2), [49, 225, None]),
        (i & 3, [1, 3, None]),
        (i | y, [-3, None, None]),
        (i ^ 1, [-8, 14, None]),
        (f.shift_left(i, 1), [-14, 30, None]),
        (f.shift_right(i, y + 4), [-4, None, None]),
        (f.arctan2(i, 1), [math.atan2(-7, 1), math.atan2(15, 1), None]),
        (f.atan2(i, 1), [math.atan2(-7, 1), math.atan2(15, 1), None]),
        (f.is_nan(i), [False, False, None]),
    ],
)
def test_function_of_integers(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, i=[-7, 15, None], y=[-3, None, 5]) == expected


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint8(), pa.int32(), pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("function", [f.abs, f.sign, f.ceil, f.floor, f.round])
def test_type_of_the_number_is_kept(function: Any, dtype: pa.DataType) -> None:
    column = pa.array([3, None], pa.int8()).cast(dtype)
    assert resolved(function(x), x=column).arrow == dtype
    assert evaluate(function(x), x=column) == [1 if function is f.sign else 3, None]


def test_halves_round_away_from_zero() -> None:
    assert evaluate(f.round(x), x=[0.5, 1.5, 2.5, -0.5, -1.5]) == [1.0, 2.0, 3.0, -1.0, -2.0]


def test_decimals() -> None:
    prices = pa.array([Decimal("1.25"), None], pa.decimal128(10, 2))
    assert evaluate(f.round(x, 1), x=prices) == [Decimal("1.30"), None]
    assert evaluate(f.abs(x), x=prices) == [Decimal("1.25"), None]
    assert evaluate(f.sqrt(x), x=prices) == [math.sqrt(1.25), None]


def test_greatest_of_text() -> None:
    assert evaluate(f.greatest(x, "m"), x=["a", "z", None]) == ["m", "z", "m"]


def test_bad_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match="base must be positive"):
        f.log(x, 1)
    with pytest.raises(InvalidArgumentError, match="whole number of decimals"):
        f.round(x, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="take two bools or two integers, got float64"):
        resolved(x & 1, x=[1.0])
    with pytest.raises(TypeMismatchError, match="expected a number, got string"):
        resolved(f.clip(x, 1), x=["a"])
    with pytest.raises(TypeMismatchError, match="have no type in common"):
        resolved(f.greatest(x, 1), x=["a"])

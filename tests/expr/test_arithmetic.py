"""Arithmetic, against Python's own."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from penstock.errors import ComputeError, TypeMismatchError
from penstock.expr.column import Expression, col, lit
from penstock.types import DataType, to_arrow_array
from tests.expr.evaluating import batch_of, evaluate, numbers, resolved, run

a, b = col("a"), col("b")
OPERATORS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv]
INTEGERS = st.none() | st.integers(-(2**31), 2**31)
FLOATS = st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32)
PAIRS = {
    "integers": st.lists(st.tuples(INTEGERS, INTEGERS), max_size=8),
    "floats": st.lists(st.tuples(FLOATS, FLOATS), max_size=8),
}


def check(compute: Callable[[Any, Any], Any], pairs: list[tuple[Any, Any]], kind: pa.DataType) -> None:
    """Compare with Python, where null is null and so is division by zero for integers."""

    def reference(x: Any, y: Any) -> Any:
        if x is None or y is None:
            return None
        try:
            return compute(x, y)
        except ZeroDivisionError:
            return None

    left, right = pa.array([x for x, _ in pairs], kind), pa.array([y for _, y in pairs], kind)
    values = run(compute(a, b), batch_of(a=left, b=right)).to_pylist()
    for value, (x, y) in zip(values, pairs, strict=True):
        expected = reference(x, y)
        if isinstance(expected, float) and value is not None and y != 0:
            assert value == pytest.approx(expected, rel=1e-12)
        elif not (isinstance(value, float) and y == 0):  # a float divided by zero is infinite or NaN, as IEEE has it
            assert value == expected
            assert type(value) is type(expected)


@settings(deadline=None)
@given(pairs=PAIRS["integers"])
def test_integers_as_in_python(pairs: list[tuple[Any, Any]]) -> None:
    for compute in OPERATORS:
        check(compute, pairs, pa.int64())


@settings(deadline=None)
@given(pairs=PAIRS["floats"])
def test_floats_as_in_python(pairs: list[tuple[Any, Any]]) -> None:
    for compute in OPERATORS:
        check(compute, pairs, pa.float64())


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (a + b, [9, -5, None, 3]),
        (a - b, [5, -9, None, 3]),
        (a * b, [14, -14, None, 0]),
        (a / b, [3.5, -3.5, None, math.inf]),
        (a // b, [3, -4, None, None]),
        (a % b, [1, 1, None, None]),
        (a**2, [49, 49, None, 9]),
        (a**0.5, [math.sqrt(7), math.nan, None, math.sqrt(3)]),
        (2 ** (b + 1), [8, 8, 4, 2]),
        (-a, [-7, 7, None, -3]),
        (abs(a), [7, 7, None, 3]),
        (a + 1, [8, -6, None, 4]),
        (1 - a, [-6, 8, None, -2]),
        (10 // a, [1, -2, None, 3]),
        (10 % a, [3, -4, None, 1]),
        (1 / b, [0.5, 0.5, 1.0, math.inf]),
        (2 * a + 0.5, [14.5, -13.5, None, 6.5]),
        (a + None, [None] * 4),
        (lit(1) + 2, [3] * 4),
    ],
)
def test_operators(expression: Expression, expected: list[Any]) -> None:
    assert repr(evaluate(expression, a=[7, -7, None, 3], b=[2, 2, 1, 0])) == repr(expected)


TYPES = [
    pa.int8(),
    pa.uint8(),
    pa.int32(),
    pa.uint32(),
    pa.int64(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
]


@pytest.mark.parametrize("compute", [*OPERATORS, operator.pow])
def test_every_pair_of_number_types(compute: Any) -> None:
    for left, right in itertools.product(TYPES, TYPES):
        value, *nulls = run(
            compute(a, b), batch_of(a=numbers([7, None, 3], left), b=numbers([2, 2, None], right))
        ).to_pylist()
        assert float(value) == pytest.approx(compute(7, 2)), (left, right)
        assert nulls == [None, None]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("int8", "int8", "int8"),
        ("int8", "uint8", "int16"),
        ("int32", "int64", "int64"),
        ("int64", "uint64", "int64"),
        ("float32", "float32", "float32"),
        ("float32", "int64", "float64"),
        ("null", "int8", "int8"),
    ],
)
def test_type_that_holds_both_sides(left: str, right: str, expected: str) -> None:
    columns = {"a": pa.nulls(1, DataType.of(left).arrow), "b": pa.nulls(1, DataType.of(right).arrow)}
    assert resolved(a + b, **columns) == DataType.of(expected)
    assert resolved(a / b, **columns) == DataType.float64()


@pytest.mark.parametrize(
    ("expression", "dtype", "value"),
    [
        (a + 1, pa.int64(), 2**63 - 1),
        (a * 2, pa.int64(), 2**62),
        (a - 1, pa.int64(), -(2**63)),
        (a**2, pa.int64(), 2**40),
        (a**-1, pa.int64(), 2),
        (-a, pa.int64(), -(2**63)),
        (abs(a), pa.int8(), -128),
        (a + a, pa.int8(), 100),
        (a // -1, pa.int64(), -(2**63)),
        (a + 1, pa.uint64(), 2**64 - 1),
        (-a, pa.uint64(), 2**64 - 1),
    ],
)
def test_overflow_is_an_error(expression: Expression, dtype: pa.DataType, value: int) -> None:
    with pytest.raises(ComputeError, match="fit"):
        run(expression, batch_of(a=pa.array([value], dtype)))


def test_modulo_of_the_largest_unsigned_integers_is_exact() -> None:
    column = pa.array([2**64 - 1, 5, None], pa.uint64())
    assert evaluate(a % 10, a=column) == [5, 5, None]
    assert evaluate(a % -3, a=column) == [0, -1, None]
    assert evaluate(a // 0, a=column) == [None, None, None]


def test_negative_of_unsigned_integers() -> None:
    assert evaluate(-a, a=pa.array([200, None], pa.uint8())) == [-200, None]


def test_text() -> None:
    assert evaluate(a + b, a=["x", None, "z"], b=["1", "2", None]) == ["x1", None, None]
    assert evaluate("<" + a + ">", a=["x", None]) == ["<x>", None]
    assert evaluate(a + b"!", a=[b"x", None]) == [b"x!", None]


DAY, HOUR = dt.date(2024, 3, 1), dt.timedelta(hours=1)
MOMENT = dt.datetime(2024, 3, 1, 12)


@pytest.mark.parametrize(
    ("expression", "value", "expected", "dtype"),
    [
        (a + HOUR, MOMENT, dt.datetime(2024, 3, 1, 13), "timestamp[us]"),
        (HOUR + a, MOMENT, dt.datetime(2024, 3, 1, 13), "timestamp[us]"),
        (a - HOUR, MOMENT, dt.datetime(2024, 3, 1, 11), "timestamp[us]"),
        (a - MOMENT, MOMENT, dt.timedelta(0), "duration[us]"),
        (a - dt.date(2024, 2, 28), DAY, dt.timedelta(days=2), "duration[s]"),
        (a + dt.timedelta(days=1), DAY, DAY + dt.timedelta(days=1), "date"),
        (dt.timedelta(days=1) + a, DAY, DAY + dt.timedelta(days=1), "date"),
        (a - dt.timedelta(days=400), DAY, DAY - dt.timedelta(days=400), "date"),
        (a + HOUR, HOUR, dt.timedelta(hours=2), "duration[us]"),
        (a * 3, HOUR, dt.timedelta(hours=3), "duration[us]"),
        (3 * a, HOUR, dt.timedelta(hours=3), "duration[us]"),
        (a / 2, HOUR, dt.timedelta(minutes=30), "duration[us]"),
        (a / 0, HOUR, None, "duration[us]"),
        (a / dt.timedelta(minutes=30), HOUR, 2.0, "float64"),
        (-a, HOUR, dt.timedelta(hours=-1), "duration[us]"),
        (abs(-a), HOUR, HOUR, "duration[us]"),
    ],
)
def test_times(expression: Expression, value: Any, expected: Any, dtype: str) -> None:
    assert evaluate(expression, a=[value, None]) == [expected, None]
    assert str(resolved(expression, a=[value])) == dtype


def test_decimals_are_exact() -> None:
    prices = pa.array([Decimal("0.10"), None], pa.decimal128(10, 2))
    assert evaluate(a + Decimal("0.20"), a=prices) == [Decimal("0.30"), None]
    assert evaluate(a * 3, a=prices) == [Decimal("0.30"), None]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            a - "x",
            r"col\(a\) - 'x': cannot subtract int64 and string; convert .*\(col\(a\) is int64, 'x' is string\)",
        ),
        (b + DAY, "cannot add string and date"),
        (a - "x", "cannot subtract int64 and string"),
        (a + True, r'cannot add int64 and bool; convert the bool with .cast\("int64"\)'),
        (a / "x", "expected a number, got string"),
        (a // "x", "expected a number, got string"),
        (a ** "x", "expected a number, got string"),
        (-b, "expected a number, got string"),
        (abs(b), "expected a number, got string"),
        (b * 2, "cannot multiply string and int64"),
        (a + lit([1]), "cannot add int64 and list"),
        (lit(DAY) + lit(DAY), "cannot add date and date"),
    ],
)
def test_wrong_types_are_reported_when_built(expression: Expression, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        resolved(expression, a=[1], b=["x"])


def test_a_duration_added_to_a_date_is_in_whole_days() -> None:
    with pytest.raises(ComputeError, match="must be in whole days"):
        evaluate(a + HOUR, a=[DAY])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (b + a, ["x1", None]),
        (a + b, ["1x", None]),
        (b + 2.0, ["x2.0", "y2.0"]),
    ],
)
def test_text_and_numbers(expression: Expression, expected: list[str | None]) -> None:
    assert evaluate(expression, a=[1, None], b=["x", "y"]) == expected


def test_shifts() -> None:
    values = [1, -5, None]
    assert evaluate(a << 2, a=values) == [4, -20, None]
    assert evaluate(a >> b, a=values, b=[0, 1, 2]) == [1, -3, None]
    assert evaluate(1 << a, a=[3]) == [8]
    with pytest.raises(ComputeError, match="cannot be shifted"):
        evaluate(a << 64, a=values)
    with pytest.raises(TypeMismatchError, match="expected an integer, got float64"):
        resolved(a << 1, a=[1.5])


def test_tensors_and_embeddings() -> None:
    tensors = to_arrow_array(
        [np.ones((2, 2)), None, np.full((2, 2), 3.0)], DataType.tensor("float64", (2, 2)), what="a"
    )
    found = evaluate(a + b, a=tensors, b=[1, 2, None])
    assert (found[0].tolist(), found[1:]) == ([[2.0, 2.0], [2.0, 2.0]], [None, None])
    assert evaluate(np.eye(2) * a, a=tensors.slice(2))[0].tolist() == [[3.0, 0.0], [0.0, 3.0]]
    vectors = to_arrow_array([[1, 2]], DataType.embedding("float32", 2), what="a")
    assert evaluate(a - a, a=vectors)[0].tolist() == [0.0, 0.0]
    assert resolved(a * a, a=vectors) == DataType.embedding("float32", 2)
    with pytest.raises(TypeMismatchError, match="cannot add tensor"):
        resolved(a + b, a=tensors.slice(2), b=vectors)

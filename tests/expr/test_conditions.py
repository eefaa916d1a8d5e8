"""Comparison, three-valued logic, nulls and choices."""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from penstock import functions as f
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, col, lit, when
from penstock.types import DataType, to_arrow_array
from tests.expr.evaluating import batch_of, evaluate, numbers, resolved, run

a, b, c = col("a"), col("b"), col("c")
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
VALUES = {
    "integers": st.integers(-(2**63), 2**63 - 1),
    "floats": st.floats(),
    "text": st.text(max_size=5),
    "binary": st.binary(max_size=5),
    "booleans": st.booleans(),
    "dates": st.dates(),
    "timestamps": st.datetimes(),
}


@pytest.mark.parametrize("kind", VALUES)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_comparison_as_in_python(kind: str, data: st.DataObject) -> None:
    values = st.none() | VALUES[kind]
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=6))
    dtype = {
        "integers": "int64",
        "floats": "float64",
        "text": "string",
        "binary": "binary",
        "booleans": "bool",
        "dates": "date",
    }
    arrow = DataType.of(dtype.get(kind, "timestamp[us]")).arrow
    batch = batch_of(a=pa.array([x for x, _ in pairs], arrow), b=pa.array([y for _, y in pairs], arrow))
    for compare in COMPARISONS:
        expected = [None if x is None or y is None else compare(x, y) for x, y in pairs]
        assert run(compare(a, b), batch).to_pylist() == expected, compare


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
def test_comparison_of_signed_and_unsigned_is_exact(x: int, y: int) -> None:
    batch = batch_of(a=pa.array([x, None], pa.int64()), b=pa.array([y, 1], pa.uint64()))
    for compare in COMPARISONS:
        assert run(compare(a, b), batch).to_pylist() == [compare(x, y), None], compare
        assert run(compare(b, a), batch).to_pylist() == [compare(y, x), None], compare


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparison_of_different_numbers(compare: Any) -> None:
    types = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(10, 2)]
    for left, right in itertools.product(types, types):
        batch = batch_of(a=numbers([1, 2, None], left), b=numbers([2, 2, 2], right))
        assert run(compare(a, b), batch).to_pylist() == [compare(1, 2), compare(2, 2), None], (left, right)


def test_large_integer_and_float_compare() -> None:
    assert evaluate(a == 0.5, a=[2**60 + 1, None]) == [False, None]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (a == 2, [False, True, None]),
        (2 > a, [True, False, None]),  # noqa: SIM300
        (a != b, [True, False, None]),
        (a == None, [None] * 3),  # noqa: E711
        (a.eq_null_safe(b), [False, True, False]),
        (a.eq_null_safe(None), [False, False, True]),
        (f.eq_null_safe(a, a), [True, True, True]),
        (a.is_null(), [False, False, True]),
        (a.not_null(), [True, True, False]),
        (f.is_null(a), [False, False, True]),
        (f.not_null(a), [True, True, False]),
        (a.between(2, 5), [False, True, None]),
        (f.between(a, 0, b), [False, True, None]),
        (a.is_in([2, 7]), [False, True, None]),
        (a.is_in([1.0]), [True, False, None]),
        (a.is_in([1, None]), [True, None, None]),
        (a.is_in([]), [False, False, None]),
        (a.is_in(list(range(2, 20))), [False, True, None]),
        (f.is_in(a, (1, 2)), [True, True, None]),
        (a.fill_null(0), [1, 2, 0]),
        (a.fill_null(0.5), [1.0, 2.0, 0.5]),
        (f.fill_null(a, b), [1, 2, 5]),
        (f.coalesce(None, a, b), [1, 2, 5]),
        ((a > 1).if_else(a, b), [0, 2, 5]),
        ((a > 1).if_else("big", None), [None, "big", None]),
        (f.if_else(a > 1, 1, 0.5), [0.5, 1.0, 0.5]),
        (lit(True).if_else(a, b), [1, 2, None]),
        (when(a > 1).then("x").when(a > 0).then("y").otherwise("z"), ["y", "x", "z"]),
        (when(a > 1).then("x"), [None, "x", None]),
        (f.when(a > 1, then="x").when(a > 0, then=b.cast("string")).otherwise("z"), ["0", "x", "z"]),
    ],
)
def test_operators(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, a=[1, 2, None], b=[0, 2, 5]) == expected


THREE = (True, False, None)


def test_three_valued_logic() -> None:
    pairs = list(itertools.product(THREE, THREE))
    left, right = pa.array([x for x, _ in pairs], pa.bool_()), pa.array([y for _, y in pairs], pa.bool_())

    def and_(x: bool | None, y: bool | None) -> bool | None:
        return False if x is False or y is False else None if x is None or y is None else True

    def or_(x: bool | None, y: bool | None) -> bool | None:
        return True if x is True or y is True else None if x is None or y is None else False

    assert evaluate(a & b, a=left, b=right) == [and_(x, y) for x, y in pairs]
    assert evaluate(a | b, a=left, b=right) == [or_(x, y) for x, y in pairs]
    assert evaluate(a ^ b, a=left, b=right) == [None if x is None or y is None else x != y for x, y in pairs]
    assert evaluate(~a, a=[True, False, None]) == [False, True, None]
    assert evaluate(a & None, a=[True, False, None]) == [None, False, None]
    assert evaluate(None | a, a=[True, False, None]) == [True, None, None]


def test_integers_have_bits() -> None:
    assert evaluate(a & 3, a=[6, None]) == [2, None]
    assert evaluate(a | b, a=[6, None], b=[1, 1]) == [7, None]
    assert evaluate(a ^ 3, a=[6, None]) == [5, None]
    assert evaluate(~a, a=[6, None]) == [-7, None]


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3], None],
        [{"x": 1}, {"x": 2}, None],
        to_arrow_array([[1.0, 2.0], [3.0, 4.0], None], DataType.embedding("float32", 2), what="a"),
        to_arrow_array([object, len, None], DataType.python(), what="a"),
        pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    ],
    ids=["list", "struct", "embedding", "python", "map"],
)
def test_nested_values_and_extensions(values: Any) -> None:
    first = batch_of(a=values).column(0)[0]
    assert evaluate(a == lit(first), a=values) == [True, False, None]
    assert evaluate(a != lit(first), a=values) == [False, True, None]
    filled = evaluate(a.fill_null(lit(first)), a=values)
    assert repr(filled[2]) == repr(filled[0])
    chosen = evaluate(a.is_null().if_else(lit(first), a), a=values)
    assert repr(chosen) == repr(filled)
    if isinstance(values, list):
        assert evaluate(a <= lit(first), a=values) == [True, False, None]
        return
    with pytest.raises(TypeMismatchError, match="its values have no order"):
        resolved(a < a, a=values)


def test_lists_and_structs_are_ordered_element_by_element() -> None:
    lists = [[2], [1, 5], [1], [], [1, None], None]
    assert evaluate(a < lit([1, 5]), a=lists) == [False, False, True, True, False, None]
    assert evaluate(a >= lit({"x": 2, "y": "b"}), a=[{"x": 2, "y": "a"}, {"x": 3, "y": ""}, None]) == [
        False,
        True,
        None,
    ]


def test_dates_and_timestamps_compare() -> None:
    assert evaluate(a < dt.datetime(2024, 1, 1, 12), a=[dt.date(2024, 1, 1), None]) == [True, None]
    utc, tokyo = pa.timestamp("us", "UTC"), pa.timestamp("s", "Asia/Tokyo")
    assert evaluate(a == b, a=pa.array([0, None], utc), b=pa.array([0, 0], tokyo)) == [True, None]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            a == "x",
            r"col\(a\) == 'x': cannot compare int64 with string; convert the text with .cast\(.*, or the other side",
        ),
        (a < "x", "cannot compare int64 with string"),
        (a == True, r'cannot compare int64 with bool; convert the bool with .cast\("int64"\)'),  # noqa: E712
        (a.is_in(["x"]), "cannot compare int64 with string"),
        (a.eq_null_safe("x"), "cannot compare int64 with string"),
        (
            lit(dt.datetime(2024, 1, 1)) < lit(dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
            "one has a timezone and one has not",
        ),
        (b & a, "two bools or two integers, got string and int64"),
        (b & b, "expected a bool, got string; compare it with something to get one"),
        (~b, "expected a bool, got string"),
        (a.if_else(1, 2), "expected a bool, got int64"),
        ((a > 1).if_else(1, "x"), "int64 and string have no type in common"),
        (a.fill_null("x"), "int64 and string have no type in common"),
    ],
)
def test_wrong_types_are_reported_when_built(expression: Expression, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        resolved(expression, a=[1], b=["x"])


def test_is_in_takes_a_list() -> None:
    with pytest.raises(InvalidArgumentError, match="is_in takes a list of values"):
        a.is_in("abc")


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(a == 1)


@pytest.mark.parametrize(
    "write", [lambda x: f"Answer: {x}", lambda x: f"{x:>9}", "Answer: {}".format], ids=["f-string", "width", "format"]
)
def test_an_expression_in_an_f_string_is_an_error(write: Any) -> None:
    with pytest.raises(TypeError, match=r"the values of col\(a\).*functions\.format\('Answer: {}', column\)"):
        write(a)
    assert f"{a!r}" == repr(a) == str(a) == "col(a)"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (a == "2024-01-02", [False, True, None]),
        (a < "2024-01-02", [True, False, None]),
        (a < b, [None, False, None]),
        (a.between("2024-01-01", "2024-01-01"), [True, False, None]),
        (a.is_in(["2024-01-02"]), [False, True, None]),
    ],
)
def test_a_date_is_compared_with_text(expression: Expression, expected: list[bool | None]) -> None:
    """Text that is not a date is unknown."""
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]
    assert evaluate(expression, a=days, b=["tomorrow", "2024-01-01", "2024-01-01"]) == expected


def test_an_expression_is_hashed_by_identity() -> None:
    """``==`` builds an expression, so equal expressions are different keys."""
    assert len({a: 1, b: 2, col("a"): 3}) == 3
    assert {a: 1}[a] == 1
    assert col("a") not in {a}

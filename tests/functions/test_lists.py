"""Functions of lists, structs and maps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import functions as f
from penstock.errors import ComputeError, InvalidArgumentError, PlanError, TypeMismatchError
from penstock.expr.column import Expression, col, element
from penstock.types import DataType
from tests.expr.evaluating import evaluate, resolved

a, b, i, s, m = col("a"), col("b"), col("i"), col("s"), col("m")
LISTS = [[3, 1, None, 3], [], None, [None], [2]]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.list_length(a), [4, 0, None, 1, 1]),
        (f.list_count(a), [3, 0, None, 0, 1]),
        (f.list_count(a, "null"), [1, 0, None, 1, 0]),
        (f.list_count(a, "all"), [4, 0, None, 1, 1]),
        (f.list_sum(a), [7, None, None, None, 2]),
        (f.list_mean(a), [7 / 3, None, None, None, 2.0]),
        (f.list_min(a), [1, None, None, None, 2]),
        (f.list_max(a), [3, None, None, None, 2]),
        (f.list_sort(a), [[1, 3, 3, None], [], None, [None], [2]]),
        (f.list_sort(a, desc=True), [[None, 3, 3, 1], [], None, [None], [2]]),
        (f.list_sort(a, nulls_first=True), [[None, 1, 3, 3], [], None, [None], [2]]),
        (f.list_distinct(a), [[3, 1], [], None, [], [2]]),
        (f.list_contains(a, 3), [True, False, None, False, False]),
        (f.list_contains(a, i), [True, False, None, False, None]),
        (f.list_get(a, 0), [3, None, None, None, 2]),
        (f.list_get(a, -2, default=9), [9, 9, 9, 9, 9]),
        (f.list_get(a, i), [1, None, None, None, None]),
        (f.get(a, 0), [3, None, None, None, 2]),
        (f.get(a, i), [1, None, None, None, None]),
        (a[1], [1, None, None, None, None]),
        (a[-1], [3, None, None, None, 2]),
        (f.list_slice(a, 1), [[1, None, 3], [], None, [], []]),
        (f.list_slice(a, -2, -1), [[None], [], None, [], []]),
        (f.slice(a, 0, 1), [[3], [], None, [None], [2]]),
        (a[2:1], [[], [], None, [], []]),
        (f.list_map(a, element() * 2), [[6, 2, None, 6], [], None, [None], [4]]),
        (f.list_map(a, element().is_null()), [[False, False, True, False], [], None, [True], [False]]),
        (f.list_filter(a, element() > 1), [[3, 3], [], None, [], [2]]),
        (f.list_map(a, f.format("{}!", element())), [["3!", "1!", None, "3!"], [], None, [None], ["2!"]]),
        (f.to_list(i, i * 10), [[1, 10], [2, 20], [3, 30], [4, 40], [None, None]]),
        (f.length(a), [4, 0, None, 1, 1]),
    ],
)
def test_lists_of_integers(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, a=LISTS, i=[1, 2, 3, 4, None]) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.list_sum(a), [3.0, None]),
        (f.list_mean(a), [1.5, None]),
        (f.list_max(a), [2.0, None]),
        (f.list_sort(a, desc=True), [[2.0, 1.0], None]),
        (f.list_distinct(a), [[1.0, 2.0], None]),
        (f.list_contains(a, 2), [True, None]),
        (f.list_get(a, 1), [2.0, None]),
        (f.list_slice(a, 1), [[2.0], None]),
        (f.list_length(a), [2, None]),
    ],
)
@pytest.mark.parametrize("dtype", ["fixed_size_list[float64; 2]", "embedding[float32; 2]", "list[float16]"])
def test_other_kinds_of_lists(expression: Expression, expected: list[Any], dtype: str) -> None:
    column = DataType.of(dtype)
    from penstock.types import to_arrow_array

    assert evaluate(expression, a=to_arrow_array([[1.0, 2.0], None], column, what="a")) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.list_join(a, "-"), ["y--x", "", None, ""]),
        (f.list_join(a, b), ["y++x", "", None, None]),
        (f.list_min(a), ["x", None, None, None]),
        (f.list_max(a), ["y", None, None, None]),
        (f.list_sort(a), [["x", "y", None], [], None, [None]]),
        (f.list_distinct(a), [["y", "x"], [], None, []]),
        (f.list_contains(a, "x"), [True, False, None, False]),
        (f.list_contains(a, b), [False, False, None, None]),
        (f.list_map(a, f.upper(element())), [["Y", None, "X"], [], None, [None]]),
    ],
)
def test_lists_of_text(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, a=[["y", None, "x"], [], None, [None]], b=["+", "+", "+", None]) == expected


def test_flatten() -> None:
    lists = [[[1], None, [2, None]], [], None, [[]]]
    assert evaluate(f.list_flatten(a), a=lists) == [[1, 2, None], [], None, []]


def test_structs_in_lists() -> None:
    lists = [[{"x": 1}, {"x": 2}], None]
    assert evaluate(f.list_map(a, element()["x"]), a=lists) == [[1, 2], None]
    assert evaluate(a[0]["x"], a=lists) == [1, None]


def test_to_list_of_different_types() -> None:
    assert evaluate(f.to_list(a, 0.5, None), a=[1, None]) == [[1.0, 0.5, None], [None, 0.5, None]]
    assert resolved(f.to_list(a, 0.5), a=[1]) == DataType.list("float64")


@pytest.mark.parametrize(
    ("numbers", "dtype"), [([2**62, 2**62], "int64"), ([-(2**63), None, -1], "int64"), ([2**63, 2**63], "uint64")]
)
def test_a_sum_that_does_not_fit_is_an_error(numbers: list[int | None], dtype: str) -> None:
    lists = pa.array([[1], numbers], pa.list_(pa.type_for_alias(dtype)))
    with pytest.raises(ComputeError, match=f"list_sum: .* out of range for the destination type {dtype.upper()}"):
        evaluate(f.list_sum(a), a=lists)


def test_a_sum_may_exceed_the_type_on_the_way_and_reach_its_end() -> None:
    assert evaluate(f.list_sum(a), a=[[2**62, 2**62, -(2**62)], [2**62, 2**62 - 1], []]) == [2**62, 2**63 - 1, None]


def test_sum_of_unsigned_integers_stays_unsigned() -> None:
    lists = pa.array([[1, 2], None], pa.list_(pa.uint8()))
    assert resolved(f.list_sum(a), a=lists) == DataType.uint64()
    assert evaluate(f.list_sum(a), a=lists) == [3, None]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.struct_get(s, "x"), [1, None, None]),
        (s["y z"], ["a", None, None]),
        (f.get(s, "x", default=7), [1, 7, 7]),
        (f.to_struct(s["x"].alias("q"), w=i), [{"q": 1, "w": 5}, {"q": None, "w": 6}, {"q": None, "w": None}]),
        (f.to_struct("i"), [{"i": 5}, {"i": 6}, {"i": None}]),
    ],
)
def test_structs(expression: Expression, expected: list[Any]) -> None:
    structs = [{"x": 1, "y z": "a"}, {"x": None, "y z": None}, None]
    assert evaluate(expression, s=structs, i=[5, 6, None]) == expected


def test_unnest() -> None:
    from penstock.expr.evaluate import Program
    from penstock.types import Schema
    from tests.expr.evaluating import batch_of

    batch = batch_of(s=[{"x": 1, "y": "a"}, None])
    for expression in (f.unnest(s), f.get(s, "*")):
        result = Program([expression._node], Schema.from_arrow(batch.schema)).run(batch)
        assert result.to_pydict() == {"x": [1, None], "y": ["a", None]}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.map_get(m, "k"), [1, None, None, None]),
        (f.map_get(m, b), [1, 2, None, None]),
        (m["k"], [1, None, None, None]),
        (f.get(m, "k", default=0), [1, 0, 0, 0]),
        (f.map_keys(m), [["k", "l"], ["l"], [], None]),
        (f.map_values(m), [[1, None], [2], [], None]),
    ],
)
def test_maps(expression: Expression, expected: list[Any]) -> None:
    maps = pa.array([[("k", 1), ("l", None)], [("l", 2)], [], None], pa.map_(pa.string(), pa.int64()))
    assert evaluate(expression, m=maps, b=["k", "l", "k", "k"]) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f.list_sum(b), "expected a list of numbers, got list\\[string\\]"),
        (
            f.list_join(a, "-"),
            'expected a list of strings, got list\\[int64\\]; convert it with .cast\\("list\\[string\\]"',
        ),
        (f.list_sum(i), "expected a list of numbers, got int64"),
        (f.list_contains(a, "x"), "cannot compare int64 with string"),
        (f.list_flatten(a), "expected a list of lists, got list\\[int64\\]"),
        (f.list_map(i, element()), "expected a list, got int64"),
        (f.list_filter(a, element()), "must be bool, got int64"),
        (f.struct_get(s, "xx"), "no field 'xx'; available: x. Did you mean 'x'?"),
        (s["xx"], "no field 'xx'"),
        (s[0], "indexed by the name of a field, not by 0"),
        (a["x"], "indexed by a position, not by 'x'"),
        (i[0], "expected a list, struct or map, got int64"),
        (f.map_keys(a), "expected a map, got list"),
        (f.list_map(a, element() + i), "may only read element"),
    ],
)
def test_wrong_type_is_reported_when_built(expression: Expression, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        resolved(expression, a=[[1]], b=[["x"]], i=[1], s=[{"x": 1}])


def test_bad_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match="use one of all, valid, null"):
        f.list_count(a, "some")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="two fields have the name 'x'"):
        f.to_struct("x", x=i)
    for function in (f.to_list, f.to_struct):
        with pytest.raises(InvalidArgumentError, match="one or more"):
            function()
    with pytest.raises(TypeMismatchError, match="the keys of the map are string"):
        resolved(f.map_get(m, 1), m=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())))


def test_fields_and_map_values_are_named_after_their_keys() -> None:
    maps = pa.array([[("x", 1), ("y", 2)]], pa.map_(pa.string(), pa.int64()))
    df = ps.from_arrow(pa.table({"m": maps, "s": [{"a": 3, "b": 4}]}))
    m, s = ps.col("m"), ps.col("s")
    found = df.select(m["x"], m["y"], s["a"] + 1, s.struct_get("b"), s.get("a").alias("c"))
    assert found.to_pydict() == {"x": [1], "y": [2], "a": [4], "b": [4], "c": [3]}


@ps.func
def tenfold(number: int) -> int:
    return number * 10


@pytest.mark.parametrize("verb", ["list_map", "list_filter"])
def test_functions_of_elements_are_refused(verb: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{verb} takes no function calls.*explode"):
        getattr(ps.col("l"), verb)(tenfold(ps.element()))

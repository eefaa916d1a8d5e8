"""JSON text."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from penstock import functions as f
from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr.column import col
from tests.expr.evaluating import evaluate, resolved

t = col("t")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"a": 1, "b": [None, 0.5]}, None], ['{"a":1,"b":[null,0.5]}', None]),
        (["x", None], ['"x"', None]),
        ([1, None], ["1", None]),
        ([[True], None], ["[true]", None]),
        ([dt.date(2024, 7, 3), None], ['"2024-07-03"', None]),
        ([b"ab", None], ['"ab"', None]),
    ],
)
def test_serialize(values: list[Any], expected: list[Any]) -> None:
    assert evaluate(f.serialize(t, "json"), t=values) == expected


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("int64", "12", 12),
        ("float64", "12", 12.0),
        ("string", '"x"', "x"),
        ("bool", "true", True),
        ("int8", "12", 12),
        ("date", '"2024-07-03"', dt.date(2024, 7, 3)),
        ("list[int64]", "[1, null]", [1, None]),
        ("struct[a: int64, b: list[string]]", '{"a": 1, "c": 2}', {"a": 1, "b": None}),
        ("map[string: int64]", '{"a": 1}', [("a", 1)]),
        ("fixed_size_list[float32; 2]", "[1, 2]", [1.0, 2.0]),
    ],
)
def test_deserialize(dtype: str, text: str, expected: Any) -> None:
    assert evaluate(f.deserialize(t, "json", dtype), t=[text, None, "null"]) == [expected, None, None]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("int64", "oops"),
        ("int64", "1.5"),
        ("int64", '"1"'),
        ("int8", "1000"),
        ("string", "1"),
        ("list[int64]", "{}"),
        ("struct[a: int64]", "[]"),
        ("struct[a: int64]", '{"a": "x"}'),
        ("fixed_size_list[float32; 2]", "[1]"),
        ("date", '"yesterday"'),
    ],
)
def test_text_that_does_not_fit(dtype: str, text: str) -> None:
    assert evaluate(f.try_deserialize(t, "json", dtype), t=[text, None]) == [None, None]
    with pytest.raises(ComputeError, match=r"does not fit .* try_deserialize gives null"):
        evaluate(f.deserialize(t, "json", dtype), t=[text])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", '{"a":{"b":[10,"x"]},"c d":null}'),
        ("$.a", '{"b":[10,"x"]}'),
        ("$.a.b[0]", "10"),
        ("$.a.b[-1]", "x"),
        ("$.a.b[7]", None),
        ('$."a".b', '[10,"x"]'),
        ('$."c d"', None),
        ("$.a.b.x", None),
        ("$.zzz", None),
    ],
)
def test_json_extract(path: str, expected: str | None) -> None:
    text = '{"a": {"b": [10, "x"]}, "c d": null}'
    assert evaluate(f.json_extract(t, path), t=[text, None, "no json"]) == [expected, None, None]


def test_bad_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'a\.b' is not a path"):
        f.json_extract(t, "a.b")
    with pytest.raises(InvalidArgumentError, match="is not a path"):
        f.json_extract(t, "$.a[*]")
    with pytest.raises(ComputeError, match="JSON path error near"):
        evaluate(f.json_extract(t, "$.a["), t=["{}"])
    with pytest.raises(InvalidArgumentError, match="is not known; use one of json"):
        f.serialize(t, "yaml")  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="expected a string, got int64"):
        resolved(f.deserialize(t, "json", "int64"), t=[1])


@pytest.mark.parametrize("others", [[], [None]])
def test_nan_is_no_json(others: list[Any]) -> None:
    """The result of a row does not depend on those beside it."""
    read = f.try_deserialize(t, "json", "struct[a: float64, b: string]")
    texts = ['{"a": NaN, "b": "x"}', '{"a": -inf}', '{"a": 1.5, "b": ": nan"}', *others]
    assert evaluate(read, t=texts)[:3] == [None, None, {"a": 1.5, "b": ": nan"}]


@pytest.mark.parametrize(
    "texts",
    [["", "{}"], ["{}{}", ""], ['{"a":', "{}}", "{}{}"], ['{"a":{}', "}"], ['{"b":"}', '{"}'], [' {"a": 1}', "{}\n"]],
)
def test_objects_that_do_not_keep_to_their_rows(texts: list[str]) -> None:
    read = f.try_deserialize(t, "json", "struct[a: int64, b: string]")
    assert evaluate(read, t=texts) == [evaluate(read, t=[text])[0] for text in texts]

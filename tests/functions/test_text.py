"""Case, length, parts and joining of text."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import functions as f
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, col, lit
from tests.expr.evaluating import evaluate, resolved

t, n, p = col("t"), col("n"), col("p")
TEXTS = ["hELLO wORLD", "", None, " äÖ ß "]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.upper(t), ["HELLO WORLD", "", None, " ÄÖ ẞ "]),
        (f.lower(t), ["hello world", "", None, " äö ß "]),
        (f.capitalize(t), ["Hello world", "", None, " äö ß "]),
        (f.title(t), ["Hello World", "", None, " Äö ẞ "]),
        (f.reverse(t), ["DLROw OLLEh", "", None, " ß Öä "]),
        (f.strip(t), ["hELLO wORLD", "", None, "äÖ ß"]),
        (f.lstrip(t), ["hELLO wORLD", "", None, "äÖ ß "]),
        (f.rstrip(t), ["hELLO wORLD", "", None, " äÖ ß"]),
        (f.length(t), [11, 0, None, 6]),
        (f.length_bytes(t), [11, 0, None, 9]),
        (f.substr(t, 1, 2), ["EL", "", None, "äÖ"]),
        (f.substr(t, 2), ["LLO wORLD", "", None, "Ö ß "]),
        (f.substr(t, -3, 2), ["RL", "", None, " ß"]),
        (f.substr(t, 1, 0), ["", "", None, ""]),
        (f.repeat(t, 2), ["hELLO wORLD" * 2, "", None, " äÖ ß " * 2]),
        (f.repeat(t, -1), ["", "", None, ""]),
        (f.concat(t, "!"), ["hELLO wORLD!", "!", None, " äÖ ß !"]),
        (f.concat("<", t, ">"), ["<hELLO wORLD>", "<>", None, "< äÖ ß >"]),
        (t.upper().lower(), ["hello world", "", None, " äö ß "]),
    ],
)
def test_function_of_one_text(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=TEXTS) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.substr(t, n), ["bc", "abc", None, None]),
        (f.substr(t, 0, n), ["a", "", None, None]),
        (f.repeat(t, n), ["abc", "", None, None]),
    ],
)
def test_parameter_from_a_column(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=["abc", "abc", "abc", None], n=[1, 0, None, 2]) == expected


def test_length_of_binary_and_lists() -> None:
    assert evaluate(f.length(t), t=[b"abc", None]) == [3, None]
    assert evaluate(f.length(t), t=[[1, None], [], None]) == [2, 0, None]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.format("{}-{}", t, n), ["a-1", None, None]),
        (f.format("{} {{x}} {n}", "t"), ["a {x} 1", None, None]),
        (f.format("{n}"), ["1", "2", None]),
        (f.format("{}", lit(1.0)), ["1.0", "1.0", "1.0"]),
        (f.format("plain"), ["plain"] * 3),
        (f.concat_ws("-", t, p, "z"), ["a-p-z", "q-z", "c-z"]),
        (f.concat_ws("-", t, p), ["a-p", "q", "c"]),
    ],
)
def test_joining(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=["a", None, "c"], n=[1, 2, None], p=["p", "q", None]) == expected


def test_concat_ws_of_nulls_alone_is_null() -> None:
    assert evaluate(f.concat_ws("-", t, p), t=["a", None], p=["b", None]) == ["a-b", None]


def test_concat_of_binary() -> None:
    assert evaluate(f.concat(t, b"!"), t=[b"a", None]) == [b"a!", None]


@pytest.mark.parametrize(
    ("template", "args", "message"),
    [
        ("{} {}", (t,), r"has 2 \{\}; it was given 1 argument"),
        ("{}", (t, n), r"has 1 \{\}; it was given 2 arguments"),
        ("{", (), "is not a template"),
        ("{t:.2f}", (), "does not name a column"),
    ],
)
def test_bad_template(template: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        f.format(template, *args)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f.upper(n), r'upper\(col\(n\)\): expected a string, got int64; convert it with .cast\("string"\)'),
        (f.concat(t, n), "expected a string or binary, got int64"),
        (f.length(n), "expected a string, binary or list, got int64"),
    ],
)
def test_wrong_type_is_reported_when_built(expression: Expression, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        resolved(expression, t=["a"], n=[1])

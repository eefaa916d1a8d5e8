"""Substrings, LIKE and regular expressions."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import functions as f
from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, col
from tests.expr.evaluating import evaluate, resolved, run

t, p, r = col("t"), col("p"), col("r")
TEXTS = ["a1b22", "", None, "A.b\nc é"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.contains(t, "b"), [True, False, None, True]),
        (f.startswith(t, "a"), [True, False, None, False]),
        (f.endswith(t, "é"), [False, False, None, True]),
        (f.replace(t, ".", "-"), ["a1b22", "", None, "A-b\nc é"]),
        (f.split(t, "b"), [["a1", "22"], [""], None, ["A.", "\nc é"]]),
        (f.count_matches(t, ["2", "22"]), [1, 0, None, 0]),
        (f.count_matches(t, "a", case_sensitive=False), [1, 0, None, 1]),
        (f.count_matches(t, ["b", "c"], whole_words=True), [0, 0, None, 2]),
        (
            f.normalize(t, remove_punct=True, lowercase=True, nfd_unicode=True, white_space=True),
            ["a1b22", "", None, "ab c e\u0301"],
        ),
        (f.normalize(t), TEXTS),
        (f.like(t, "a%2_"), [True, False, None, False]),
        (f.ilike(t, "A%"), [True, False, None, True]),
        (f.like(t, r"A.b%"), [False, False, None, True]),
        (f.regexp(t, "[0-9]"), [True, False, None, False]),
        (f.regexp_match(t, "^$"), [False, True, None, False]),
        (f.regexp_count(t, "[0-9]"), [3, 0, None, 0]),
        (f.regexp_split(t, "[0-9]+"), [["a", "b", ""], [""], None, ["A.b\nc é"]]),
        (f.regexp_extract(t, "([a-z])([0-9]+)"), ["a1", None, None, None]),
        (f.regexp_extract(t, "([a-z])([0-9]+)", 2), ["1", None, None, None]),
        (f.regexp_extract(t, "(x)?b", 1), [None, None, None, None]),
        (f.regexp_extract(t, "(x*)b", 1), ["", None, None, ""]),
        (f.regexp_extract(t, "(?i)^a"), ["a", None, None, "A"]),
        (f.regexp_extract(t, "c.*$"), [None, None, None, "c é"]),
        (f.regexp_extract_all(t, "[a-z]([0-9]+)", 1), [["1", "22"], [], None, []]),
        (f.regexp_replace(t, "([a-z])([0-9])", r"\2\1"), ["1a2b2", "", None, "A.b\nc é"]),
        (f.regexp_replace(t, "([a-z])([0-9])", "<$2$1\\2$>"), ["<1a1$><2b2$>2", "", None, "A.b\nc é"]),
        (f.regexp_replace(t, "[0-9]", r"\n\\"), ["a\\n\\b\\n\\\\n\\", "", None, "A.b\nc é"]),
    ],
)
def test_constant_pattern(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=TEXTS) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.contains(t, p), [True, False, None, None]),
        (f.startswith(t, p), [False, False, None, None]),
        (f.endswith(t, p), [True, False, None, None]),
        (f.replace(t, p, "-"), ["a-", "xyz", None, None]),
        (f.replace(t, "a", r), ["<b", "xyz", None, "c"]),
        (f.split(t, p), [["a", ""], ["xyz"], None, None]),
        (f.like(t, p), [False, False, None, None]),
        (f.ilike(t, f.concat("%", f.upper(p))), [True, False, None, None]),
        (f.regexp(t, p), [True, False, None, None]),
        (f.regexp_count(t, p), [1, 0, None, None]),
        (f.regexp_split(t, p), [["a", ""], ["xyz"], None, None]),
        (f.regexp_extract(t, p), ["b", None, None, None]),
        (f.regexp_extract_all(t, p), [["b"], [], None, None]),
        (f.regexp_replace(t, p, r), ["a<", "xyz", None, None]),
        (f.regexp_replace(t, "(b)", r"\1\1"), ["abb", "xyz", None, "c"]),
    ],
)
def test_pattern_from_a_column(expression: Expression, expected: list[Any]) -> None:
    columns = {"t": ["ab", "xyz", None, "c"], "p": ["b", "q", "b", None], "r": ["<", "<", "<", "<"]}
    assert evaluate(expression, **columns) == expected


def test_escape_in_like() -> None:
    assert evaluate(f.like(t, r"10\%"), t=["10%", "100"]) == [True, False]
    assert evaluate(f.like(t, p), t=["10%", "100", "a.c"], p=[r"10\%", r"10\%", "a.c"]) == [True, False, True]


@pytest.mark.parametrize("function", [f.regexp, f.regexp_count, f.regexp_split, f.regexp_extract, f.regexp_extract_all])
def test_bad_regular_expression_is_reported_when_built(function: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a regular expression"):
        function(t, "(")


def test_group_that_does_not_exist() -> None:
    with pytest.raises(InvalidArgumentError, match="index=2, but the groups"):
        f.regexp_extract(t, "(a)", 2)


def test_empty_patterns() -> None:
    with pytest.raises(InvalidArgumentError, match="split_on is empty"):
        f.split(t, "")
    with pytest.raises(InvalidArgumentError, match="not empty"):
        f.count_matches(t, [])


def test_wrong_type() -> None:
    with pytest.raises(TypeMismatchError, match="expected a string, got int64"):
        resolved(f.contains(t, "a"), t=[1])
    with pytest.raises(TypeMismatchError, match="expected a string, got int64"):
        resolved(f.contains(t, 1), t=["a"])  # type: ignore[arg-type]


UNICODE = ["été 1", "Ω-٣", "日本語\u3000テキスト", "foo_bar", ""]


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w+",
        r"\W",
        r"\d",
        r"\D+",
        r"\s",
        r"\S+",
        r"[\w-]+",
        r"[^\s]+",
        r"[\d\W]",
        r"\b\w",
        r"\Bt",
        "(?i)É",
        "",
        r"(\w)(\d)?",
    ],
)
@pytest.mark.parametrize("is_column", [False, True])
def test_every_function_reads_a_pattern_as_python_does(pattern: str, is_column: bool) -> None:
    df = ps.from_pydict({"t": UNICODE, "p": [pattern] * len(UNICODE)})
    given = ps.col("p") if is_column else pattern
    found = df.select(
        match=f.regexp_match(t, given),
        count=f.regexp_count(t, given),
        first=f.regexp_extract(t, given),
        all=f.regexp_extract_all(t, given),
        pieces=f.regexp_split(t, given),
        replaced=f.regexp_replace(t, given, "<$0>"),
    ).to_pylist()
    for text, row in zip(UNICODE, found, strict=True):
        matches = list(re.finditer(pattern, text))
        assert row == {
            "match": bool(matches),
            "count": len(matches),
            "first": matches[0][0] if matches else None,
            "all": [match[0] for match in matches],
            "pieces": re.split(pattern.replace("(", "(?:").replace("(?:?", "(?"), text),
            "replaced": re.sub(pattern, r"<\g<0>>", text),
        }


@pytest.mark.parametrize("pattern", [r"\b\p{L}", "(a", r"[[:foo:]]"])
def test_patterns_that_cannot_be_read(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match="regexp_count: "):
        f.regexp_count(t, pattern)
    with pytest.raises(InvalidArgumentError):
        ps.from_pydict({"t": ["a"], "p": [pattern]}).select(f.regexp_count(t, ps.col("p"))).collect()


def test_a_group_that_the_pattern_of_a_row_lacks() -> None:
    df = ps.from_pydict({"t": ["a"], "p": ["(a)"]})
    for expr in (f.regexp_extract(t, ps.col("p"), 2), f.regexp_replace(t, "a", "$1")):
        with pytest.raises(ComputeError, match="has no group"):
            df.select(expr).collect()


@pytest.mark.parametrize("num_others", [0, 40], ids=["most rows agree", "few rows agree"])
def test_affixes_from_a_column(num_others: int) -> None:
    texts = ["", "é", "same same text", "same same text", None, "abcdefghi", "ab", *["x"] * num_others]
    parts = ["", "é", "same same text", "same same test", "a", "abcdefgh", "abc", *["y"] * num_others]
    starts = [True, True, True, False, None, True, False, *[False] * num_others]
    assert evaluate(f.startswith(t, col("p")), t=texts, p=parts) == starts
    ends = [None if text is None else text.endswith(part) for text, part in zip(texts, parts, strict=True)]
    assert evaluate(f.endswith(t, col("p")), t=texts, p=parts) == ends


@pytest.mark.parametrize("literal", ["it's", "é", "50", "a\0"])
def test_literal_in_many_rows(literal: str) -> None:
    texts = ["it's 50%", "", None, "é", "a\0b"] * 5000
    batch = pa.record_batch({"t": texts}).slice(2)
    expected = [None if text is None else literal in text for text in texts[2:]]
    assert run(f.contains(t, literal), batch).to_pylist() == expected
    assert run(f.like(t, f"%{literal}%"), batch).to_pylist() == expected
    assert run(f.ilike(t, f"%{literal.upper()}%"), batch).to_pylist() == expected


@pytest.mark.parametrize(
    ("patterns", "expected"), [("aa", 2), (["ab", "ba"], 2), (["a", "b"], 9), (["b", "x"], 4), (["é", "é"], 1)]
)
def test_count_of_literals_that_may_overlap(patterns: list[str], expected: int) -> None:
    assert evaluate(f.count_matches(t, patterns), t=["aaaababébb", None]) == [expected, None]

r"""Regular expressions: match, count, split, extract and replace. Plain substrings are in ``substrings``.

There is one dialect: the syntax of RE2, with ``\w \d \s \b`` for Unicode text, as in Python's ``re``.
RE2 takes linear time, and has no look-around and no back-references. Its own classes cover ASCII only, so they are
written out as Unicode properties. It cannot match what depends on a Unicode class but has no such form: ``\b``, ``\B``,
and ``\W`` or ``\S`` inside brackets. Python's ``re`` matches these patterns, for every function alike.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError
from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import BOOL, INT64, STRING, TEXT, Kind
from penstock.expr.public_functions import method
from penstock.expr.signatures import text_kernel
from penstock.functions.table import Builder, FunctionTable
from penstock.relational.scalar import evaluate
from penstock.types import DataType
from penstock.types.plain import arrow_array, arrow_scalar

_CLASSES = {"w": r"\p{L}\p{N}_", "d": r"\p{Nd}", "s": r"\t-\r\x1c-\x20\x{85}\p{Z}"}
WHITE_SPACE = f"[{_CLASSES['s']}]"
_TOKENS = re.compile(r"\\Q.*?(?:\\E|\Z)|\[:\^?\w+:\]|\[\^?\]?|\(\?P?<|\(\?|\\.|.", re.DOTALL)
_GROUPS = ("(", "(?<", "(?P<")


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """A pattern as RE2 writes it, and as Python writes it if Python can; ``needs_python`` requires that."""

    re2: str
    python: re.Pattern[str] | None
    needs_python: bool
    num_groups: int


@functools.lru_cache(maxsize=1024)
def _regular_expression(pattern: str) -> RegularExpression:
    """Return a pattern in the form of its engine, or raise InvalidArgumentError."""
    written, is_in_brackets, needs_python, num_groups = [], False, False, 0
    for token in _TOKENS.findall(pattern):
        letter = token[1:].lower() if token[0] == "\\" else ""
        if letter in _CLASSES and is_in_brackets:
            needs_python |= token in (r"\W", r"\S")
            written.append(r"\P{Nd}" if token == r"\D" else _CLASSES[letter])
        elif letter in _CLASSES:
            written.append(f"[{'^' if token[1].isupper() else ''}{_CLASSES[letter]}]")
        else:
            needs_python |= letter == "b" and not is_in_brackets
            num_groups += token in _GROUPS and not is_in_brackets
            written.append(token)
        is_in_brackets = token != "]" if is_in_brackets else token[0] == "[" and not token.startswith("[:")
    re2, python = "".join(written), None
    try:
        pc.match_substring_regex(arrow_scalar(""), pattern=re2)
        python = re.compile(pattern)
    except pa.ArrowInvalid as exc:
        raise InvalidArgumentError(f"{pattern!r} is not a regular expression: {exc}") from None
    except re.error as exc:
        if needs_python:
            raise InvalidArgumentError(
                rf"{pattern!r} has \b, \B, or \W or \S in brackets, which are left to Python's re, and re cannot read "
                rf"it: {exc}; use \w, \d and \s instead of other classes"
            ) from None
    return RegularExpression(re2, python, needs_python, num_groups)


def _regexp_kernel(
    name: str, *parameters: Kind, returns: DataType, on_column: Callable[..., pa.Array], on_row: Callable[..., Any]
) -> None:
    """Register a kernel: ``on_column(texts, expression, ...)`` for RE2, ``on_row(compiled, text, ...)`` for Python."""

    def compute(texts: pa.Array, pattern: str, *more: Any, **options: Any) -> pa.Array:
        expression = _regular_expression(pattern)
        if not expression.needs_python:
            return on_column(texts, expression, *more, **options)
        call = functools.partial(on_row, expression.python)
        rows = [None if text is None else call(text, *more, **options) for text in texts.to_pylist()]
        return arrow_array(rows, returns.arrow)

    text_kernel(name, TEXT, *parameters, returns=returns, compute=compute)


def _in_duckdb(sql: str) -> Callable[..., pa.Array]:
    """Return the computation of a column by SQL, with ``{pattern}`` and ``{index}`` for the expression and a group."""

    def compute(texts: pa.Array, expression: RegularExpression, *, index: int = 0) -> pa.Array:
        _check_group(expression, index)
        pattern = "'" + expression.re2.replace("'", "''") + "'"
        return evaluate("regexp", sql.format(pattern=pattern, index=index), [texts])

    return compute


_table = FunctionTable(__name__)
STRINGS = DataType.list(STRING)


def _regexp(function: str, expr: Expression, pattern: Expression, *more: Any, **options: Any) -> Expression:
    """Build a call, and check a constant pattern first, so that an error appears on the line of the user."""
    index = options.get("index", 0)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= 9:
        raise InvalidArgumentError(f"{function}: index={index!r} is not the number of a group, from 0 to 9")
    if pattern.is_literal() and isinstance(text := pattern.as_py(), str):
        try:
            num_groups = _regular_expression(text).num_groups
        except InvalidArgumentError as exc:
            raise InvalidArgumentError(f"{function}: {exc}") from None
        if index > num_groups:
            raise InvalidArgumentError(f"{function}: index={index}, but the groups in {text!r} are {num_groups}")
    return call(function, expr, pattern, *more, **options)


def _regexp_function(
    name: str, doc: str, given: tuple[str, ...], result: Any, kernel: str = "", **more: Kind
) -> Builder:
    parameters = {"expr": TEXT, "pattern": TEXT, **more}
    return _table.build(name, parameters, functools.partial(_regexp, kernel or name), doc, given, result)


_MATCH = "Check whether a regular expression matches anywhere in the text."
regexp = _regexp_function("regexp", _MATCH, ("a1", "[0-9]"), True, "regexp_match")
regexp_match = _regexp_function("regexp_match", _MATCH, ("a1", "[0-9]"), True)


_regexp_kernel(
    "regexp_match",
    returns=BOOL,
    on_column=lambda text, expression: pc.match_substring_regex(text, pattern=expression.re2),
    on_row=lambda pattern, text: pattern.search(text) is not None,
)


regexp_count = _regexp_function(
    "regexp_count", "Count the matches of a regular expression that do not overlap.", ("a1b2", "[0-9]"), 2
)


def _count_all(text: pa.Array, expression: RegularExpression) -> pa.Array:
    if pc.match_substring_regex(arrow_scalar(""), pattern=expression.re2).as_py():
        # count_substring_regex of Arrow counts an empty match at every byte.
        return _in_duckdb("len(regexp_extract_all(a, {pattern}))")(text, expression)
    return pc.cast(pc.count_substring_regex(text, pattern=expression.re2), pa.int64())


_regexp_kernel(
    "regexp_count",
    returns=INT64,
    on_column=_count_all,
    on_row=lambda pattern, text: sum(1 for _ in pattern.finditer(text)),
)


_SPLIT = "Split text at every match of a regular expression into a list."
regexp_split = _regexp_function("regexp_split", _SPLIT, ("a1b22c", "[0-9]+"), ["a", "b", "c"])


def _split_all(text: pa.Array, expression: RegularExpression) -> pa.Array:
    if expression.python is None or expression.python.search("") is None:
        return _in_duckdb("regexp_split_to_array(a, {pattern})")(text, expression)
    split = functools.partial(_split_row, expression.python)  # DuckDB leaves out some empty matches
    return arrow_array([None if row is None else split(row) for row in text.to_pylist()], STRINGS.arrow)


def _split_row(pattern: re.Pattern[str], text: str) -> list[str]:
    bounds = [0, *(place for match in pattern.finditer(text) for place in match.span()), len(text)]
    return [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]


_regexp_kernel("regexp_split", returns=STRINGS, on_column=_split_all, on_row=_split_row)


@method
def regexp_extract(expr: Expression, pattern: str | Expression, index: int = 0) -> Expression:
    r"""Return the first match of a regular expression, or its group ``index``; null without a match.

    >>> ps.from_pydict({"t": ["a-12"]}).select(regexp_extract(ps.col("t"), r"(\w)-(\d+)", 2)).to_pydict()
    {'t': ['12']}
    """
    return _regexp("regexp_extract", expr, lit(pattern), index=index)


def _extract_row(pattern: re.Pattern[str], text: str, *, index: int) -> str | None:
    match = pattern.search(text)
    return None if match is None else _group_of(match, index)


_FIRST = _in_duckdb("case when regexp_matches(a, {pattern}) then regexp_extract(a, {pattern}) end")
_GROUP_OF_FIRST = _in_duckdb("regexp_extract_all(a, {pattern}, {index})[1]")  # null for a group without a match
_regexp_kernel(
    "regexp_extract",
    returns=STRING,
    on_column=lambda texts, expression, *, index: (_GROUP_OF_FIRST if index else _FIRST)(
        texts, expression, index=index
    ),
    on_row=_extract_row,
)


@method
def regexp_extract_all(expr: Expression, pattern: str | Expression, index: int = 0) -> Expression:
    """Return every match of a regular expression, or its group ``index``, as a list.

    >>> ps.from_pydict({"t": ["a1b22"]}).select(regexp_extract_all(ps.col("t"), "[0-9]+")).to_pydict()
    {'t': [['1', '22']]}
    """
    return _regexp("regexp_extract_all", expr, lit(pattern), index=index)


def _extract_all_rows(pattern: re.Pattern[str], text: str, *, index: int) -> list[str]:
    return [_group_of(match, index) or "" for match in pattern.finditer(text)]


def _group_of(match: re.Match[str], index: int) -> Any:
    _check_group(_regular_expression(match.re.pattern), index)
    return match[index]


def _check_group(expression: RegularExpression, index: int) -> None:
    if index > expression.num_groups:
        raise ComputeError(f"A regular expression with {expression.num_groups} groups has no group {index}")


_regexp_kernel(
    "regexp_extract_all",
    returns=STRINGS,
    on_column=_in_duckdb("[coalesce(found, '') for found in regexp_extract_all(a, {pattern}, {index})]"),
    on_row=_extract_all_rows,
)


regexp_replace = _regexp_function(
    "regexp_replace",
    r"Replace every match of a regular expression; ``\1`` or ``$1`` stands for a group, ``\0`` for the whole match.",
    ("a1", "([a-z])([0-9])", "$2$1"), "1a", replacement=TEXT,
)  # fmt: skip


_GROUP = re.compile(r"[\\$](\d)|\\\\?")
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


def _replace_all(text: pa.Array, expression: RegularExpression, replacement: str) -> pa.Array:
    for part in _GROUP.finditer(replacement):
        _check_group(expression, int(part[1] or 0))
    if not _GROUP.search(replacement) and expression.re2 and not _SPECIAL.search(expression.re2):
        return pc.replace_substring(text, pattern=expression.re2, replacement=replacement)
    rewritten = _GROUP.sub(lambda part: rf"\{part[1]}" if part[1] else r"\\", replacement)
    return pc.replace_substring_regex(text, pattern=expression.re2, replacement=rewritten)


def _replace_row(pattern: re.Pattern[str], text: str, replacement: str) -> str:
    def filled(match: re.Match[str]) -> str:
        return _GROUP.sub(lambda part: _group_of(match, int(part[1])) or "" if part[1] else "\\", replacement)

    return pattern.sub(filled, text)


_regexp_kernel("regexp_replace", TEXT, returns=STRING, on_column=_replace_all, on_row=_replace_row)

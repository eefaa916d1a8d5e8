"""Searches in text: plain substrings, SQL's LIKE, and regular expressions.

RE2 matches regular expressions. It takes linear time, but has no look-around and no back-references.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, call, method
from penstock.expr.kinds import BOOL, INT64, STRING, TEXT
from penstock.expr.registry import Value
from penstock.expr.signatures import strict, takes, text_kernel
from penstock.types import DataType

STRINGS = DataType.list(STRING)


def _regexp(function: str, expr: Expression, pattern: str | Expression, *more: Any, **options: Any) -> Expression:
    """Build a call, and check a constant pattern first, so that an error appears on the line of the user."""
    if isinstance(pattern, str):
        try:
            pc.match_substring_regex(pa.scalar(""), pattern=pattern)
        except pa.ArrowInvalid as exc:
            raise InvalidArgumentError(f"{function}: {pattern!r} is not a regular expression: {exc}") from None
    return call(function, expr, pattern, *more, **options)


# --- plain substrings -------------------------------------------------------------------------------------------------


@method
def contains(expr: Expression, substr: str | Expression) -> Expression:
    """Check whether text contains ``substr``.

    >>> ps.from_pydict({"t": ["abc", "x"]}).select(contains(ps.col("t"), "b")).to_pydict()
    {'t': [True, False]}
    """
    return call("contains", expr, substr)


@method
def startswith(expr: Expression, prefix: str | Expression) -> Expression:
    """Check whether text starts with ``prefix``.

    >>> ps.from_pydict({"t": ["abc", "x"]}).select(startswith(ps.col("t"), "a")).to_pydict()
    {'t': [True, False]}
    """
    return call("startswith", expr, prefix)


@method
def endswith(expr: Expression, suffix: str | Expression) -> Expression:
    """Check whether text ends with ``suffix``.

    >>> ps.from_pydict({"t": ["abc", "x"]}).select(endswith(ps.col("t"), "c")).to_pydict()
    {'t': [True, False]}
    """
    return call("endswith", expr, suffix)


text_kernel("contains", TEXT, returns=BOOL, compute=pc.match_substring)
text_kernel("startswith", TEXT, returns=BOOL, compute=pc.starts_with)
text_kernel("endswith", TEXT, returns=BOOL, compute=pc.ends_with)


@method
def replace(expr: Expression, search: str | Expression, replacement: str | Expression) -> Expression:
    """Replace every occurrence of ``search``, taken literally.

    >>> ps.from_pydict({"t": ["a.b.c"]}).select(replace(ps.col("t"), ".", "-")).to_pydict()
    {'t': ['a-b-c']}
    """
    return call("replace", expr, search, replacement)


text_kernel("replace", TEXT, TEXT, returns=STRING, compute=pc.replace_substring)


@method
def split(expr: Expression, split_on: str | Expression) -> Expression:
    """Split text at every ``split_on``, taken literally, into a list.

    >>> ps.from_pydict({"t": ["a,b"]}).select(split(ps.col("t"), ",")).to_pydict()
    {'t': [['a', 'b']]}
    """
    if isinstance(split_on, str) and not split_on:
        raise InvalidArgumentError("split: split_on is empty; use regexp_extract_all(expr, '(?s).') for the characters")
    return call("split", expr, split_on)


text_kernel("split", TEXT, returns=STRINGS, compute=pc.split_pattern)


@method
def count_matches(
    expr: Expression, patterns: str | Sequence[str], *, whole_words: bool = False, case_sensitive: bool = True
) -> Expression:
    """Count the occurrences of literal patterns; where two fit, the longer one counts.

    >>> ps.from_pydict({"t": ["hello world"]}).select(count_matches(ps.col("t"), ["hello", "world"])).to_pydict()
    {'t': [2]}
    """
    words = [patterns] if isinstance(patterns, str) else list(patterns)
    if not words or not all(words):
        raise InvalidArgumentError(f"count_matches takes one or more patterns that are not empty, got {patterns!r}")
    either = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    bounded = rf"\b(?:{either})\b" if whole_words else f"(?:{either})"
    return call("regexp_count", expr, bounded if case_sensitive else f"(?i){bounded}")


@method
def normalize(
    expr: Expression,
    *,
    remove_punct: bool = False,
    lowercase: bool = False,
    nfd_unicode: bool = False,
    white_space: bool = False,
) -> Expression:
    """Normalize texts for deduplication; every step is off by default.

    ``remove_punct`` removes ASCII punctuation, ``nfd_unicode`` decomposes characters, ``white_space`` replaces white
    space by single blanks and removes it at both ends.

    >>> df = ps.from_pydict({"t": ["Hello,  World!"]})
    >>> df.select(normalize(ps.col("t"), remove_punct=True, lowercase=True, white_space=True)).to_pydict()
    {'t': ['hello world']}
    """
    return call(
        "normalize",
        expr,
        remove_punct=remove_punct,
        lowercase=lowercase,
        nfd_unicode=nfd_unicode,
        white_space=white_space,
    )


@strict("normalize", takes(TEXT, returns=STRING))
def _normalize(text: Value, *, remove_punct: bool, lowercase: bool, nfd_unicode: bool, white_space: bool) -> Value:
    if nfd_unicode:
        text = pc.utf8_normalize(text, form="NFD")
    if lowercase:
        text = pc.utf8_lower(text)
    if remove_punct:
        text = pc.replace_substring_regex(text, pattern="[[:punct:]]+", replacement="")
    if white_space:
        text = pc.utf8_trim_whitespace(pc.replace_substring_regex(text, pattern=r"\s+", replacement=" "))
    return text


# --- LIKE -------------------------------------------------------------------------------------------------------------


@method
def like(expr: Expression, pattern: str | Expression) -> Expression:
    r"""Match SQL's LIKE: ``%`` is any text, ``_`` any one character, ``\`` escapes the next one.

    >>> ps.from_pydict({"t": ["abc", "x"]}).select(like(ps.col("t"), "a%")).to_pydict()
    {'t': [True, False]}
    """
    return call("like", expr, pattern, ignore_case=False)


@method
def ilike(expr: Expression, pattern: str | Expression) -> Expression:
    """Match SQL's LIKE, ignoring case.

    >>> ps.from_pydict({"t": ["ABC", "x"]}).select(ilike(ps.col("t"), "a%")).to_pydict()
    {'t': [True, False]}
    """
    return call("like", expr, pattern, ignore_case=True)


text_kernel("like", TEXT, returns=BOOL, compute=pc.match_like)


# --- regular expressions ----------------------------------------------------------------------------------------------


@method
def regexp(expr: Expression, pattern: str | Expression) -> Expression:
    """Check whether a regular expression matches anywhere in the text.

    >>> ps.from_pydict({"t": ["a1", "b"]}).select(regexp(ps.col("t"), "[0-9]")).to_pydict()
    {'t': [True, False]}
    """
    return _regexp("regexp_match", expr, pattern)


@method
def regexp_match(expr: Expression, pattern: str | Expression) -> Expression:
    """Check whether a regular expression matches anywhere in the text.

    >>> ps.from_pydict({"t": ["a1", "b"]}).select(regexp_match(ps.col("t"), "[0-9]")).to_pydict()
    {'t': [True, False]}
    """
    return _regexp("regexp_match", expr, pattern)


text_kernel("regexp_match", TEXT, returns=BOOL, compute=pc.match_substring_regex)


@method
def regexp_count(expr: Expression, pattern: str | Expression) -> Expression:
    """Count the matches of a regular expression that do not overlap.

    >>> ps.from_pydict({"t": ["a1b2"]}).select(regexp_count(ps.col("t"), "[0-9]")).to_pydict()
    {'t': [2]}
    """
    return _regexp("regexp_count", expr, pattern)


text_kernel(
    "regexp_count",
    TEXT,
    returns=INT64,
    compute=lambda text, pattern: pc.cast(pc.count_substring_regex(text, pattern=pattern), pa.int64()),
)


@method
def regexp_split(expr: Expression, pattern: str | Expression) -> Expression:
    """Split text at every match of a regular expression into a list.

    >>> ps.from_pydict({"t": ["a1b22c"]}).select(regexp_split(ps.col("t"), "[0-9]+")).to_pydict()
    {'t': [['a', 'b', 'c']]}
    """
    return _regexp("regexp_split", expr, pattern)


text_kernel("regexp_split", TEXT, returns=STRINGS, compute=pc.split_pattern_regex)


@method
def regexp_extract(expr: Expression, pattern: str | Expression, index: int = 0) -> Expression:
    r"""Return the first match of a regular expression, or its group ``index``; null without a match.

    >>> ps.from_pydict({"t": ["a-12"]}).select(regexp_extract(ps.col("t"), r"(\w)-(\d+)", 2)).to_pydict()
    {'t': ['12']}
    """
    return _regexp("regexp_extract", expr, _with_group("regexp_extract", pattern, index), index=index)


def _with_group(function: str, pattern: str | Expression, index: int) -> str | Expression:
    """Return the pattern, after checking that it has the group ``index``."""
    if isinstance(pattern, str) and index:
        try:
            num_groups = re.compile(pattern).groups
        except re.error:
            return pattern  # RE2 may accept it; _regexp asks it next
        if not 0 <= index <= num_groups:
            raise InvalidArgumentError(
                f"{function}: {pattern!r} has {num_groups} groups, index={index} is not among them"
            )
    return pattern


def _extract(text: pa.Array, pattern: str, *, index: int) -> pa.Array:
    """Replace the whole text by the group: ``extract_regex`` of Arrow needs a name for every group."""
    body = f"(?:{pattern})" if index else f"({pattern})"
    whole = rf"(?s:^.*?){body}(?s:.*$)"
    matches = pc.match_substring_regex(text, pattern=pattern)
    replaced = pc.replace_substring_regex(text, pattern=whole, replacement=rf"\{index or 1}", max_replacements=1)
    group = pc.if_else(matches, replaced, pa.scalar(None, pa.string()))
    is_empty = pc.fill_null(pc.equal(group, ""), False)
    if index and is_empty.true_count:
        # An empty group may be null: a group that took no part in the match. Only ``re`` distinguishes the two.
        matched = (re.search(pattern, row) for row in text.filter(is_empty).to_pylist())
        exact = [match and match.group(index) for match in matched]
        group = pc.replace_with_mask(group, is_empty, pa.array(exact, pa.string()))
    return group


text_kernel("regexp_extract", TEXT, returns=STRING, compute=_extract)


@method
def regexp_extract_all(expr: Expression, pattern: str | Expression, index: int = 0) -> Expression:
    """Return every match of a regular expression, or its group ``index``, as a list.

    >>> ps.from_pydict({"t": ["a1b22"]}).select(regexp_extract_all(ps.col("t"), "[0-9]+")).to_pydict()
    {'t': [['1', '22']]}
    """
    return _regexp("regexp_extract_all", expr, _with_group("regexp_extract_all", pattern, index), index=index)


def _extract_all(text: pa.Array, pattern: str, *, index: int) -> pa.Array:
    find = re.compile(pattern).finditer
    rows = [None if row is None else [match.group(index) for match in find(row)] for row in text.to_pylist()]
    return pa.array(rows, STRINGS.arrow)


text_kernel("regexp_extract_all", TEXT, returns=STRINGS, compute=_extract_all)


@method
def regexp_replace(expr: Expression, pattern: str | Expression, replacement: str | Expression) -> Expression:
    r"""Replace every match of a regular expression; ``\1`` or ``$1`` stands for a group, ``\0`` for the whole match.

    >>> ps.from_pydict({"t": ["a1"]}).select(regexp_replace(ps.col("t"), "([a-z])([0-9])", "$2$1")).to_pydict()
    {'t': ['1a']}
    """
    return _regexp("regexp_replace", expr, pattern, replacement)


def _replace_all(text: pa.Array, pattern: str, replacement: str) -> pa.Array:
    return pc.replace_substring_regex(text, pattern=pattern, replacement=_rewrite(replacement))


def _rewrite(replacement: str) -> str:
    r"""Return a replacement in the syntax of RE2: groups as ``\1``, every other backslash doubled."""

    def change(match: re.Match[str]) -> str:
        return r"\\" if match[0] == "\\" else match[0].replace("$", "\\")

    return re.sub(r"\\[0-9\\]|\\|\$[0-9]", change, replacement)


text_kernel("regexp_replace", TEXT, TEXT, returns=STRING, compute=_replace_all)

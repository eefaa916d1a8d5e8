"""Plain substrings, taken literally, and SQL's LIKE. Searches by patterns are in ``regular_expressions``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError
from penstock.expr.column import Expression, call
from penstock.expr.kinds import BOOL, STRING, TEXT
from penstock.expr.public_functions import method
from penstock.expr.signatures import text_kernel
from penstock.functions.table import Builder, FunctionTable
from penstock.relational.scalar import evaluate
from penstock.types import DataType

_table = FunctionTable(__name__)
STRINGS = DataType.list(STRING)


_MANY_ROWS = 20_000


def _contains(text: pa.Array, substr: str) -> pa.Array:
    """Search by DuckDB, whose search is faster, but which takes a millisecond to start."""
    if len(text) < _MANY_ROWS or "\0" in substr:
        return pc.match_substring(text, substr)
    quoted = substr.replace("'", "''")
    return evaluate("contains", f"contains(a, '{quoted}')", [text])


contains = _table.text(
    "contains", {"expr": TEXT, "substr": TEXT}, BOOL, _contains, "Check whether text contains ``substr``.",
    ("abc", "b"), True, "contains(a, b)",
)  # fmt: skip


def _affix(name: str, parameter: str, verb: str, compute: Callable[..., pa.Array], given: str, sql: str) -> Builder:
    doc, parameters = f"Check whether text {verb} with ``{parameter}``.", {"expr": TEXT, parameter: TEXT}
    return _table.text(name, parameters, BOOL, compute, doc, ("abc", given), True, sql)


startswith = _affix("startswith", "prefix", "starts", pc.starts_with, "a", "starts_with(a, b)")
endswith = _affix("endswith", "suffix", "ends", pc.ends_with, "c", "suffix(a, b)")


def _replace_literally(text: pa.Array, search: str, replacement: str) -> pa.Array:
    if search:
        return pc.replace_substring(text, pattern=search, replacement=replacement)
    # Arrow's function for plain text never returns if it searches for an empty text.
    return pc.replace_substring_regex(text, pattern="", replacement=replacement.replace("\\", r"\\"))


replace = _table.text(
    "replace", {"expr": TEXT, "search": TEXT, "replacement": TEXT}, STRING, _replace_literally,
    "Replace every occurrence of ``search``, taken literally.", ("a.b.c", ".", "-"), "a-b-c",
)  # fmt: skip


@method
def split(expr: Expression, split_on: str | Expression) -> Expression:
    """Split text at every ``split_on``, taken literally, into a list.

    >>> ps.from_pydict({"t": ["a,b"]}).select(split(ps.col("t"), ",")).to_pydict()
    {'t': [['a', 'b']]}
    """
    if isinstance(split_on, str) and not split_on:
        raise InvalidArgumentError("split: split_on is empty; use regexp_extract_all(expr, '(?s).') for the characters")
    return call("split", expr, split_on)


def _split_literally(text: pa.Array, split_on: str) -> pa.Array:
    if not split_on:
        raise ComputeError(
            "split: split_on is empty in a row; use regexp_extract_all(expr, '(?s).') for the characters"
        )
    return pc.split_pattern(text, pattern=split_on)


text_kernel("split", TEXT, returns=STRINGS, compute=_split_literally)


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


# --- LIKE -------------------------------------------------------------------------------------------------------------


def _like(name: str, ignore_case: bool, doc: str) -> Builder:
    def build(expr: Expression, pattern: Expression) -> Expression:
        return call("like", expr, pattern, ignore_case=ignore_case)

    return _table.build(name, {"expr": TEXT, "pattern": TEXT}, build, doc, ("abc", "a%"), True)


_LIKE = r"Match SQL's LIKE: ``%`` is any text, ``_`` any one character, ``\`` escapes the next one."
like = _like("like", False, _LIKE)
ilike = _like("ilike", True, "Match SQL's LIKE, ignoring case.")


def _match_like(text: pa.Array, pattern: str, *, ignore_case: bool) -> pa.Array:
    literal = pattern[1:-1]
    if not literal or not pattern[0] == pattern[-1] == "%" or any(each in literal for each in "%_\\"):
        return pc.match_like(text, pattern, ignore_case=ignore_case)
    return pc.match_substring(text, literal, ignore_case=True) if ignore_case else _contains(text, literal)


text_kernel("like", TEXT, returns=BOOL, compute=_match_like)

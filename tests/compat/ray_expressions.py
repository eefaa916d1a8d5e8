"""Expressions that Ray Data and the adapter evaluate alike, as text over ``col``, ``lit`` and ``D``, the types.

``scripts/record_peers.py`` evaluates them with Ray Data, over columns with nulls, empty values and odd characters.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

TIMES = [dt.datetime(2024, 2, 29, 13, 45, 10, 123456), None, dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 7, 4)]
TABLE = pa.table(
    {
        "t": ["hello world", "Ünï c", None, "", "a.b.c 12", "ABC", "½", "٣"],
        "x": [1.5, -2.5, None, 0.0, 2.5, 0.49, 0.5, 3.0],
        "i": [1, -2, None, 0, 9, 3, 7, -7],
        "l": [[3, 1, 2], [], None, [None, 5], [1], [2, 2], [], []],
        "n": [[[1], [2, 3]], [], None, [[5], None], [[]], [[7]], [], []],
        "s": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 3, "b": None}] * 2,
        "d": pa.array(TIMES * 2, pa.timestamp("us")),
        "m": pa.array([[("a", 1)], None, [], [("b", 2), ("c", None)]] * 2, pa.map_(pa.string(), pa.int64())),
    }
)


def _each(start: str, calls: str) -> list[str]:
    return [f"{start}{call}" for call in calls.split("; ")]


EXPRESSIONS = [
    *_each("col('t').str.", "len(); byte_len(); upper(); lower(); capitalize(); title(); swapcase(); reverse()"),
    *_each("col('t').str.is_", "alpha(); alnum(); digit(); decimal(); numeric(); space(); lower(); upper(); title()"),
    *_each("col('t').str.", "is_printable(); is_ascii(); split_whitespace(); strip(); lstrip(); rstrip(); strip('hd')"),
    *_each("col('t').str.", "starts_with('h'); starts_with('H', ignore_case=True); ends_with('c'); contains('.')"),
    *_each("col('t').str.", "match('h%'); find('c'); count('.'); find_regex('[lc]'); count_regex('[a-c]')"),
    *_each("col('t').str.", "match_regex('^h'); slice(1, 3); slice(-3); slice(start=0, stop=5, step=2); repeat(2)"),
    *_each("col('t').str.", "replace('l', 'L'); replace('l', 'L', max_replacements=1); replace_slice(0, 2, 'XX')"),
    *_each("col('t').str.", "replace_regex('[aeiou]', '*'); split('.'); split(' ', max_splits=1); split_regex('[. ]')"),
    *_each("col('t').str.", "extract('(?P<first>[a-z])(?P<second>.)'); lstrip('h'); rstrip('d'); center(9)"),
    *_each("col('t').str.", "center(10, '-'); lpad(7, '*'); rpad(7, padding='x'); pad(7); pad(9, '-', side='both')"),
    *_each("col('l').list", ".len(); .slice(0, 2); .slice(1); .slice(0, 3, 2); [0:1]; .sort(); .sort('descending')"),
    *("col('l').list.sort(null_placement='at_start')", "col('n').list.flatten()", "col('l').arr.to_list()"),
    *_each("col('s').struct", ".field('a'); ['b']; [0]; .field_by_index(1)"),
    *_each("col('m').map.", "keys(); values()"),
    *_each("col('d').dt.", "year(); month(); day(); hour(); minute(); second(); strftime('%H:%M:%S'); floor('week')"),
    *_each("col('d').dt.", "floor('quarter'); ceil('day'); ceil('year'); round('day'); round('week')"),
    *_each("col('x').", "ceil(); floor(); round(); trunc(); exp(); sin(); atan(); negate(); sign(); abs(); power(2)"),
    *_each("col('i').", "ceil(); round(); trunc(); negate(); sign(); abs(); power(2); cast(D.float64())"),
    *_each("col('i')", "+1; /2; //2; %2; %3; %-3; ==1; !=1; .is_in([1, None]); .not_in([1, 9]); .is_null()"),
    *_each("col('x')", "/2; //1; %2; .is_in([1.5, 0.0]); .is_not_null(); .cast(D.int64(), safe=False)"),
    *("1 - col('x')", "7 / col('x')", "lit(5)", "col('t') + '!'", "lit('a') + col('t')", "col('i').cast(D.string())"),
    *("~(col('i') > 0)", "(col('i') > 0) & (col('x') > 0)", "(col('i') > 0) | col('x').is_null()"),
]  # fmt: skip


def results(data: Any, expressions: Any, types: Any) -> dict[str, str]:
    """Evaluate every expression and return its values as text."""
    names = {"col": expressions.col, "lit": expressions.lit, "D": types}
    ds = data.from_arrow(TABLE)
    found = {text: ds.with_column("y", eval(text, names)).take_all() for text in EXPRESSIONS}
    return {text: repr([_plain(row["y"]) for row in rows]) for text, rows in found.items()}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value

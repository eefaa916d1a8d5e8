r"""Regular expressions of one dialect: the syntax of RE2, with ``\w \d \s \b`` for Unicode text, as in Python's ``re``.

RE2 takes linear time, and has no look-around and no back-references. Its own classes are those of ASCII, so they are
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

from penstock.errors import InvalidArgumentError
from penstock.expr.kinds import TEXT, Kind
from penstock.expr.signatures import text_kernel
from penstock.types import DataType

_CLASSES = {"w": r"\p{L}\p{N}_", "d": r"\p{Nd}", "s": r"\t-\r\x1c-\x20\x{85}\p{Z}"}
WHITE_SPACE = f"[{_CLASSES['s']}]"
_TOKENS = re.compile(r"\\Q.*?(?:\\E|\Z)|\[:\^?\w+:\]|\[\^?\]?|\(\?P?<|\(\?|\\.|.", re.DOTALL)
_GROUPS = ("(", "(?<", "(?P<")


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """A pattern in the form of RE2, and in that of Python if it has one, which ``needs_python`` requires."""

    re2: str
    python: re.Pattern[str] | None
    needs_python: bool
    num_groups: int


@functools.lru_cache(maxsize=1024)
def regular_expression(pattern: str) -> RegularExpression:
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
        pc.match_substring_regex(pa.scalar(""), pattern=re2)
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


def regexp_kernel(
    name: str,
    *parameters: Kind,
    returns: DataType,
    on_column: Callable[..., pa.Array],
    on_row: Callable[..., Any],
) -> None:
    """Register a kernel: ``on_column(texts, expression, ...)`` for RE2, ``on_row(compiled, text, ...)`` for Python."""

    def compute(texts: pa.Array, pattern: str, *more: Any, **options: Any) -> pa.Array:
        expression = regular_expression(pattern)
        if not expression.needs_python:
            return on_column(texts, expression, *more, **options)
        call = functools.partial(on_row, expression.python)
        rows = [None if text is None else call(text, *more, **options) for text in texts.to_pylist()]
        return pa.array(rows, returns.arrow)

    text_kernel(name, TEXT, *parameters, returns=returns, compute=compute)

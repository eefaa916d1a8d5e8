"""Text: case, length, parts, padding and templates. Searches are in ``patterns``."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError
from penstock.expr.arrays import filled, masked, text_bytes, validity
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call, col, method
from penstock.expr.kinds import ANY, INT64, INTEGER, LIST, STRING, TEXT, TEXT_OR_BYTES, Kind
from penstock.expr.registry import Value, kernel
from penstock.expr.signatures import common_type, dtypes_of, strict, takes, text_kernel
from penstock.functions.families import UnaryFunction, unary
from penstock.types import DataType
from penstock.types.arrays import too_large

# --- case and white space ---------------------------------------------------------------------------------------------


def _text(name: str, kernel: Any, doc: str, given: str, result: str) -> UnaryFunction:
    return unary(__name__, name, kernel, TEXT, STRING, doc, given, result)


upper = _text("upper", pc.utf8_upper, "Convert text to upper case.", "ab", "AB")
lower = _text("lower", pc.utf8_lower, "Convert text to lower case.", "AB", "ab")
capitalize = _text("capitalize", pc.utf8_capitalize, "Capitalize the first letter only.", "hELLO world", "Hello world")
title = _text("title", pc.utf8_title, "Capitalize the first letter of each word only.", "hello WORLD", "Hello World")
reverse = _text("reverse", pc.utf8_reverse, "Reverse the order of the characters.", "abc", "cba")
strip = _text("strip", pc.utf8_trim_whitespace, "Remove white space at both ends.", " a ", "a")
lstrip = _text("lstrip", pc.utf8_ltrim_whitespace, "Remove white space at the beginning.", " a ", "a ")
rstrip = _text("rstrip", pc.utf8_rtrim_whitespace, "Remove white space at the end.", " a ", " a")


# --- length -----------------------------------------------------------------------------------------------------------


def _length(value: Value) -> Value:
    dtype = DataType(value.type)
    if dtype.is_embedding():
        return pc.if_else(pc.is_valid(value), pa.scalar(dtype.size, pa.int64()), pa.scalar(None, pa.int64()))
    compute = pc.utf8_length if dtype.is_string() else pc.binary_length if dtype.is_binary() else pc.list_value_length
    return pc.cast(compute(value), pa.int64())


def _length_bytes(value: Value) -> Value:
    return pc.cast(pc.binary_length(value), pa.int64())


_COUNTABLE = Kind(
    "a string, binary or list",
    lambda dtype: dtype.is_string() or dtype.is_binary() or LIST.accepts(dtype),
    'convert it with .cast("string")',
)
_LENGTH = "Count the characters of text, the bytes of binary, or the elements of a list, as int64."
length = unary(__name__, "length", _length, _COUNTABLE, INT64, _LENGTH, "héé", 3)
_LENGTH_BYTES = "Count the bytes of text in UTF-8, or of binary."
length_bytes = unary(__name__, "length_bytes", _length_bytes, TEXT_OR_BYTES, INT64, _LENGTH_BYTES, "é", 2)


# --- parts ------------------------------------------------------------------------------------------------------------


@method
def substr(expr: Expression, start: int | Expression, length: int | Expression | None = None) -> Expression:
    """Return ``length`` characters from position ``start``, or all if None; a negative start counts from the end.

    >>> ps.from_pydict({"t": ["penstock"]}).select(substr(ps.col("t"), 3, 5)).to_pydict()
    {'t': ['stock']}
    """
    return call("substr", expr, start) if length is None else call("substr", expr, start, length)


def _substr_all(text: pa.Array, start: int, length: int | None = None) -> pa.Array:
    if start >= 0:
        stop = None if length is None else start + max(length, 0)
        return pc.utf8_slice_codeunits(text, start=start, stop=stop)
    tail = pc.utf8_slice_codeunits(text, start=start)
    return tail if length is None else pc.utf8_slice_codeunits(tail, start=0, stop=max(length, 0))


text_kernel("substr", INTEGER, INTEGER, returns=STRING, compute=_substr_all)


@method
def left(expr: Expression, nchars: int | Expression) -> Expression:
    """Return the first ``nchars`` characters.

    >>> ps.from_pydict({"t": ["penstock"]}).select(left(ps.col("t"), 3)).to_pydict()
    {'t': ['pen']}
    """
    return call("substr", expr, 0, nchars)


@method
def right(expr: Expression, nchars: int | Expression) -> Expression:
    """Return the last ``nchars`` characters.

    >>> ps.from_pydict({"t": ["penstock"]}).select(right(ps.col("t"), 5)).to_pydict()
    {'t': ['stock']}
    """
    return call("right", expr, nchars)


text_kernel(
    "right",
    INTEGER,
    returns=STRING,
    compute=lambda text, n: pc.utf8_slice_codeunits(text, *((-n,) if n > 0 else (0, 0))),
)


@method
def find(expr: Expression, substr: str | Expression) -> Expression:
    """Return the position of the first occurrence of ``substr``, counted in characters from 0, or -1.

    >>> ps.from_pydict({"t": ["penstock"]}).select(find(ps.col("t"), "stock")).to_pydict()
    {'t': [3]}
    """
    return call("find", expr, substr)


def _find_all(text: pa.Array, substr: str) -> pa.Array:
    positions = pc.find_substring(text, pattern=substr)  # in bytes; below, count the characters before them
    flat, starts, _ = text_bytes(text)
    num_before = np.concatenate([[0], np.cumsum((flat & 0xC0) != 0x80)])
    position = filled(positions).astype(np.int64)
    characters = num_before[starts + np.maximum(position, 0)] - num_before[starts]
    return masked(np.where(position < 0, -1, characters), validity(text))


text_kernel("find", TEXT, returns=INT64, compute=_find_all)


# --- padding and repetition -------------------------------------------------------------------------------------------


@method
def lpad(expr: Expression, length: int | Expression, pad: str | Expression) -> Expression:
    """Pad on the left to ``length`` characters; longer text is cut, as in SQL.

    >>> ps.from_pydict({"t": ["7"]}).select(lpad(ps.col("t"), 3, "0")).to_pydict()
    {'t': ['007']}
    """
    return call("lpad", expr, length, pad)


@method
def rpad(expr: Expression, length: int | Expression, pad: str | Expression) -> Expression:
    """Pad on the right to ``length`` characters; longer text is cut, as in SQL.

    >>> ps.from_pydict({"t": ["a"]}).select(rpad(ps.col("t"), 3, ".")).to_pydict()
    {'t': ['a..']}
    """
    return call("rpad", expr, length, pad)


def _register_padding(name: str, pad_by: Callable[..., pa.Array], join: Callable[[str, str], str]) -> None:
    def compute(text: pa.Array, length: int, pad: str) -> pa.Array:
        length = max(length, 0)
        if len(pad) == 1:
            return pc.utf8_slice_codeunits(pad_by(text, width=length, padding=pad), 0, length)
        padding = pad * length
        rows = text.to_pylist()
        padded = [None if row is None else join(padding[: max(length - len(row), 0)], row[:length]) for row in rows]
        return pa.array(padded, pa.string())

    text_kernel(name, INTEGER, TEXT, returns=STRING, compute=compute)


_register_padding("lpad", pc.utf8_lpad, lambda padding, text: padding + text)
_register_padding("rpad", pc.utf8_rpad, lambda padding, text: text + padding)


@method
def repeat(expr: Expression, n: int | Expression) -> Expression:
    """Repeat text ``n`` times.

    >>> ps.from_pydict({"t": ["ab"]}).select(repeat(ps.col("t"), 2)).to_pydict()
    {'t': ['abab']}
    """
    return call("repeat", expr, n)


@strict("repeat", takes(TEXT, INTEGER, returns=STRING))
def _repeat(text: Value, n: Value) -> Value:
    times = pc.max_element_wise(pc.cast(n, pa.int64()), pa.scalar(0), skip_nulls=False)
    try:
        return pc.binary_repeat(text, times)
    except pa.ArrowCapacityError as exc:
        raise too_large("repeat") from exc


# --- joining ----------------------------------------------------------------------------------------------------------


def format(f_string: str, *args: Expression | str) -> Expression:
    """Fill a template: ``{}`` stands for the arguments in order, ``{name}`` for the column ``name``.

    Arguments of any type become text; a string argument is the name of a column. ``{{`` is a brace. A null argument
    makes the result null.

    >>> df = ps.from_pydict({"name": ["Ada"], "age": [36]})
    >>> df.select(format("{} is {age}", ps.col("name")).alias("t")).to_pydict()
    {'t': ['Ada is 36']}
    """
    texts, fields = [""], []
    rest = iter(args)
    try:
        for literal, field, _, _ in string.Formatter().parse(f_string):
            texts[-1] += literal
            if field is not None:
                argument = col(field) if field else next(rest)
                fields.append(col(argument) if isinstance(argument, str) else argument)
                texts.append("")
    except StopIteration:
        raise InvalidArgumentError(f"format: {f_string!r} has more {{}} than arguments ({len(args)})") from None
    except ValueError as exc:
        raise InvalidArgumentError(f"format: {f_string!r} is not a template: {exc}; write {{{{ for a brace") from None
    if (num_unused := len(list(rest))) > 0:
        raise InvalidArgumentError(f"format: {f_string!r} uses {len(args) - num_unused} of {len(args)} arguments")
    return call("format", *fields, texts=texts)


@kernel("format", takes(rest=ANY, returns=STRING))
def _format(*values: Value, texts: tuple[str, ...]) -> Value:
    parts: list[Value] = [pa.scalar(texts[0])]
    for value, text in zip(values, texts[1:], strict=True):
        parts += [cast(value, dtype=STRING, is_strict=True), pa.scalar(text)]
    return pc.binary_join_element_wise(*parts, "")


@method
def concat(left: Expression | str | bytes, *right: Expression | str | bytes) -> Expression:
    """Concatenate texts or binaries; the result is null if one of them is null.

    >>> ps.from_pydict({"t": ["a", None]}).select(concat(ps.col("t"), "!")).to_pydict()
    {'t': ['a!', None]}
    """
    return call("concat", left, *right)


@strict("concat", takes(rest=TEXT_OR_BYTES, returns=common_type))
def _concat(*values: Value) -> Value:
    dtype = common_type(*dtypes_of(*values)).arrow
    return pc.binary_join_element_wise(*(pc.cast(value, dtype) for value in values), pa.scalar("", dtype))


def concat_ws(sep: str, *exprs: Expression | str) -> Expression:
    """Join texts with a separator and skip nulls; the result is null only if all are null.

    >>> df = ps.from_pydict({"a": ["x", None], "b": ["y", "z"]})
    >>> df.select(concat_ws("-", ps.col("a"), ps.col("b"))).to_pydict()
    {'a': ['x-y', 'z']}
    """
    return call("concat_ws", *exprs, sep=sep)


@kernel("concat_ws", takes(rest=TEXT, returns=STRING))
def _concat_ws(*values: Value, sep: str) -> Value:
    texts = [pc.cast(value, pa.string()) for value in values]
    # null_handling="skip" of Arrow loses the rows in which all are null (26.0.1).
    pieces = [pc.coalesce(pc.binary_join_element_wise(sep, text, ""), pa.scalar("")) for text in texts]
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pieces, ""), start=len(sep))
    return pc.if_else(pc.is_valid(pc.coalesce(*texts)), joined, pa.scalar(None, pa.string()))

"""Functions of text: case, length, parts, padding, templates. Patterns are in ``patterns``."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.arrays import constant_or_rows, filled, masked, text_bytes, validity
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call, col, method
from penstock.expr.registry import Value, kernel
from penstock.expr.signatures import (
    ANY,
    INT64,
    INTEGER,
    STRING,
    TEXT,
    TEXT_OR_BYTES,
    common_type,
    dtypes_of,
    strict,
    takes,
)
from penstock.types import DataType

# --- case -------------------------------------------------------------------------------------------------------------


@method
def upper(expr: Expression) -> Expression:
    """Turn text to upper case.

    >>> ps.from_pydict({"t": ["ab"]}).select(upper(ps.col("t"))).to_pydict()
    {'t': ['AB']}
    """
    return call("upper", expr)


@method
def lower(expr: Expression) -> Expression:
    """Turn text to lower case.

    >>> ps.from_pydict({"t": ["AB"]}).select(lower(ps.col("t"))).to_pydict()
    {'t': ['ab']}
    """
    return call("lower", expr)


@method
def capitalize(expr: Expression) -> Expression:
    """Turn the first letter to upper case and the others to lower case.

    >>> ps.from_pydict({"t": ["hELLO world"]}).select(capitalize(ps.col("t"))).to_pydict()
    {'t': ['Hello world']}
    """
    return call("capitalize", expr)


@method
def title(expr: Expression) -> Expression:
    """Turn the first letter of each word to upper case and the others to lower case.

    >>> ps.from_pydict({"t": ["hello WORLD"]}).select(title(ps.col("t"))).to_pydict()
    {'t': ['Hello World']}
    """
    return call("title", expr)


@method
def reverse(expr: Expression) -> Expression:
    """Put the characters in reverse order.

    >>> ps.from_pydict({"t": ["abc"]}).select(reverse(ps.col("t"))).to_pydict()
    {'t': ['cba']}
    """
    return call("reverse", expr)


@method
def strip(expr: Expression) -> Expression:
    """Remove white space at both ends.

    >>> ps.from_pydict({"t": [" a "]}).select(strip(ps.col("t"))).to_pydict()
    {'t': ['a']}
    """
    return call("strip", expr)


@method
def lstrip(expr: Expression) -> Expression:
    """Remove white space at the beginning.

    >>> ps.from_pydict({"t": [" a "]}).select(lstrip(ps.col("t"))).to_pydict()
    {'t': ['a ']}
    """
    return call("lstrip", expr)


@method
def rstrip(expr: Expression) -> Expression:
    """Remove white space at the end.

    >>> ps.from_pydict({"t": [" a "]}).select(rstrip(ps.col("t"))).to_pydict()
    {'t': [' a']}
    """
    return call("rstrip", expr)


for _name, _compute in {
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "capitalize": pc.utf8_capitalize,
    "title": pc.utf8_title,
    "reverse": pc.utf8_reverse,
    "strip": pc.utf8_trim_whitespace,
    "lstrip": pc.utf8_ltrim_whitespace,
    "rstrip": pc.utf8_rtrim_whitespace,
}.items():
    strict(_name, takes(TEXT, returns=STRING))(_compute)


# --- length -----------------------------------------------------------------------------------------------------------


@method
def length(expr: Expression) -> Expression:
    """Count the characters of text, the bytes of binary, or the elements of a list, as int64.

    >>> ps.from_pydict({"t": ["héé"]}).select(length(ps.col("t"))).to_pydict()
    {'t': [3]}
    """
    return call("length", expr)


def _length_type(dtype: DataType) -> DataType:
    if dtype.is_null() or dtype.is_string() or dtype.is_binary() or dtype.is_list() or dtype.is_embedding():
        return INT64
    raise TypeMismatchError(f'expected a string, binary or list, got {dtype}; convert it with .cast("string")')


@strict("length", _length_type)
def _length(value: Value) -> Value:
    dtype = DataType(value.type)
    if dtype.is_embedding():
        return pc.if_else(pc.is_valid(value), pa.scalar(dtype.size, pa.int64()), pa.scalar(None, pa.int64()))
    compute = pc.utf8_length if dtype.is_string() else pc.binary_length if dtype.is_binary() else pc.list_value_length
    return pc.cast(compute(value), pa.int64())


@method
def length_bytes(expr: Expression) -> Expression:
    """Count the bytes of text in UTF-8, or of binary.

    >>> ps.from_pydict({"t": ["é"]}).select(length_bytes(ps.col("t"))).to_pydict()
    {'t': [2]}
    """
    return call("length_bytes", expr)


@strict("length_bytes", takes(TEXT_OR_BYTES, returns=INT64))
def _length_bytes(value: Value) -> Value:
    return pc.cast(pc.binary_length(value), pa.int64())


# --- parts ------------------------------------------------------------------------------------------------------------


@method
def substr(expr: Expression, start: int | Expression, length: int | Expression | None = None) -> Expression:
    """Take ``length`` characters from position ``start`` on, all if None; a negative start counts from the end.

    >>> ps.from_pydict({"t": ["penstock"]}).select(substr(ps.col("t"), 3, 5)).to_pydict()
    {'t': ['stock']}
    """
    return call("substr", expr, start) if length is None else call("substr", expr, start, length)


def _substr_row(text: str, start: int, length: int | None = None) -> str:
    first = max(start + len(text), 0) if start < 0 else start
    return text[first:] if length is None else text[first : first + max(length, 0)]


def _substr_all(text: pa.Array, start: int, length: int | None = None) -> pa.Array:
    if start >= 0:
        stop = None if length is None else start + max(length, 0)
        return pc.utf8_slice_codeunits(text, start=start, stop=stop)
    tail = pc.utf8_slice_codeunits(text, start=start)
    return tail if length is None else pc.utf8_slice_codeunits(tail, start=0, stop=max(length, 0))


strict("substr", takes(TEXT, INTEGER, INTEGER, returns=STRING))(constant_or_rows(_substr_all, _substr_row, pa.string()))


@method
def left(expr: Expression, nchars: int | Expression) -> Expression:
    """Take the first ``nchars`` characters.

    >>> ps.from_pydict({"t": ["penstock"]}).select(left(ps.col("t"), 3)).to_pydict()
    {'t': ['pen']}
    """
    return call("substr", expr, 0, nchars)


@method
def right(expr: Expression, nchars: int | Expression) -> Expression:
    """Take the last ``nchars`` characters.

    >>> ps.from_pydict({"t": ["penstock"]}).select(right(ps.col("t"), 5)).to_pydict()
    {'t': ['stock']}
    """
    return call("right", expr, nchars)


strict("right", takes(TEXT, INTEGER, returns=STRING))(
    constant_or_rows(
        lambda text, n: pc.utf8_slice_codeunits(text, start=-n) if n > 0 else pc.utf8_slice_codeunits(text, 0, 0),
        lambda text, n: text[-n:] if n > 0 else "",
        pa.string(),
    )
)


@method
def find(expr: Expression, substr: str | Expression) -> Expression:
    """Return the position of the first occurrence of ``substr``, counted in characters from 0, or -1.

    >>> ps.from_pydict({"t": ["penstock"]}).select(find(ps.col("t"), "stock")).to_pydict()
    {'t': [3]}
    """
    return call("find", expr, substr)


def _find_all(text: pa.Array, substr: str) -> pa.Array:
    positions = pc.find_substring(text, pattern=substr)  # in bytes; count the characters that start before them
    flat, starts, _ = text_bytes(text)
    num_before = np.concatenate([[0], np.cumsum((flat & 0xC0) != 0x80)])
    position = filled(positions).astype(np.int64)
    characters = num_before[starts + np.maximum(position, 0)] - num_before[starts]
    return masked(np.where(position < 0, -1, characters), validity(text))


strict("find", takes(TEXT, TEXT, returns=INT64))(
    constant_or_rows(_find_all, lambda text, substr: text.find(substr), pa.int64())
)


# --- padding and repetition -------------------------------------------------------------------------------------------


@method
def lpad(expr: Expression, length: int | Expression, pad: str | Expression) -> Expression:
    """Pad on the left to ``length`` characters; what is longer is cut, as in SQL.

    >>> ps.from_pydict({"t": ["7"]}).select(lpad(ps.col("t"), 3, "0")).to_pydict()
    {'t': ['007']}
    """
    return call("lpad", expr, length, pad)


@method
def rpad(expr: Expression, length: int | Expression, pad: str | Expression) -> Expression:
    """Pad on the right to ``length`` characters; what is longer is cut, as in SQL.

    >>> ps.from_pydict({"t": ["a"]}).select(rpad(ps.col("t"), 3, ".")).to_pydict()
    {'t': ['a..']}
    """
    return call("rpad", expr, length, pad)


def _padding(text: str, length: int, pad: str) -> str:
    missing = max(length - len(text), 0)
    return (pad * (missing // len(pad) + 1))[:missing] if pad else ""


def _lpad_row(text: str, length: int, pad: str) -> str:
    return _padding(text, length, pad) + text[: max(length, 0)]


def _rpad_row(text: str, length: int, pad: str) -> str:
    return text[: max(length, 0)] + _padding(text, length, pad)


def _padded(compute: Any, row: Any) -> Any:
    def whole(text: pa.Array, length: int, pad: str) -> pa.Array:
        if len(pad) == 1:
            return pc.utf8_slice_codeunits(compute(text, width=max(length, 0), padding=pad), 0, max(length, 0))
        return pa.array([None if value is None else row(value, length, pad) for value in text.to_pylist()], pa.string())

    return constant_or_rows(whole, row, pa.string())


strict("lpad", takes(TEXT, INTEGER, TEXT, returns=STRING))(_padded(pc.utf8_lpad, _lpad_row))
strict("rpad", takes(TEXT, INTEGER, TEXT, returns=STRING))(_padded(pc.utf8_rpad, _rpad_row))


@method
def repeat(expr: Expression, n: int | Expression) -> Expression:
    """Repeat text ``n`` times.

    >>> ps.from_pydict({"t": ["ab"]}).select(repeat(ps.col("t"), 2)).to_pydict()
    {'t': ['abab']}
    """
    return call("repeat", expr, n)


@strict("repeat", takes(TEXT, INTEGER, returns=STRING))
def _repeat(text: Value, n: Value) -> Value:
    return pc.binary_repeat(text, pc.max_element_wise(pc.cast(n, pa.int64()), pa.scalar(0), skip_nulls=False))


# --- joining ----------------------------------------------------------------------------------------------------------


def format(f_string: str, *args: Expression | str) -> Expression:
    """Fill a template: ``{}`` takes the arguments in order, ``{name}`` takes the column ``name``.

    Arguments of any type are written as text; a string argument is the name of a column. ``{{`` is a brace. A null
    argument makes the result null.

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
        raise InvalidArgumentError(f"format: {f_string!r} has more {{}} than the {len(args)} arguments given") from None
    except ValueError as exc:
        raise InvalidArgumentError(f"format: {f_string!r} is no template: {exc}; write {{{{ for a brace") from None
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
    """Put texts, or binaries, one after the other; null if one of them is.

    >>> ps.from_pydict({"t": ["a", None]}).select(concat(ps.col("t"), "!")).to_pydict()
    {'t': ['a!', None]}
    """
    return call("concat", left, *right)


@strict("concat", takes(rest=TEXT_OR_BYTES, returns=common_type))
def _concat(*values: Value) -> Value:
    dtype = common_type(*dtypes_of(*values)).arrow
    return pc.binary_join_element_wise(*(pc.cast(value, dtype) for value in values), pa.scalar("", dtype))


def concat_ws(sep: str, *exprs: Expression | str) -> Expression:
    """Join texts with a separator, leaving out those that are null; null only if all are.

    >>> df = ps.from_pydict({"a": ["x", None], "b": ["y", "z"]})
    >>> df.select(concat_ws("-", ps.col("a"), ps.col("b"))).to_pydict()
    {'a': ['x-y', 'z']}
    """
    return call("concat_ws", *exprs, sep=sep)


@kernel("concat_ws", takes(rest=TEXT, returns=STRING))
def _concat_ws(*values: Value, sep: str) -> Value:
    texts = [pc.cast(value, pa.string()) for value in values]
    # Arrow's own null_handling="skip" loses the rows in which all are null (26.0.1).
    pieces = [pc.coalesce(pc.binary_join_element_wise(sep, text, ""), pa.scalar("")) for text in texts]
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pieces, ""), start=len(sep))
    return pc.if_else(pc.is_valid(pc.coalesce(*texts)), joined, pa.scalar(None, pa.string()))

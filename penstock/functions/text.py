"""Text: case, length, parts and templates. Searches are in ``substrings`` and ``regular_expressions``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call
from penstock.expr.kinds import ANY, INT64, INTEGER, LIST, STRING, TEXT, TEXT_OR_BYTES, Kind
from penstock.expr.public_functions import function, method
from penstock.expr.registry import Kernel, Value, kernel
from penstock.expr.signatures import common_type, dtypes_of, strict, takes, text_kernel
from penstock.expr.templates import filled as filled_template, split_template
from penstock.functions.regular_expressions import WHITE_SPACE
from penstock.functions.table import Builder, FunctionTable
from penstock.types import DataType
from penstock.types.ndarrays import too_large
from penstock.types.plain import arrow_scalar

_table = FunctionTable(__name__)

# --- case and white space ---------------------------------------------------------------------------------------------


def _text(name: str, kernel: Kernel, doc: str, given: str, result: str) -> Builder:
    return _table.strict(name, {"expr": TEXT}, STRING, kernel, doc, (given,), result)


upper = _text("upper", pc.utf8_upper, "Convert text to upper case.", "ab", "AB")
lower = _text("lower", pc.utf8_lower, "Convert text to lower case.", "AB", "ab")
capitalize = _text("capitalize", pc.utf8_capitalize, "Capitalize the first letter only.", "hELLO world", "Hello world")
title = _text("title", pc.utf8_title, "Capitalize the first letter of each word only.", "hello WORLD", "Hello World")
reverse = _text("reverse", pc.utf8_reverse, "Reverse the order of the characters.", "abc", "cba")
strip = _text("strip", pc.utf8_trim_whitespace, "Remove white space at both ends.", " a ", "a")
lstrip = _text("lstrip", pc.utf8_ltrim_whitespace, "Remove white space at the beginning.", " a ", "a ")
rstrip = _text("rstrip", pc.utf8_rtrim_whitespace, "Remove white space at the end.", " a ", " a")


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
        text = pc.utf8_trim_whitespace(pc.replace_substring_regex(text, pattern=f"{WHITE_SPACE}+", replacement=" "))
    return text


# --- length -----------------------------------------------------------------------------------------------------------


def _length(value: Value) -> Value:
    dtype = DataType(value.type)
    if dtype.is_embedding():
        return pc.if_else(pc.is_valid(value), arrow_scalar(dtype.size, pa.int64()), arrow_scalar(None, pa.int64()))
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
length = _table.strict("length", {"expr": _COUNTABLE}, INT64, _length, _LENGTH, ("héé",), 3)
_LENGTH_BYTES = "Count the bytes of text in UTF-8, or of binary."
length_bytes = _table.strict("length_bytes", {"expr": TEXT_OR_BYTES}, INT64, _length_bytes, _LENGTH_BYTES, ("é",), 2)


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


# --- repetition -----------------------------------------------------------------------------------------------------


def _repeat(text: Value, n: Value) -> Value:
    times = pc.max_element_wise(pc.cast(n, pa.int64()), arrow_scalar(0), skip_nulls=False)
    try:
        return pc.binary_repeat(text, times)
    except pa.ArrowCapacityError as exc:
        raise too_large("repeat") from exc


repeat = _table.strict(
    "repeat", {"expr": TEXT, "n": INTEGER}, STRING, _repeat, "Repeat text ``n`` times.", ("ab", 2), "abab"
)


# --- joining ----------------------------------------------------------------------------------------------------------


@function
def format(f_string: str, *args: Expression | str) -> Expression:
    """Fill a template: ``{}`` stands for the arguments in order, ``{name}`` for the column ``name``.

    Arguments of any type become text; a string argument is the name of a column. ``{{`` is a brace. A null argument
    makes the result null.

    >>> df = ps.from_pydict({"name": ["Ada"], "age": [36]})
    >>> df.select(format("{} is {age}", ps.col("name")).alias("t")).to_pydict()
    {'t': ['Ada is 36']}
    """
    texts, fields = split_template("format", f_string)
    if (num_open := fields.count("")) != len(args):
        given = f"{len(args)} argument{'s' * (len(args) != 1)}"
        raise InvalidArgumentError(f"format: {f_string!r} has {num_open} {{}}; it was given {given}")
    rest = iter(args)
    return filled_template(texts, [field or next(rest) for field in fields])


@kernel("format", takes(rest=ANY, returns=STRING))
def _format(*values: Value, texts: tuple[str, ...]) -> Value:
    parts: list[Value] = [arrow_scalar(texts[0])]
    for value, text in zip(values, texts[1:], strict=True):
        parts += [cast(value, dtype=STRING, is_strict=True), arrow_scalar(text)]
    return pc.binary_join_element_wise(*parts, arrow_scalar(""))


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
    return pc.binary_join_element_wise(*(pc.cast(value, dtype) for value in values), arrow_scalar("", dtype))


@function
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
    if all(text.is_valid if isinstance(text, pa.Scalar) else not text.null_count for text in texts):
        return pc.binary_join_element_wise(*texts, sep)
    # null_handling="skip" of Arrow loses the rows in which all are null (26.0.1).
    pieces = [pc.coalesce(pc.binary_join_element_wise(sep, text, ""), arrow_scalar("")) for text in texts]
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pieces, ""), start=len(sep))
    return pc.if_else(pc.is_valid(pc.coalesce(*texts)), joined, arrow_scalar(None, pa.string()))

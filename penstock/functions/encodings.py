"""Bytes as text, and back: UTF-8, base64 and hexadecimal digits."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa

from penstock.errors import check_choice
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call
from penstock.expr.kinds import BINARY, STRING, TEXT_OR_BYTES
from penstock.expr.public_functions import method
from penstock.expr.signatures import strict, takes
from penstock.relational.scalar import evaluate
from penstock.types import DataType

Charset: TypeAlias = Literal["utf-8", "base64", "hex"]
_ENCODED = {"utf-8": "encode(decode(a))", "base64": "to_base64(a)", "hex": "lower(hex(a))"}
_DECODED = {"utf-8": "decode(a)", "base64": "from_base64(a::varchar)", "hex": "unhex(a::varchar)"}


@method
def encode(expr: Expression, charset: Charset) -> Expression:
    """Encode text or bytes with the charset utf-8, base64 or hex, as bytes.

    >>> ps.from_pydict({"x": ["hi"]}).select(encode(ps.col("x"), "base64")).to_pydict()
    {'x': [b'aGk=']}
    """
    return _converted("encode", expr, charset, is_strict=True)


@method
def try_encode(expr: Expression, charset: Charset) -> Expression:
    r"""Encode like ``encode``; null if that fails.

    >>> ps.from_pydict({"x": [b"\xff"]}).select(try_encode(ps.col("x"), "utf-8")).to_pydict()
    {'x': [None]}
    """
    return _converted("encode", expr, charset, is_strict=False)


@method
def decode(expr: Expression, charset: Charset) -> Expression:
    """Decode text or bytes with the charset utf-8, which gives text, or base64 or hex, which give bytes.

    >>> ps.from_pydict({"x": [b"aGk="]}).select(decode(ps.col("x"), "base64")).to_pydict()
    {'x': [b'hi']}
    """
    return _converted("decode", expr, charset, is_strict=True)


@method
def try_decode(expr: Expression, charset: Charset) -> Expression:
    r"""Decode like ``decode``; null if that fails.

    >>> ps.from_pydict({"x": [b"\xff"]}).select(try_decode(ps.col("x"), "utf-8")).to_pydict()
    {'x': [None]}
    """
    return _converted("decode", expr, charset, is_strict=False)


def _converted(name: str, expr: Expression, charset: str, *, is_strict: bool) -> Expression:
    known = {"utf8": "utf-8"}.get(str(charset).lower(), str(charset).lower())
    check_choice(f"{name}: charset", known, _ENCODED)
    return call(name, expr, charset=known, is_strict=is_strict)


def _decoded_type(_: DataType, *, charset: str, is_strict: bool) -> DataType:
    return STRING if charset == "utf-8" else BINARY


@strict("encode", takes(TEXT_OR_BYTES, returns=BINARY))
@on_arrays
def _encode(values: pa.Array, *, charset: str, is_strict: bool) -> pa.Array:
    return _evaluated("encode", _ENCODED[charset], values, is_strict).cast(pa.binary())


@strict("decode", takes(TEXT_OR_BYTES, returns=_decoded_type))
@on_arrays
def _decode(values: pa.Array, *, charset: str, is_strict: bool) -> pa.Array:
    return _evaluated("decode", _DECODED[charset], values, is_strict)


def _evaluated(name: str, sql: str, values: pa.Array, is_strict: bool) -> pa.Array:
    return evaluate(name, sql if is_strict else f"try({sql})", [values.cast(pa.binary())])

"""Convert text to tokens of a model and back, with Hugging Face ``tokenizers``."""

from __future__ import annotations

import functools
import os
from typing import Any

import pyarrow as pa

from penstock.errors import MissingExtraError, TypeMismatchError
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call, method
from penstock.expr.kinds import STRING, TEXT, UINT32
from penstock.expr.signatures import strict, takes
from penstock.types import DataType

TOKENS = DataType.list(UINT32)


@method
def tokenize_encode(expr: Expression, tokens_path: str, *, use_special_tokens: bool = False) -> Expression:
    """Convert text to token numbers.

    ``tokens_path`` is a ``tokenizer.json`` file, or the name of a model on the Hugging Face hub.
    """
    return call("tokenize_encode", expr, tokens_path=os.fspath(tokens_path), use_special_tokens=use_special_tokens)


@method
def tokenize_decode(expr: Expression, tokens_path: str) -> Expression:
    """Convert token numbers to text; ``tokens_path`` as for ``tokenize_encode``."""
    return call("tokenize_decode", expr, tokens_path=os.fspath(tokens_path))


@functools.lru_cache(maxsize=8)
def _tokenizer(path: str) -> Any:
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise MissingExtraError("tokenizers", "transformers", "tokenize_encode and tokenize_decode") from None
    return Tokenizer.from_file(path) if os.path.exists(path) else Tokenizer.from_pretrained(path)


@strict("tokenize_encode", takes(TEXT, returns=TOKENS))
@on_arrays
def _tokenize_encode(texts: pa.Array, *, tokens_path: str, use_special_tokens: bool) -> pa.Array:
    rows = texts.to_pylist()
    encoded = iter(
        _tokenizer(tokens_path).encode_batch_fast(
            [row for row in rows if row is not None], add_special_tokens=use_special_tokens
        )
    )
    return pa.array([None if row is None else next(encoded).ids for row in rows], TOKENS.arrow)


def _decode_type(dtype: DataType, *, tokens_path: str) -> DataType:
    if not dtype.is_null() and not (dtype.is_list() and (dtype.inner.is_integer() or dtype.inner.is_null())):
        raise TypeMismatchError(f"expected a list of integers, got {dtype}")
    return STRING


@strict("tokenize_decode", _decode_type)
@on_arrays
def _tokenize_decode(tokens: pa.Array, *, tokens_path: str) -> pa.Array:
    rows = tokens.to_pylist()
    texts = iter(_tokenizer(tokens_path).decode_batch([row for row in rows if row is not None]))
    return pa.array([None if row is None else next(texts) for row in rows], pa.string())

"""Text for models: chunks that fit one, and its tokens, with Hugging Face ``tokenizers``."""

from __future__ import annotations

import functools
import os
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError, check_choice, load_extra
from penstock.expr.arrays import on_arrays, to_lists
from penstock.expr.column import Expression, call
from penstock.expr.kinds import STRING, TEXT, UINT32, Kind
from penstock.expr.public_functions import method
from penstock.expr.signatures import strict, takes
from penstock.types import DataType
from penstock.types.plain import arrow_array
from penstock.udf.options import check_whole

CHUNKS = DataType.list(STRING)
TOKENS = DataType.list(UINT32)
_NUMBERS = Kind("a list of integers", lambda d: d.is_list() and (d.inner.is_integer() or d.inner.is_null()))


@method
def chunk_text(
    expr: Expression, size: int, overlap: int = 0, *, unit: Literal["characters", "words"] = "characters"
) -> Expression:
    """Split text into chunks of ``size`` characters or words; each repeats the last ``overlap`` of the one before.

    The last chunk may be shorter, but always has something new. A chunk of words is the text from its first to its last
    word, with its white space unchanged. An empty text gives an empty list.

    >>> ps.from_pydict({"t": ["abcdefgh"]}).select(chunk_text(ps.col("t"), 4, 1)).to_pydict()
    {'t': [['abcd', 'defg', 'gh']]}
    >>> ps.from_pydict({"t": ["one two  three four"]}).select(chunk_text(ps.col("t"), 2, unit="words")).to_pydict()
    {'t': [['one two', 'three four']]}
    """
    check_whole("chunk_text", "size", size, 1)
    check_whole("chunk_text", "overlap", overlap, 0)
    if overlap >= size:
        raise InvalidArgumentError(f"chunk_text: overlap={overlap} must be less than size={size}")
    check_choice("chunk_text: unit", unit, ("characters", "words"))
    return call("chunk_text", expr, size=size, overlap=overlap, unit=unit)


@strict("chunk_text", takes(TEXT, returns=CHUNKS))
@on_arrays
def _chunk_text(texts: pa.Array, *, size: int, overlap: int, unit: str) -> pa.Array:
    cut = _character_chunks if unit == "characters" else _word_chunks
    values = texts.to_pylist()
    rows = [[] if text is None else cut(text, size, overlap) for text in values]
    chunks = arrow_array([chunk for row in rows for chunk in row], pa.string())
    lengths = np.array([len(row) for row in rows])
    return to_lists(chunks, lengths, np.array([text is not None for text in values], bool))


def _character_chunks(text: str, size: int, overlap: int) -> list[str]:
    return [text[start : start + size] for start in _starts(len(text), size, overlap)]


def _word_chunks(text: str, size: int, overlap: int) -> list[str]:
    words = text.split()
    begins: list[int] = []
    position = 0
    for word in words:
        position = text.index(word, position)
        begins.append(position)
        position += len(word)
    ends = [begin + len(word) for begin, word in zip(begins, words, strict=True)]
    return [
        text[begins[start] : ends[min(start + size, len(words)) - 1]] for start in _starts(len(words), size, overlap)
    ]


def _starts(length: int, size: int, overlap: int) -> range:
    """Return the starts of the chunks; the last chunk is the first that reaches the end."""
    return range(0, max(length - overlap, min(length, 1)), size - overlap)


# --- tokens -----------------------------------------------------------------------------------------------------------


@method
def tokenize_encode(expr: Expression, tokens_path: str, *, use_special_tokens: bool | None = None) -> Expression:
    """Convert text to token numbers.

    ``tokens_path`` is a ``tokenizer.json`` file, or the name of a model on the Hugging Face hub; ``use_special_tokens``
    adds the tokens that its model expects.
    """
    path = _checked_path(tokens_path)
    return call("tokenize_encode", expr, tokens_path=path, use_special_tokens=bool(use_special_tokens))


@method
def tokenize_decode(expr: Expression, tokens_path: str) -> Expression:
    """Convert token numbers to text; ``tokens_path`` is as in ``tokenize_encode``."""
    return call("tokenize_decode", expr, tokens_path=_checked_path(tokens_path))


def _checked_path(tokens_path: str) -> str:
    if tokens_path in _OF_TIKTOKEN or tokens_path.endswith(".tiktoken"):
        raise InvalidArgumentError(
            f"tokens_path={tokens_path!r} is a vocabulary of tiktoken; name a model of the Hugging Face hub with the "
            "same tokens, such as 'Xenova/gpt-4' for 'cl100k_base'."
        )
    return os.fspath(tokens_path)


@functools.lru_cache(maxsize=8)
def _tokenizer(path: str) -> Any:
    kind = load_extra("tokenizers", "transformers", "tokenize_encode and tokenize_decode").Tokenizer
    return kind.from_file(path) if os.path.exists(path) else kind.from_pretrained(path)


@strict("tokenize_encode", takes(TEXT, returns=TOKENS))
@on_arrays
def _tokenize_encode(texts: pa.Array, *, tokens_path: str, use_special_tokens: bool) -> pa.Array:
    rows = texts.to_pylist()
    given = [row for row in rows if row is not None]
    encoded = iter(_tokenizer(tokens_path).encode_batch_fast(given, add_special_tokens=use_special_tokens))
    return arrow_array([None if row is None else next(encoded).ids for row in rows], TOKENS.arrow)


@strict("tokenize_decode", takes(_NUMBERS, returns=STRING))
@on_arrays
def _tokenize_decode(tokens: pa.Array, *, tokens_path: str) -> pa.Array:
    rows = tokens.to_pylist()
    texts = iter(_tokenizer(tokens_path).decode_batch([row for row in rows if row is not None]))
    return arrow_array([None if row is None else next(texts) for row in rows], pa.string())


_OF_TIKTOKEN = ("cl100k_base", "o200k_base", "p50k_base", "p50k_edit", "r50k_base")

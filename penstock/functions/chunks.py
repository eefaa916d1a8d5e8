"""Split long texts into chunks that fit a model."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.arrays import on_arrays, to_lists
from penstock.expr.column import Expression, call, method
from penstock.expr.kinds import STRING, TEXT
from penstock.expr.signatures import strict, takes
from penstock.types import DataType
from penstock.types.plain import arrow_array
from penstock.udf.options import check_whole

UNITS = ("characters", "words")
CHUNKS = DataType.list(STRING)


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
    if unit not in UNITS:
        raise InvalidArgumentError(
            f"chunk_text: unit={unit!r} is not known; use 'characters' or 'words'.{did_you_mean(unit, UNITS)}"
        )
    return call("chunk_text", expr, size=size, overlap=overlap, unit=unit)


@strict("chunk_text", takes(TEXT, returns=CHUNKS))
@on_arrays
def _chunk_text(texts: pa.Array, *, size: int, overlap: int, unit: str) -> pa.Array:
    cut = _character_chunks if unit == "characters" else _word_chunks
    rows = [[] if text is None else cut(text, size, overlap) for text in texts.to_pylist()]
    chunks = arrow_array([chunk for row in rows for chunk in row], pa.string())
    lengths = np.array([len(row) for row in rows])
    return to_lists(chunks, lengths, texts.is_valid().to_numpy(zero_copy_only=False))


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

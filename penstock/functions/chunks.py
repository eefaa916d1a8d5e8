"""Text for models: chunks that fit one, and its tokens, with Hugging Face ``tokenizers``."""

from __future__ import annotations

import base64
import functools
import os
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptFileError, InvalidArgumentError, check_choice, load_extra
from penstock.expr.arrays import on_arrays, to_lists
from penstock.expr.column import Expression, call
from penstock.expr.kinds import STRING, TEXT, UINT32, Kind
from penstock.expr.public_functions import method
from penstock.expr.signatures import strict, takes
from penstock.storage.file import File
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
def tokenize_encode(
    expr: Expression,
    tokens_path: str,
    *,
    pattern: str | None = None,
    special_tokens: str | None = None,
    use_special_tokens: bool | None = None,
) -> Expression:
    """Convert text to token numbers.

    ``tokens_path`` is a ``tokenizer.json`` file, or the name of a model on the Hugging Face hub; ``use_special_tokens``
    adds the tokens that its model expects. With ``pattern``, which splits text, it is a token file of tiktoken:
    ``special_tokens="llama3"`` knows those of Llama 3, which ``use_special_tokens=False`` takes for text.
    """
    if special_tokens is not None and use_special_tokens is False:
        special_tokens = None
    tokenizer = _checked_tokenizer(tokens_path, pattern, special_tokens)
    return call("tokenize_encode", expr, **tokenizer, use_special_tokens=bool(use_special_tokens))


@method
def tokenize_decode(
    expr: Expression, tokens_path: str, *, pattern: str | None = None, special_tokens: str | None = None
) -> Expression:
    """Convert token numbers to text; the parameters are those of ``tokenize_encode``."""
    return call("tokenize_decode", expr, **_checked_tokenizer(tokens_path, pattern, special_tokens))


def _checked_tokenizer(tokens_path: str, pattern: str | None, special_tokens: str | None) -> dict[str, str | None]:
    if pattern is None and tokens_path in _BUILT_IN:
        raise InvalidArgumentError(
            f"tokens_path={tokens_path!r} is part of tiktoken; give the path of its token file and pattern=, or a "
            "model of the Hugging Face hub with the same tokens, such as 'Xenova/gpt-4' for 'cl100k_base'."
        )
    if pattern is None and special_tokens is not None:
        raise InvalidArgumentError(f"special_tokens={special_tokens!r} needs pattern= and a token file of tiktoken.")
    if special_tokens is not None:
        check_choice("special_tokens", special_tokens, _SPECIAL_TOKENS)
    return {"tokens_path": os.fspath(tokens_path), "pattern": pattern, "special_tokens": special_tokens}


@functools.lru_cache(maxsize=8)
def _tokenizer(path: str, pattern: str | None, special_tokens: str | None) -> Any:
    if pattern is not None:
        return _tiktoken_tokenizer(path, pattern, special_tokens)
    kind = load_extra("tokenizers", "transformers", "tokenize_encode and tokenize_decode").Tokenizer
    return kind.from_file(path) if os.path.exists(path) else kind.from_pretrained(path)


@strict("tokenize_encode", takes(TEXT, returns=TOKENS))
@on_arrays
def _tokenize_encode(
    texts: pa.Array, *, tokens_path: str, pattern: str | None, special_tokens: str | None, use_special_tokens: bool
) -> pa.Array:
    rows = texts.to_pylist()
    encoded = iter(
        _tokenizer(tokens_path, pattern, special_tokens).encode_batch_fast(
            [row for row in rows if row is not None], add_special_tokens=use_special_tokens
        )
    )
    return arrow_array([None if row is None else next(encoded).ids for row in rows], TOKENS.arrow)


@strict("tokenize_decode", takes(_NUMBERS, returns=STRING))
@on_arrays
def _tokenize_decode(
    tokens: pa.Array, *, tokens_path: str, pattern: str | None, special_tokens: str | None
) -> pa.Array:
    rows = tokens.to_pylist()
    tokenizer = _tokenizer(tokens_path, pattern, special_tokens)
    valid = [row for row in rows if row is not None]
    texts = iter(tokenizer.decode_batch(valid, skip_special_tokens=pattern is None))
    return arrow_array([None if row is None else next(texts) for row in rows], pa.string())


# --- token files of tiktoken: a line has the bytes of a token in base64, and its rank ---------------------------------

_BUILT_IN = ("cl100k_base", "o200k_base", "p50k_base", "p50k_edit", "r50k_base")
_NAMED = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
_RESERVED = iter(range(251))
_SPECIAL_TOKENS = {
    "llama3": [f"<|{_NAMED.get(n) or f'reserved_special_token_{next(_RESERVED)}'}|>" for n in range(256)]
}

_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_LETTERS = {byte: chr(byte) for byte in _PRINTED}  # GPT-2's letter for each byte, which byte-level tokenizers use
_LETTERS |= {byte: chr(256 + n) for n, byte in enumerate(sorted(set(range(256)) - set(_PRINTED)))}


def _tiktoken_tokenizer(path: str, pattern: str, special_tokens: str | None) -> Any:
    """Return a tokenizer of ``tokenizers`` that splits text by ``pattern`` and merges bytes by their ranks."""
    library = load_extra("tokenizers", "transformers", "tokenize_encode and tokenize_decode")
    ranks = _ranks(path)
    vocabulary = {_text(token): rank for token, rank in ranks.items()}
    pairs = [
        (rank, ranks[token[:cut]], ranks[token[cut:]], _text(token[:cut]), _text(token[cut:]))
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    merges = [(left, right) for *_, left, right in sorted(pairs)]
    tokenizer = library.Tokenizer(library.models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence(
        [
            library.pre_tokenizers.Split(library.Regex(pattern), behavior="removed", invert=True),
            library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.add_special_tokens(_SPECIAL_TOKENS.get(special_tokens or "", []))
    return tokenizer


def _ranks(path: str) -> dict[bytes, int]:
    lines = [line.split() for line in File(path).read().splitlines() if line]
    try:
        return {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except ValueError as exc:
        raise CorruptFileError(f"{path!r} is not a token file of tiktoken: {exc}") from exc


def _text(token: bytes) -> str:
    return "".join(map(_LETTERS.__getitem__, token))

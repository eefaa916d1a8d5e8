"""Token files of tiktoken give the tokens that Daft, which reads them too, returns."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError
from penstock.functions import tokenize_decode, tokenize_encode

TOKENS = [bytes([byte]) for byte in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor", b"\xc3\xa9"]
WORDS = r" ?\p{L}+|\p{N}{1,3}|[^\p{L}\p{N}]+"
TEXTS = ["hello world", "<|eot_id|>é 1234", "", None]


@pytest.fixture
def path(tmp_path: Path) -> str:
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(TOKENS))
    (tmp_path / "small.tiktoken").write_bytes(b"".join(lines))
    return str(tmp_path / "small.tiktoken")


@pytest.mark.parametrize(
    ("use_special_tokens", "second"),
    [(None, [273, 263, 32, 49, 50, 51, 52]), (False, [*b"<|eot_id|>", 263, 32, 49, 50, 51, 52])],
)
def test_encode_and_decode(path: str, use_special_tokens: bool | None, second: list[int]) -> None:
    options = {"pattern": WORDS, "special_tokens": "llama3"}
    df = ps.from_pydict({"t": TEXTS})
    encoded = df.select(tokenize_encode(ps.col("t"), path, **options, use_special_tokens=use_special_tokens))
    assert encoded.to_pydict()["t"] == [[259, 262, 108, 100], second, [], None]
    assert encoded.select(tokenize_decode(ps.col("t"), path, **options)).to_pydict()["t"] == TEXTS


def test_parts_of_text_that_the_pattern_leaves_out_have_no_tokens(path: str) -> None:
    found = ps.from_pydict({"t": ["hello, hello"]}).select(tokenize_encode(ps.col("t"), path, pattern="[a-z]+"))
    assert found.to_pydict() == {"t": [[259, 259]]}


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="'cl100k_base' is part of tiktoken; give the path"):
        tokenize_encode(ps.col("t"), "cl100k_base")
    with pytest.raises(InvalidArgumentError, match="special_tokens='llama3' needs pattern="):
        tokenize_decode(ps.col("t"), "tokenizer.json", special_tokens="llama3")
    with pytest.raises(InvalidArgumentError, match="special_tokens='gpt' is not known"):
        tokenize_encode(ps.col("t"), "file", pattern=".", special_tokens="gpt")
    (tmp_path / "text").write_text("not tokens\n")
    with pytest.raises(CorruptFileError, match="is not a token file of tiktoken"):
        ps.from_pydict({"t": ["a"]}).select(tokenize_encode(ps.col("t"), str(tmp_path / "text"), pattern=".")).collect()

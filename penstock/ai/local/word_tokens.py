"""Tokenize texts by their words, each different word once.

A tokenizer of the BERT family never joins characters across a space, so a text has the tokens of its words.
Arrow splits the texts and finds the different words; the tokenizer sees only words that are new. Texts repeat their
words, so this is many times as fast as tokenizing each text.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.types.plain import arrow_array, numpy_values

NDArray = np.ndarray[Any, Any]

MAX_KNOWN_IDS = 2_000_000
"""Token ids of known words that are kept, some hundred thousand words. Beyond that, the words are learned again."""


@dataclass(frozen=True, slots=True)
class KnownWords:
    """Words and their token ids: word ``i`` has ``ids[starts[i] : starts[i] + sizes[i]]``."""

    words: pa.Array
    ids: NDArray
    starts: NDArray
    sizes: NDArray


NO_WORDS = KnownWords(pa.nulls(0, pa.large_string()), *(np.empty(0, kind) for kind in (np.int32, np.int64, np.int64)))


class WordTokenizer:
    """A tokenizer for which `splits_at_spaces` is true. Several threads may use it at the same time."""

    def __init__(self, backend: Any, max_length: int) -> None:
        self._backend = backend
        self._known = NO_WORDS
        self._lock = threading.Lock()
        before, after = special_ids(backend)
        self._max_length = max_length - len(before) - len(after)
        self._special = np.array([*before, *after], np.int32)
        self._num_before = len(before)

    def tokens(self, texts: Sequence[str]) -> tuple[NDArray, NDArray]:
        """Return the ids of all texts in one array, and how many each text has, special tokens included."""
        words = pc.split_pattern(arrow_array(texts, pa.large_string()), " ")
        encoded = words.flatten().dictionary_encode()
        known, places = self._look_up(encoded.dictionary)
        used = places[numpy_values(encoded.indices)]
        sizes = known.sizes[used]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        offsets = numpy_values(words.offsets)
        row_ends = ends[offsets]
        lengths = np.diff(row_ends)
        if len(lengths) and lengths.max() > self._max_length:
            lengths = np.minimum(lengths, self._max_length)
            last = np.repeat(row_ends[:-1] + lengths, np.diff(offsets))
            sizes = np.clip(last - ends[:-1], 0, sizes)
            ends = np.concatenate([[0], np.cumsum(sizes)])
        ids = known.ids[np.arange(ends[-1]) + np.repeat(known.starts[used] - ends[:-1], sizes)]
        return self._with_special(ids, lengths), lengths + len(self._special)

    def _with_special(self, ids: NDArray, lengths: NDArray) -> NDArray:
        stops = np.cumsum(lengths)
        num_after = len(self._special) - self._num_before
        places = np.repeat(np.stack([stops - lengths, stops], 1), [self._num_before, num_after], axis=1)
        return np.insert(ids, places.ravel(), np.tile(self._special, len(lengths)))

    def _look_up(self, words: pa.Array) -> tuple[KnownWords, NDArray]:
        """Return the known words with all of ``words`` among them, and the place of each."""
        known = self._known
        places = pc.index_in(words, value_set=known.words)
        if places.null_count:
            with self._lock:
                known = self._learned(words)
            places = pc.index_in(words, value_set=known.words)
        return known, numpy_values(places)

    def _learned(self, words: pa.Array) -> KnownWords:
        known = self._known if len(self._known.ids) < MAX_KNOWN_IDS else NO_WORDS
        new = words.filter(pc.is_null(pc.index_in(words, value_set=known.words)))
        ids = [each.ids for each in self._backend.encode_batch_fast(new.to_pylist(), add_special_tokens=False)]
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))
        self._known = KnownWords(
            pa.concat_arrays([known.words, new]),
            np.concatenate([known.ids, *ids], dtype=np.int32, casting="unsafe"),
            np.concatenate([known.starts, len(known.ids) + np.cumsum(sizes) - sizes]),
            np.concatenate([known.sizes, sizes]),
        )
        return self._known


def splits_at_spaces(tokenizer: Any) -> bool:
    """Return whether a text has the tokens of its words, for a fast tokenizer of transformers."""
    backend = tokenizer.backend_tokenizer
    added = (token.content for token in backend.get_added_tokens_decoder().values())
    return (
        type(backend.model).__name__ == "WordPiece"
        and type(backend.normalizer).__name__ in ("BertNormalizer", "NoneType")
        and type(backend.pre_tokenizer).__name__ in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
        and tokenizer.truncation_side == "right"
        and not any(" " in content for content in added)
    )


def special_ids(backend: Any) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer adds before and after a text."""
    word = backend.encode("a", add_special_tokens=False).ids
    ids = backend.encode("a").ids
    start = next(i for i in range(len(ids)) if ids[i : i + len(word)] == word)
    return ids[:start], ids[start + len(word) :]

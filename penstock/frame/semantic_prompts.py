"""Messages of the semantic verbs to a model, and functions that read its answers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.types import DataType
from penstock.udf.decorators import func

Part = Mapping[str, Any]
"""A text with its number, by which the parts of a message are ordered."""

LIST_ROWS = 16
"""Rows of a comparison, besides pivots; more if more rows are wanted. Models compare few texts better than many."""
NUM_PIVOTS = 6

ROWS = """Answer the question about the rows below, which may be a part of a larger set. Say how many rows support \
each point. Write at most 300 words.

Question: {question}"""
ANSWERS = """Below are answers to a question, each from a part of the same rows. Write one answer for all rows: merge \
equal points and add up their numbers. Write at most 300 words.

Question: {question}"""
COMPARED = """Rank the numbered texts below by this question: {question}
Answer with the numbers of all texts, the best first. The order in which they are listed means nothing."""


# --- semantic_agg ---


@func(return_dtype=DataType.string())
def rows_message(parts: Sequence[Part]) -> str | None:
    """Return the texts of the rows in their order, or None without any."""
    return "\n\n".join(text for part in _in_order(parts) if (text := part["text"]) is not None) or None


@func(return_dtype=DataType.string())
def answers_message(parts: Sequence[Part]) -> str | None:
    """Return the answers to combine; None for a single answer, and if a part has no answer because its call failed."""
    texts = [part["text"] for part in _in_order(parts)]
    if len(texts) == 1 or None in texts:
        return None
    return "\n\n".join(f"Answer {number}:\n{text}" for number, text in enumerate(texts, 1))


@func(return_dtype=DataType.string())
def only_answer(parts: Sequence[Part]) -> str | None:
    return parts[0]["text"] if len(parts) == 1 else None


# --- semantic_top_k ---


@func(return_dtype=DataType.list(DataType.string()))
def pivots_of(parts: Sequence[Part]) -> list[str]:
    return [part["text"] for part in _in_order(parts)[:NUM_PIVOTS]]


@func(return_dtype=DataType.string())
def list_message(parts: Sequence[Part], pivots: Sequence[str], seed: int, is_needed: bool) -> str | None:
    """Return the texts of a list and the pivots in a random order, or None if no comparison is needed."""
    texts = [*(part["text"] for part in parts), *pivots]
    if not is_needed or len(texts) < 2:
        return None
    return "\n\n".join(f"[{label}]\n{texts[index]}" for label, index in enumerate(_shown(parts, pivots, seed), 1))


@func(return_dtype=DataType.list(DataType.int64()))
def num_better(parts: Sequence[Part], pivots: Sequence[str], seed: int, answer: Sequence[int] | None) -> list[int]:
    """Return the number of pivots that the answer puts before each part; 0 without an answer, which keeps the parts."""
    if answer is None:
        return [0] * len(parts)
    places = _places(parts, pivots, seed, answer)
    return [sum(pivot < place for pivot in places[len(parts) :]) for place in places[: len(parts)]]


@func(return_dtype=DataType.list(DataType.float64()))
def mean_places(parts: Sequence[Part], *answers: Sequence[int] | None) -> list[float | None]:
    """Return the mean place of each part in several answers; None without any."""
    if len(parts) == 1:
        return [0.0]
    votes = [_places(parts, (), seed, answer) for seed, answer in enumerate(answers) if answer is not None]
    return [sum(places) / len(places) for places in zip(*votes, strict=True)] if votes else [None] * len(parts)


def _places(parts: Sequence[Part], pivots: Sequence[str], seed: int, answer: Sequence[int]) -> list[int]:
    """Return the place of each part, then of each pivot, in an answer. A text that the answer leaves out comes last."""
    shown = _shown(parts, pivots, seed)
    places = [len(shown)] * len(shown)
    for place, label in enumerate(dict.fromkeys(answer)):
        if 1 <= label <= len(shown):
            places[shown[label - 1]] = place
    return places


def _shown(parts: Sequence[Part], pivots: Sequence[str], seed: int) -> list[int]:
    """Return the positions of the parts and pivots in the order in which a model sees them.

    It depends on the seed and the order of the parts alone, so that a resumed query asks the same.
    """
    numbers = [part["number"] for part in parts]
    shown = sorted(range(len(parts)), key=numbers.__getitem__) + list(range(len(parts), len(parts) + len(pivots)))
    random.Random(seed).shuffle(shown)
    return shown


def _in_order(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: part["number"])

"""Providers that users write: what their models may return, and what is said of what they may not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.ai.embed import PackedEmbeddings
from penstock.ai.provider import (
    Classifier,
    Embedder,
    Generation,
    Model,
    ModelTask,
    Prompter,
    Prompting,
    TextClassification,
    TextEmbedding,
)
from penstock.errors import RequestRefusedError, UdfError
from penstock.functions import classify_text, embed_text, prompt
from penstock.types import PartialColumn


class Scripted(ps.Provider):
    """Its models return what they are given here."""

    name = "scripted"

    def __init__(self, given: Any, is_async: bool = True) -> None:
        self.given, self.is_async = given, is_async

    def model(self, task: ModelTask) -> Model:
        match task:
            case Prompting():
                return OneAnswer(self.given) if self.is_async else AllAnswers(self.given)
            case TextEmbedding():
                return AsyncVectors(self.given) if self.is_async else Vectors(self.given)
            case TextClassification():
                return Labels(self.given)
            case _:
                return super().model(task)


class OneAnswer(Prompter):
    def __init__(self, given: Any) -> None:
        self.given = given

    async def generate(self, request: Any) -> Any:
        return self.given


class AllAnswers(Prompter):
    def __init__(self, given: Any) -> None:
        self.given = given

    def generate(self, request: Any) -> Any:
        return self.given


class Vectors(Embedder):
    dimensions = 2

    def __init__(self, given: Any) -> None:
        self.given = given

    def embed(self, inputs: Sequence[Any]) -> Any:
        return self.given


class AsyncVectors(Embedder):
    dimensions = 2

    def __init__(self, given: Any) -> None:
        self.given = given

    async def embed(self, inputs: Sequence[Any]) -> Any:
        return self.given


class Labels(Classifier):
    def __init__(self, given: Any) -> None:
        self.given = given

    def classify(self, inputs: Sequence[Any]) -> Any:
        return self.given


def asked(provider: ps.Provider, num_rows: int = 1, **options: Any) -> list[Any]:
    df = ps.from_pydict({"q": ["a"] * num_rows})
    found: list[Any] = df.select(prompt(ps.col("q"), provider=provider, **options)).to_pydict()["q"]
    return found


@pytest.mark.parametrize("given", ["A", Generation("A"), ["A"], (Generation("A"),), [Generation("A"), Generation("B")]])
def test_answers_in_other_forms(given: Any) -> None:
    assert asked(Scripted(given)) == ["A"]
    assert asked(Scripted([given, given], is_async=False), 2) == ["A", "A"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "returned None for a request; return a list of Generation"),
        (5, "returned a int for a request"),
        ([], "returned 0 answers; request.num_answers is 1"),
        ([5], "returned a int among its answers"),
        ([Generation(None)], r"returned Generation\(None\)"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_answer(given: Any, words: str) -> None:
    with pytest.raises(UdfError, match=f"OneAnswer.generate {words}"):
        asked(Scripted(given))
    with pytest.raises(UdfError, match=f"AllAnswers.generate {words}"):
        asked(Scripted([given], is_async=False))


def test_too_few_answers() -> None:
    with pytest.raises(UdfError, match=r"returned 1 answers; request\.num_answers is 3"):
        asked(Scripted("A"), n=3)
    with pytest.raises(UdfError, match=r"returned 1 answers; request\.num_answers is 3"):
        asked(Scripted([["A"]], is_async=False), n=3)


@pytest.mark.parametrize(
    ("given", "words"),
    [(None, "given 2 requests and returned None"), ([["A"]], "given 2 requests and returned the answers to 1")],
)
def test_a_batch_of_another_length(given: Any, words: str) -> None:
    with pytest.raises(UdfError, match=f"AllAnswers.generate was {words}"):
        asked(Scripted(given, is_async=False), 2)


def test_a_bad_answer_of_a_batch_is_that_rows_error() -> None:
    df = ps.from_pydict({"q": ["a", "b"]})
    df = df.select(prompt(ps.col("q"), provider=Scripted(["A", None], is_async=False), on_error="null")).collect()
    assert df.to_pydict()["q"] == ["A", None]
    assert df.errors().to_pydict()["error_type"] == ["InvalidAnswerError"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "given", [[[1, 2], [3, 4]], [np.array([1, 2]), np.array([3, 4])], np.array([[1.0, 2], [3, 4]])]
)
def test_vectors_in_other_forms(given: Any, is_async: bool) -> None:
    df = ps.from_pydict({"t": ["a", "b"]})
    found = df.select(embed_text(ps.col("t"), provider=Scripted(given, is_async))).to_pydict()["t"]
    assert np.array(found).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([[1, 2]], r"an array of shape \(1, 2\); return one of shape \(2, 2\)"),
        (np.zeros((2, 3)), r"an array of shape \(2, 3\)"),
        ([[1], [2, 3, 4]], "a list that is not an array of numbers"),
        (None, r"an array of shape \(\)"),
    ],
)
def test_what_is_no_vector(given: Any, words: str, is_async: bool) -> None:
    df = ps.from_pydict({"t": ["a", "b"]})
    with pytest.raises(UdfError, match=f"Vectors.embed was given 2 inputs and returned {words}"):
        df.select(embed_text(ps.col("t"), provider=Scripted(given, is_async))).collect()


def test_a_label_that_is_none_is_that_rows_error() -> None:
    df = ps.from_pydict({"t": ["a", None, "b"]})
    labels = Scripted(["good", "terrible"])
    df = df.select(classify_text(ps.col("t"), ["good", "bad"], provider=labels, on_error="null")).collect()
    assert df.to_pydict()["t"] == ["good", None, None]
    (error,) = df.errors().to_pylist()
    assert "returned 'terrible', which is not among the labels: bad, good" in error["message"]


@pytest.mark.parametrize(("given", "words"), [(["good"], "1 labels"), ("good", "str"), (None, "NoneType")])
def test_labels_of_another_number(given: Any, words: str) -> None:
    df = ps.from_pydict({"t": ["a", "b"]})
    with pytest.raises(UdfError, match=f"Labels.classify was given 2 inputs and returned {words}"):
        df.select(classify_text(ps.col("t"), ["good", "bad"], provider=Scripted(given))).collect()


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 1e300])
def test_a_vector_that_is_not_finite_is_that_rows_error(number: float, is_async: bool) -> None:
    provider = Scripted([[1, 2], [number, 2], [3, 4]], is_async)
    df = ps.from_pydict({"t": ["a", "b", "c"]})
    df = df.select(embed_text(ps.col("t"), provider=provider, on_error="null")).collect()
    found = df.to_pydict()["t"]
    assert ([*found[0]], found[1], [*found[2]]) == ([1, 2], None, [3, 4])
    assert "Vectors returned has NaN or infinity" in df.errors().to_pydict()["message"][0]


class ShortTexts(Embedder):
    """Refuses long texts. All calls but the first are refused late: after the rows of the first one have vectors."""

    dimensions = 2
    max_items = 20

    def __init__(self, note_refused: Callable[[int], None]) -> None:
        self.note_refused = note_refused  # a copy of this model embeds
        self.num_refused = self.num_embedded = 0
        self.has_embedded_call = asyncio.Event()

    async def embed(self, inputs: Sequence[str]) -> Any:
        if all(len(text) <= 100 for text in inputs):
            self.num_embedded += len(inputs)
            if self.num_embedded >= self.max_items:
                self.has_embedded_call.set()
            return [[1, 2] for _ in inputs]
        self.note_refused(len(inputs))
        self.num_refused += 1
        if len(inputs) == self.max_items and self.num_refused > 1:
            await self.has_embedded_call.wait()
        raise RequestRefusedError("an input has too many tokens")


def test_calls_that_are_refused_after_the_limit_is_known_use_it() -> None:
    async def embed(note_refused: Callable[[int], None]) -> PartialColumn:
        texts = ps.Series.from_pylist(["word " * 300] * 200)
        return await PackedEmbeddings(ShortTexts(note_refused)).embed(texts)

    refused = list[int]()
    assert not asyncio.run(embed(refused.append)).failures
    assert refused.count(20) == 10
    assert len(refused) < 60, "the other calls are halved too"

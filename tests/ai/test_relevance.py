"""Relevance of texts for queries, by real cross-encoders of a few kilobytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.ai.local.text_reranker import CrossEncoder
from penstock.ai.provider import Model, ModelTask, Reranker, TextRelevance
from penstock.errors import InvalidAnswerError, InvalidArgumentError, TypeMismatchError
from penstock.functions import relevance
from tests.ai.local_models import TEXTS, save_bert, save_entailment, save_reranker

QUERY = "a joy to read"
LONG = " ".join(["the kettle boils quickly"] * 20)  # more words than the model has positions


def logits(folder: str, query: str, texts: Sequence[str]) -> np.ndarray:
    """Return the output of transformers, one pair at a time, so without padding."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        pairs = [tokenizer([query], [text], truncation=True, max_length=28, return_tensors="pt") for text in texts]
        return torch.cat([model(**pair).logits[0] for pair in pairs]).numpy()


def scores(texts: Sequence[Any], query: Any = QUERY, **options: Any) -> list[float | None]:
    df = ps.from_pydict({"text": texts, "query": ["it broke", None, *[QUERY] * (len(texts) - 2)]})
    found: list[float | None] = df.select(score=relevance(query, ps.col("text"), device="cpu", **options)).to_pydict()[
        "score"
    ]
    return found


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "qwen3", "mpnet"])
def test_scores_are_what_transformers_gives(family: str, tmp_path: Path) -> None:
    """A query and a text that are too long together are both cut, the longer one first."""
    folder = save_reranker(tmp_path, family)
    texts = [*TEXTS, LONG]
    expected = torch.from_numpy(logits(folder, QUERY, texts)).sigmoid().numpy()
    found = np.array(scores(texts, model=folder, max_length=28))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.ptp(found) > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_the_configuration_chooses_the_activation(settings: dict[str, Any], tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as ByTheOthers

    folder = save_reranker(tmp_path, **settings)
    np.testing.assert_allclose(scores(TEXTS, model=folder), logits(folder, QUERY, TEXTS), atol=1e-4)
    theirs = ByTheOthers(folder, device="cpu").predict([(QUERY, text) for text in TEXTS])
    np.testing.assert_allclose(scores(TEXTS, model=folder), theirs, atol=1e-4)


def test_columns_templates_and_nulls(tmp_path: Path) -> None:
    folder = save_reranker(tmp_path)
    texts = [TEXTS[0], TEXTS[1], None, *TEXTS[3:]]
    by_column = scores(texts, ps.col("query"), model=folder)
    assert [row for row, score in enumerate(by_column) if score is None] == [1, 2]
    assert by_column == pytest.approx(scores(texts, "{query}", model=folder))
    assert by_column[3:] == pytest.approx(scores(texts, model=folder)[3:])
    assert by_column[0] != pytest.approx(scores(texts, model=folder)[0], abs=1e-3)
    df = ps.from_pydict({"text": texts}).with_column("score", relevance(QUERY, "{text}", model=folder))
    best = df.sort("score", desc=True, nulls_first=False).limit(1).to_pydict()["score"]
    assert best[0] == pytest.approx(max(score for score in scores(texts, model=folder) if score is not None))


def test_scores_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_reranker(tmp_path / "model")
    with ps.config(cache_dir=str(tmp_path / "cache")):
        first = scores(TEXTS, model=folder)
        monkeypatch.setattr(CrossEncoder, "relevance", None)
        assert scores(TEXTS, model=folder) == first
        monkeypatch.undo()
        assert scores([TEXTS[0], "late", *TEXTS[2:]], model=folder)[0] == first[0]


def test_explain_names_the_model_and_its_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_reranker(tmp_path / "reranker")
    ps.from_pydict({"text": TEXTS}).select(s=relevance(QUERY, "{text}", model=folder, device="cpu")).explain()
    plan = capsys.readouterr().out
    assert "packed batches" in plan
    assert "reranker" in plan


def test_models_that_are_no_rerankers(tmp_path: Path) -> None:
    for folder, kind in ((save_entailment(tmp_path / "nli"), "3 outputs"), (save_bert(tmp_path / "bert"), "no seq")):
        with pytest.raises(InvalidArgumentError, match=f"{kind}.*use a reranker"):
            relevance(QUERY, "{text}", model=folder)
    folder = save_reranker(tmp_path / "tanh", sentence_transformers={"activation_fn": "torch.nn.Tanh"})
    with pytest.raises(InvalidArgumentError, match=r"'torch.nn.Tanh'; relevance has Sigmoid and Identity"):
        relevance(QUERY, "{text}", model=folder)
    with pytest.raises(InvalidArgumentError, match="'openai' has no relevance"):
        relevance(QUERY, "{text}", provider="openai", model="gpt-5")


def test_the_text_names_a_column(tmp_path: Path) -> None:
    folder = save_reranker(tmp_path)
    with pytest.raises(InvalidArgumentError, match="names no column"):
        relevance("{query}", "text", model=folder)
    with pytest.raises(TypeMismatchError, match="expected a string"):
        ps.from_pydict({"n": [1]}).select(relevance(QUERY, ps.col("n"), model=folder))


class CountingWords(ps.Provider):
    name = "words"

    def __init__(self, extra: int = 0) -> None:
        self.extra = extra

    def model(self, task: ModelTask) -> Model:
        assert isinstance(task, TextRelevance)
        return SharedWords(self.extra)


class SharedWords(Reranker):
    def __init__(self, extra: int) -> None:
        self.extra = extra

    def relevance(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        found = [len({*query.split()} & {*text.split()}) for query, text in pairs]
        return np.array(found + [0] * self.extra)


def test_a_provider_of_ones_own() -> None:
    df = ps.from_pydict({"text": ["a joy", "it broke"]})
    assert df.select(s=relevance(QUERY, "{text}", provider=CountingWords())).to_pydict() == {"s": [2.0, 0.0]}
    with pytest.raises(InvalidAnswerError, match=r"given 2 pairs and returned an array of shape \(3,\)"):
        df.select(s=relevance(QUERY, "{text}", provider=CountingWords(1))).collect()

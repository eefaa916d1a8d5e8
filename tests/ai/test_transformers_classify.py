"""Labels for texts by local models: their own, by entailment, or by the nearest vector."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.ai.local.text_classifier import Entailment, NearestLabel, OwnLabels
from penstock.ai.local.transformers import TransformersProvider
from penstock.ai.provider import Classifier, TextClassification
from penstock.errors import InvalidArgumentError
from penstock.functions import classify_text
from tests.ai.local_models import TEXTS, save_bert, save_entailment
from tests.seeds.tiny_models import REVIEWS, save_sentiment_classifier


def classifier(labels: list[str], model: str | None = None, **options: Any) -> Classifier:
    found = TransformersProvider().model(TextClassification(model, {"device": "cpu", **options}, labels=tuple(labels)))
    assert isinstance(found, Classifier)
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def test_minilm_picks_the_nearest_label() -> None:
    model = classifier(["sports", "cooking", "politics"])
    assert isinstance(model, NearestLabel)
    model.load()
    texts = ["simmer the onions in butter", "the senate passed the bill", "she scored twice before half-time"]
    assert model.classify(texts) == ["cooking", "politics", "sports"]
    assert model.classify([]) == []


def test_a_template_changes_what_is_compared() -> None:
    plain = classifier(["bank"], hypothesis_template="{}")
    river = classifier(["bank"], hypothesis_template="the {} of a river")
    for model in (plain, river):
        model.load()
    assert plain.runtime[1].tolist() != river.runtime[1].tolist()  # type: ignore[attr-defined]


def test_a_plain_encoder_is_compared_as_well(tmp_path: Path) -> None:
    model = classifier(["a joy", "it broke"], save_bert(tmp_path))
    model.load()
    assert model.classify(["it broke", "a joy", "a joy"]) == ["it broke", "a joy", "a joy"]


@pytest.mark.parametrize("template", [None, "about {}."])
def test_entailment_is_what_the_pipeline_says(template: str | None, tmp_path: Path) -> None:
    from transformers import pipeline

    texts, labels = [text for text in TEXTS if text], ["boiling", "joy", "late"]
    options = {} if template is None else {"hypothesis_template": template}
    folder = save_entailment(tmp_path)
    pipe = pipeline("zero-shot-classification", model=folder, device="cpu")
    answers = pipe(texts, labels, **options)
    expected = [answer["labels"][0] for answer in answers]
    model = classifier(labels, folder, **options)
    assert isinstance(model, Entailment)
    model.load()
    assert model.classify(texts) == expected
    assert len(set(expected)) > 1
    scores = [[dict(zip(a["labels"], a["scores"], strict=True))[label] for label in labels] for a in answers]
    np.testing.assert_allclose(model.scores(texts), scores, atol=1e-5)
    assert model.classify(["the kettle " * 100]) in (["boiling"], ["joy"], ["late"])  # the text is cut, not the label


def test_a_classifier_with_the_labels_uses_its_own(tmp_path: Path) -> None:
    from transformers import pipeline

    save_sentiment_classifier(tmp_path)
    model = classifier(["Positive", "negative"], str(tmp_path))
    assert isinstance(model, OwnLabels)
    model.load()
    assert [label.upper() for label in model.classify(list(REVIEWS))] == list(REVIEWS.values())
    only = classifier(["positive"], str(tmp_path))
    only.load()
    assert only.classify(list(REVIEWS)) == ["positive"] * 3
    found = pipeline("text-classification", model=str(tmp_path), device="cpu")(list(REVIEWS), top_k=None)
    expected = [{each["label"]: each["score"] for each in row} for row in found]
    np.testing.assert_allclose(model.scores(list(REVIEWS)), [[r["POSITIVE"], r["NEGATIVE"]] for r in expected], 1e-4)


def test_scores_are_fields_of_their_labels(tmp_path: Path) -> None:
    """With a cache, labels and scores of one model do not get in each other's way."""
    save_sentiment_classifier(tmp_path / "model")
    texts = [None, *REVIEWS]
    df, labels = ps.from_pydict({"t": texts}), ["positive", "negative"]
    with ps.config(cache_dir=str(tmp_path / "cache")):
        for _ in range(2):
            for scores in (False, True):
                r = ps.functions.classify_text(ps.col("t"), labels, model=str(tmp_path / "model"), scores=scores)
                found = df.select(r.alias("r")).to_pydict()["r"]
                assert found[0] is None
                if not scores:
                    expected = found
                    continue
                assert [row and row["label"] for row in found] == expected
                for row in found[1:]:
                    assert list(row["scores"]) == labels
                    assert row["score"] == row["scores"][row["label"]] == max(row["scores"].values())
                    assert sum(row["scores"].values()) == pytest.approx(1)


def test_a_provider_without_decisions_gives_no_scores() -> None:
    ps.attach_provider("anthropic", api_key="test")
    with pytest.raises(InvalidArgumentError, match="'anthropic' has no decide"):
        ps.functions.classify_text(ps.col("t"), ["a", "b"], scores=True, provider="anthropic")


def test_labels_that_the_model_lacks(tmp_path: Path) -> None:
    save_sentiment_classifier(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"NEGATIVE, POSITIVE; it cannot tell happy, sad"):
        classifier(["happy", "sad"], str(tmp_path))


@pytest.mark.parametrize("template", ["no place", 3])
def test_a_template_without_a_place_for_the_label(template: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="in the place of the label"):
        classifier(["a"], hypothesis_template=template)


@pytest.mark.parametrize(
    ("labels", "words"),
    [("a,b", "must be a list of texts.*got 'a,b'"), (["a"], "the only label 'a'"), ([], "list"), (["a", "a"], "twice")],
)
def test_labels_that_leave_no_choice(labels: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        classify_text(ps.col("text"), labels)

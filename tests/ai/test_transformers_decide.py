"""Decisions of local models: the probabilities are those of a plain forward pass of each prompt alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock import col
from penstock.ai.decisions.labels import question_text
from penstock.ai.decisions.questions import Question
from penstock.errors import InvalidArgumentError
from penstock.functions import choice, decide, score, yes_no
from tests.ai.local_models import CHAT_TEMPLATE, save_bert, save_llama

TEXTS = ["It broke on the first day", "x", "a much longer text than the other ones are, with more words", None]
ASKED = {
    "refund": yes_no("A refund?"),
    "topic": choice("About what?", ["billing", "bug", "other"]),
    "anger": score("How angry?", ["calm", "furious"]),
}
FIRST_BYTES = {"refund": (b"Yy", b"Nn"), "topic": (b"A", b"B", b"C"), "anger": (b"A", b"B")}
"""What the labels begin with, as the tokenizer of the tiny model has one token for each byte."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_llama(tmp_path_factory.mktemp("llama"), chat_template=CHAT_TEMPLATE)


def by_transformers(folder: str, text: str, name: str, question: Question) -> list[float]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    prompt = f"<user>{text}\n\n{question_text(question)}<assistant>"
    with torch.inference_mode():
        logits = model(tokenizer(prompt, return_tensors="pt")["input_ids"]).logits[0, -1].double()
    shares = logits.softmax(-1)
    sums = [sum(shares[tokenizer.convert_tokens_to_ids(chr(byte))].item() for byte in own) for own in FIRST_BYTES[name]]
    return [each / sum(sums) for each in sums]


def test_probabilities_are_those_of_a_plain_forward_pass(llama: str) -> None:
    df = ps.from_pydict({"text": TEXTS})
    found = df.select(d=decide("{text}", ASKED, provider="transformers", model=llama, device="cpu")).to_pydict()["d"]
    assert found[3] is None
    for text, answers in zip(TEXTS[:3], found, strict=False):
        assert text is not None
        for name, question in ASKED.items():
            probabilities = list(answers[name]["probabilities"].values())
            assert probabilities == pytest.approx(by_transformers(llama, text, name, question), abs=1e-3)
            assert sum(probabilities) == pytest.approx(1, abs=1e-9)
            assert not answers[name]["refused"]
    assert len({answers["topic"]["probability"] for answers in found[:3]}) == 3


def test_answers_are_kept(llama: str, tmp_path: Path) -> None:
    df = ps.from_pydict({"text": TEXTS[:2]})
    asked: dict[str, Any] = {"provider": "transformers", "model": llama, "device": "cpu"}
    other = {**ASKED, "topic": choice("About whom?", ["billing", "bug", "other"])}
    with ps.config(cache_dir=str(tmp_path)):
        first = df.select(d=decide("{text}", ASKED, **asked)).to_pydict()
        assert df.select(d=decide("{text}", ASKED, **asked)).to_pydict() == first
        assert df.select(d=decide("{text}", other, **asked)).to_pydict() != first


def test_a_model_that_takes_no_images_says_so(llama: str) -> None:
    df = ps.from_pydict({"image": [np.zeros((4, 4, 3), np.uint8)]})
    options: dict[str, Any] = {"provider": "transformers", "model": llama, "device": "cpu", "on_error": "null"}
    df = df.select(d=decide([col("image")], ASKED, **options)).collect()
    assert df.to_pydict()["d"] == [None]
    assert "takes texts only" in df.errors().to_pydict()["message"][0]


def test_labels_that_begin_with_the_same_token_are_refused(tmp_path: Path) -> None:
    """A tokenizer of a few words has one token for all others."""
    folder = save_bert(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": ["BertLMHeadModel"]}))
    with pytest.raises(InvalidArgumentError, match="cannot tell answer 'Yes'"):
        decide("{text}", {"a": yes_no("?")}, provider="transformers", model=folder)


def test_more_options_than_letters_are_refused(llama: str) -> None:
    with pytest.raises(InvalidArgumentError, match="takes 26"):
        decide("{text}", {"a": choice("?", [f"o{n}" for n in range(27)])}, provider="transformers", model=llama)

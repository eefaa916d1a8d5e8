"""Judges compute many prompts at a time, in which the questions about a text share it: each probability is still that
of a plain forward pass of one prompt alone.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.ai.conversation import Image, Part, Request, Text, UserTurn
from penstock.ai.decisions.labels import judged, labels_of, spellings
from penstock.ai.decisions.questions import Question, choice, score, yes_no
from penstock.ai.decisions.transformers_decider import TransformersDecider
from penstock.ai.decisions.transformers_judge import Judge, Prompts, label_tokens
from penstock.ai.local import batch_runner
from penstock.ai.local.packed import DECODER_TYPES
from penstock.ai.local.transformers import TransformersProvider
from penstock.ai.provider import Deciding
from penstock.errors import QueryCancelledError, RequestRefusedError
from penstock.udf.retry import cancellable
from tests.ai.local_models import CHAT_TEMPLATE, images, save_llava
from tests.ai.test_transformers_packed import SHAPES
from tests.seeds.tiny_models import _byte_tokenizer

TEXTS = ["It broke. ", "", "x", "The handle came off,\n\n", "a much longer text than the others, with many more words"]
QUESTIONS = (
    ("refund", yes_no("Refund?")),
    ("topic", choice("Topic?", ["billing", "bug", "other"])),
    ("anger", score("Anger?", ["calm", "furious"])),
    ("again", yes_no("Refund?")),
)
WINDOW = 100
"""Less than the bytes of most prompts, and enough for two layers to see the text."""


def save_decoder(folder: Path, family: str, *added: str, template: str | None = CHAT_TEMPLATE) -> str:
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = _byte_tokenizer()
    tokenizer.chat_template = template
    tokenizer.add_tokens(list(added))
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.5, "n_positions": 512,
        "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    own = SHAPES.get(family, {})
    own |= {"sliding_window": WINDOW} if "sliding_window" in own else {}
    own |= {"use_bidirectional_attention": False} if family == "gemma3_text" else {}
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **shape | own)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def decider(folder: str, questions: Any = QUESTIONS, **options: Any) -> TransformersDecider:
    model = TransformersProvider().model(Deciding(folder, {"device": "cpu", **options}, questions=questions))
    assert isinstance(model, TransformersDecider)
    model.load()
    return model


def judge_of(model: TransformersDecider) -> Judge:
    assert isinstance(model.runtime, Judge)
    return model.runtime


def request(*parts: Part | str) -> Request:
    return Request((UserTurn(tuple(Text(each) if isinstance(each, str) else each for each in parts)),))


def answers(model: TransformersDecider, *requests: Request) -> list[list[float]]:
    found = model.generate(requests)
    return [json.loads(one[0].text) for one in found if not isinstance(one, Exception)]


def shares_of(question: Question, logits: Any, tokenizer: Any) -> list[float]:
    shares = logits.double().softmax(-1)
    firsts = label_tokens(question, lambda text: tokenizer.encode(text, add_special_tokens=False))
    assert len(firsts) == len(labels_of(question))
    assert len(firsts[0]) <= len(spellings(question, "A")) * 3
    sums = [shares[list(own)].sum().item() for own in firsts]
    return [each / sum(sums) for each in sums]


def one_by_one(folder: str, text: str) -> list[float]:
    """Return the probabilities of each question about a text by a plain forward pass of its prompt."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    found = []
    for _, question in QUESTIONS:
        prompt = judged(request(text), question).text
        assert prompt is not None
        if tokenizer.chat_template:
            prompt = f"<user>{prompt}<assistant>"
        with torch.inference_mode():
            logits = model(tokenizer(prompt, return_tensors="pt")["input_ids"]).logits[0, -1]
        found += shares_of(question, logits, tokenizer)
    return found


def check(folder: str, model: TransformersDecider) -> None:
    found = answers(model, *map(request, TEXTS))
    np.testing.assert_allclose(found, [one_by_one(folder, text) for text in TEXTS], atol=1e-5)
    assert np.std(found, axis=0).min() > 1e-4  # the texts matter


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, None])
@pytest.mark.parametrize("family", DECODER_TYPES)
def test_questions_share_their_text(family: str, template: str | None, tmp_path: Path) -> None:
    folder = save_decoder(tmp_path, family, template=template)
    model = decider(folder)
    check(folder, model)
    rows = judge_of(model).prompts([request(text) for text in TEXTS])
    for row, text in zip(rows, TEXTS, strict=True):
        assert isinstance(row, Prompts)
        assert row.shared >= len(text) + len("\n\nQuestion: ")


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_models_that_are_not_packed(family: str, tmp_path: Path) -> None:
    folder = save_decoder(tmp_path, family)
    check(folder, decider(folder, attn_implementation="eager"))


@pytest.mark.parametrize(
    ("joins", "num_shared"),
    [("a\n\nQuestion: R", 0), ("x\n\nQuestion: R", 4), ("words\n\nQuestion: Topic?", 5)],
)
def test_a_tokenizer_may_join_a_text_and_its_question(joins: str, num_shared: int, tmp_path: Path) -> None:
    """The first token is seen when the model loads, the second in the row that has it. The third needs the text to end
    with its first question.
    """
    folder = save_decoder(tmp_path, "qwen2", joins)
    model = decider(folder)
    rows = judge_of(model).prompts([request(text) for text in TEXTS])
    assert sum(isinstance(row, Prompts) and row.shared > 0 for row in rows) == num_shared
    if num_shared < 5:
        check(folder, model)


def test_questions_about_an_image(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = save_llava(tmp_path)
    asked = (("a", yes_no("?")), ("b", choice("?", ["red", "blue"])))
    requests = []
    for pixels in images()[:2]:
        file = io.BytesIO()
        from PIL import Image as Pillow

        Pillow.fromarray(pixels).save(file, "PNG")
        requests.append(request(Image(file.getvalue(), "image/png"), "hm"))
    found = answers(decider(folder, asked), requests[0], request("no image"), requests[1])
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    for pixels, answer in zip(images()[:2], (found[0], found[2]), strict=True):
        expected = []
        for _, question in asked:
            last = judged(request("hm"), question).text
            assert last is not None
            prompt = f"<user><image>{last}<assistant>"
            inputs = processor(text=[prompt], images=[pixels], return_tensors="pt")
            with torch.inference_mode():
                expected += shares_of(question, model(**inputs).logits[0, -1], processor.tokenizer)
        np.testing.assert_allclose(answer, expected, atol=1e-5)


def test_a_text_that_is_too_long_is_an_error_of_its_row(tmp_path: Path) -> None:
    model = decider(save_decoder(tmp_path, "llama"))
    found = model.generate([request("x"), request("x" * 430), request("x" * 600)])
    assert [type(each) for each in found] == [list, RequestRefusedError, RequestRefusedError]
    assert "there is room for 511" in str(found[1])


def test_the_tokens_of_a_row_are_those_of_its_prompts(tmp_path: Path) -> None:
    folder = save_decoder(tmp_path, "llama")
    shared, alone = (
        model.generate([request("It broke")])[0]
        for model in (decider(folder), decider(folder, attn_implementation="eager"))
    )
    assert isinstance(shared, list)
    assert isinstance(alone, list)
    assert shared[0].input_tokens == alone[0].input_tokens > 4 * len("It broke")


def test_a_stopped_query_ends_between_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = decider(save_decoder(tmp_path, "llama"))
    monkeypatch.setattr(judge_of(model)._runner, "max_tokens", 1)
    num_batches = len(batch_runner.batches_by_length(np.ones(5), 1))
    asked = []

    def is_cancelled() -> bool:
        asked.append(1)
        return len(asked) == 2

    with cancellable(is_cancelled), pytest.raises(QueryCancelledError):
        model.generate([request(text) for text in TEXTS])
    assert len(asked) < num_batches

"""Texts end to end in one row: every architecture gives what sentence-transformers and transformers give."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.ai.local import compiled, text_encoder
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.packed import PACKED_TYPES, batches_of
from penstock.ai.local.text_classifier import Entailment, OwnLabels, SequenceModel
from penstock.ai.local.transformers import TransformersProvider
from penstock.ai.provider import TextClassification
from tests.ai.local_models import TEXTS, save_entailment
from tests.ai.test_transformers_text import by_sentence_transformers, embed, embedder
from tests.seeds.tiny_models import _word_tokenizer

WINDOW = 8
"""Less than the words of the longest of ``TEXTS``."""

GROUPED = {"num_key_value_heads": 1, "head_dim": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "modernbert": {"local_attention": WINDOW, "global_attn_every_n_layers": 2},
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED,
    "mistral": GROUPED | {"sliding_window": WINDOW},
    "gemma3_text": GROUPED
    | {
        "use_bidirectional_attention": True,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def tiny_config(family: str, **settings: Any) -> Any:
    from transformers import AutoConfig

    tokenizer = _word_tokenizer(TEXTS)
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.5, "type_vocab_size": 2,
    }  # fmt: skip
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    known = {"pad_token_id": tokenizer.pad_token_id, **ends}
    return AutoConfig.for_model(family, **shape | known | SHAPES.get(family, {}) | settings)


def save_tiny(folder: Path, family: str, pooling: str = "mean") -> str:
    """Write a model of a family as sentence-transformers does."""
    from transformers import AutoModel

    torch.manual_seed(0)
    AutoModel.from_config(tiny_config(family)).save_pretrained(folder)
    _word_tokenizer(TEXTS).save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    settings = {"word_embedding_dimension": 16, "pooling_mode": pooling}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.fixture
def always_by_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_encoder, "load_bert", lambda *_: None)


@pytest.mark.parametrize("family", PACKED_TYPES)
@pytest.mark.usefixtures("always_by_transformers")
def test_packed_vectors_are_what_sentence_transformers_gives(family: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path, family, "lasttoken" if family in ("qwen3", "mistral") else "mean")
    encoder = embedder(model)
    encoder.load()
    assert encoder.runtime._network._packed is not None  # type: ignore[union-attr]
    expected = by_sentence_transformers(TEXTS, model, normalize_embeddings=True)
    assert (encoder.embed(TEXTS) * expected).sum(1).min() > 0.9999


@pytest.mark.parametrize("family", ["mpnet", "albert"])
def test_models_that_are_not_packed_are_padded(family: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path, family)
    expected = by_sentence_transformers(TEXTS, model, normalize_embeddings=True)
    assert (embed(TEXTS, model) * expected).sum(1).min() > 0.9999


def test_explain_says_how_a_model_runs(tmp_path: Path) -> None:
    texts = ps.from_pydict({"text": TEXTS})

    def plan(model: str, **options: Any) -> str:
        written = io.StringIO()
        texts.select(ps.col("text").embed_text(model=model, device="cpu", **options)).explain(file=written)
        return written.getvalue()

    assert "packed batches" in plan(save_tiny(tmp_path / "packed", "modernbert"))
    assert "padded batches" in plan(save_tiny(tmp_path / "biased", "mpnet"))
    assert "padded batches" in plan(str(tmp_path / "packed"), attn_implementation="eager")


@pytest.mark.parametrize(
    ("dtype", "of_the_weights", "kind"),
    [
        (None, "float32", "packed batches"),
        ("float32", "bfloat16", "padded batches"),
        ("auto", "bfloat16", "packed batches"),
        ("auto", "float32", "padded batches"),
    ],
)
def test_a_gpu_packs_16_bits(dtype: str | None, of_the_weights: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "dtype": of_the_weights}))
    assert batches_of(Checkpoint(str(tmp_path), device="cuda", dtype=dtype)) == kind


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "qwen3"])
def test_classifiers_on_packed_models(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    names = {0: "good", 1: "bad", 2: "odd"}
    config = tiny_config(family, id2label=names, label2id={name: number for number, name in names.items()})
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    _word_tokenizer(TEXTS).save_pretrained(tmp_path)
    task = TextClassification(str(tmp_path), {"device": "cpu"}, labels=("bad", "good", "odd"))
    model = TransformersProvider().model(task)
    assert isinstance(model, OwnLabels)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        logits = [whole(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
    expected = torch.stack(logits).softmax(1)[:, [1, 0, 2]].numpy()
    np.testing.assert_allclose(model.scores(TEXTS), expected, atol=1e-5)
    assert model.runtime._packed is not None


def test_packed_pairs_keep_their_segments(tmp_path: Path) -> None:
    folder = save_entailment(tmp_path)
    scores = []
    for options in ({}, {"attn_implementation": "eager"}):
        task = TextClassification(folder, {"device": "cpu", **options}, labels=("joy", "boiling"))
        model = TransformersProvider().model(task)
        assert isinstance(model, Entailment)
        scores.append(model.scores([text for text in TEXTS if text]))
        assert isinstance(model.runtime, SequenceModel)
    np.testing.assert_allclose(*scores, atol=1e-5)


class Stack(torch.nn.Module):
    """A model with repeated layers, without the seconds that transformers' code takes to compile."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@torch.inference_mode()
def test_a_compiled_model_takes_over_while_batches_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "PAYS_AFTER_S", 0)
    monkeypatch.setattr(compiled, "BACKEND", "eager")  # the slow part, a compiler, changes nothing here
    model, batches = Stack(), [torch.rand(rows, 4) for rows in (3, 5, 2)]
    later = compiled.CompiledLater(model)
    for batch in batches * 2:
        torch.testing.assert_close(later(x=batch), model(batch))
    assert later.thread is not None
    later.thread.join()
    assert later._compiled is not None
    assert later._compiled.layers[0].weight is model.layers[0].weight
    for batch in batches:
        torch.testing.assert_close(later(x=batch), model(batch))


@pytest.mark.usefixtures("always_by_transformers")
def test_text_models_compile_if_they_shall(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "electra")
    for compiles in (True, False):
        encoder = embedder(model, compile=compiles)
        assert isinstance(encoder.runtime._network._packed._encode, compiled.CompiledLater) is compiles  # type: ignore[union-attr]


def test_modules_run_as_they_are_while_another_thread_traces() -> None:
    """While torch.fx traces, it replaces the call of every module: a thread that called one then got its NameError."""
    inner, begun, ends = torch.nn.Linear(2, 2), threading.Event(), list[bool]()

    class Slow(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            begun.set()
            ends.append(called.wait(0.5))  # the other thread waits for the end of the trace
            return x + 1

    called = threading.Event()

    def trace() -> None:
        with compiled.tracing_alone():
            torch.fx.symbolic_trace(Slow())

    thread = threading.Thread(target=trace)
    thread.start()
    begun.wait()
    with compiled.CALLING_MODULES:
        inner(torch.zeros(1, 2))
        called.set()
    thread.join()
    assert ends == [False]


@torch.inference_mode()
def test_a_model_that_cannot_be_compiled_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(compiled, "PAYS_AFTER_S", 0)
    monkeypatch.setattr(compiled, "BACKEND", "no-such-compiler")
    model, batch = Stack(), torch.rand(3, 4)
    later = compiled.CompiledLater(model)
    later(x=batch)
    assert later.thread is not None
    later.thread.join()
    torch.testing.assert_close(later(x=batch), model(batch))
    assert "could not be compiled" in caplog.text

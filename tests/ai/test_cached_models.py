"""Results of batch models are cached, and a model whose results are all cached is not loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.ai.local import bert
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.weights import fingerprint
from penstock.ai.provider import Classifier, Embedder, Generation, Model, Prompter, Request
from penstock.functions import classify_image, classify_text, embed_image, embed_text, prompt
from tests.ai.local_models import save_bert, save_clip, save_llama


class Counting(ps.Provider):
    """Models that write down what they are given, and that they were loaded, on disk: each runs in a copy."""

    name = "counting"

    def __init__(self, folder: Path, *, has_identity: bool = True, is_certain: bool = True) -> None:
        self.folder, self.has_identity, self.is_certain = folder, has_identity, is_certain

    def model(self, task: Any) -> Model:
        kind = {"prompt": Echo, "embed_text": Lengths, "classify_text": FirstLabel}[task.function]
        found = kind(self, task)
        found.cache = task.settings.cache
        return found

    def log(self, what: str) -> None:
        with open(self.folder / "log", "a") as file:
            file.write(what + "\n")

    @property
    def logged(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []


class Logged(Model):
    def __init__(self, provider: Counting, task: Any) -> None:
        self.provider, self.labels = provider, getattr(task, "labels", ())

    def load(self) -> None:
        self.provider.log("load")

    def identity(self) -> dict[str, Any] | None:
        return {"name": type(self).__name__, "labels": self.labels} if self.provider.has_identity else None


class Lengths(Logged, Embedder):
    dimensions = 2

    def embed(self, inputs: Sequence[str]) -> Any:
        for text in inputs:
            self.provider.log(text)
        return [[len(text), 0.5] for text in inputs]


class FirstLabel(Logged, Classifier):
    def classify(self, inputs: Sequence[str]) -> list[str]:
        for text in inputs:
            self.provider.log(text)
        return ["what?" if text == "odd" else self.labels[0] for text in inputs]


class Echo(Logged, Prompter):
    def generate(self, request: Sequence[Request]) -> list[Any]:
        for each in request:
            self.provider.log(each.text or "")
        return [ValueError("no") if each.text == "bad" else [Generation(each.text or "")] for each in request]

    def is_certain(self, request: Request) -> bool:
        return self.provider.is_certain


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Any:
    with ps.config(cache_dir=str(tmp_path / "cache")):
        yield


def column(expression: ps.Expression, values: list[Any]) -> list[Any]:
    found: list[Any] = ps.from_pydict({"x": values}).select(expression.alias("y")).to_pydict()["y"]
    return found


def test_vectors_are_cached_and_the_model_is_not_loaded_again(tmp_path: Path) -> None:
    provider = Counting(tmp_path)
    first = column(embed_text(ps.col("x"), provider=provider), ["a", None, "bb", "a"])
    assert sorted(provider.logged) == ["a", "bb", "load"]
    second = column(embed_text(ps.col("x"), provider=provider), ["bb", "a", None])
    assert sorted(provider.logged) == ["a", "bb", "load"]
    np.testing.assert_array_equal(second[0], first[2])
    np.testing.assert_array_equal(second[1], first[0])
    assert second[2] is None
    column(embed_text(ps.col("x"), provider=provider), ["a", "ccc"])
    assert provider.logged[-2:] == ["load", "ccc"]


def test_valid_labels_are_cached(tmp_path: Path) -> None:
    provider = Counting(tmp_path)
    pick = classify_text(ps.col("x"), ["good", "bad"], provider=provider, on_error="null")
    for _ in range(2):
        assert column(pick, ["a", "odd", "odd", "b"]) == ["good", None, None, "good"]
    assert provider.logged.count("a") == 1
    assert provider.logged.count("odd") == 2
    column(classify_text(ps.col("x"), ["bad", "good"], provider=provider), ["a"])
    assert provider.logged.count("a") == 2


def test_answers_are_cached_except_failures(tmp_path: Path) -> None:
    provider = Counting(tmp_path)
    for _ in range(2):
        answers = column(prompt(ps.col("x"), provider=provider, on_error="null"), ["a", "a", "bad", None])
        assert answers == ["a", "a", None, None]
    assert provider.logged == ["load", "a", "bad", "load", "bad"]


def test_samples_are_as_many_as_there_are_rows(tmp_path: Path) -> None:
    provider = Counting(tmp_path, is_certain=False)
    column(prompt(ps.col("x"), provider=provider), ["a", "a", "b"])
    column(prompt(ps.col("x"), provider=provider), ["a", "a", "a", "b"])
    assert provider.logged == ["load", "a", "a", "b", "load", "a"]


def test_equal_prompts_of_a_query_are_samples_too(tmp_path: Path) -> None:
    provider = Counting(tmp_path, is_certain=False)
    for _ in range(2):
        column(prompt(ps.col("x"), provider=provider).concat(prompt(ps.col("x"), provider=provider)), ["a"] * 3)
        assert provider.logged.count("a") == 6


@pytest.mark.parametrize("how", ["cache=False", "no identity", "no ledger"])
def test_nothing_is_cached_without_ledger_identity_or_permission(tmp_path: Path, how: str) -> None:
    provider = Counting(tmp_path, has_identity=how != "no identity")
    options = {"cache": False} if how == "cache=False" else {}
    with ps.config(cache_dir="" if how == "no ledger" else str(tmp_path / "cache")):
        for _ in range(2):
            column(embed_text(ps.col("x"), provider=provider, **options), ["a"])
    assert provider.logged == ["load", "a"] * 2


# --- models of transformers -------------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that were loaded."""
    names: list[str] = []

    def noting(load: Callable[..., Any]) -> Callable[..., Any]:
        def noted(checkpoint: Checkpoint, *args: Any) -> Any:
            names.append(checkpoint.name)
            return load(checkpoint, *args)

        return noted

    monkeypatch.setattr(Checkpoint, "load", noting(Checkpoint.load))
    monkeypatch.setattr(bert, "read_weights", noting(bert.read_weights))
    return names


def test_texts_are_embedded_once(tmp_path: Path, loads: list[str]) -> None:
    model = save_bert(tmp_path / "bert")
    first = column(embed_text(ps.col("x"), model=model), ["a joy", "it broke"])
    again = column(embed_text(ps.col("x"), model=model), ["it broke", "a joy"])
    np.testing.assert_array_equal(np.stack(again), np.stack(first[::-1]))
    assert loads == [model]
    column(embed_text(ps.col("x"), model=model, normalize=True), ["a joy"])
    column(embed_text(ps.col("x"), model=model, dimensions=4), ["a joy"])
    column(embed_text(ps.col("x"), model=model, dtype="bfloat16"), ["a joy"])
    assert len(loads) == 4


def test_local_answers_are_cached_by_sampling_options(tmp_path: Path, loads: list[str]) -> None:
    model = save_llama(tmp_path / "llama")

    def ask(texts: list[str], **options: Any) -> list[Any]:
        return column(prompt(ps.col("x"), provider="transformers", model=model, max_tokens=4, **options), texts)

    greedy = ask(["Hello", "x", "Hello"], temperature=0)
    assert ask(["x", "Hello"], temperature=0) == [greedy[1], greedy[0]]
    assert len(loads) == 1
    (first,), (second,) = ask(["x"], temperature=0, usage=True), ask(["x"], temperature=0, usage=True)
    assert second == first
    assert len(loads) == 1
    sampled = ask(["Hello"] * 3, temperature=5.0)
    assert sorted(ask(["Hello"] * 3, temperature=5.0)) == sorted(sampled)
    assert len(loads) == 2
    ask(["Hello"] * 4, temperature=5.0)
    ask(["x"], temperature=0, stop="q")
    assert len(loads) == 4


def test_images_are_embedded_and_labelled_once(tmp_path: Path, loads: list[str]) -> None:
    model = save_clip(tmp_path / "clip")
    black, white = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
    for images in ([black, white], [white, black], [black.reshape(4, 16, 3)]):
        column(embed_image(ps.col("x"), model=model), images)
    assert len(loads) == 2  # an image of other shape is another one
    labels = ["cat", "dog"]
    first = column(classify_image(ps.col("x"), labels, model=model), [black, white])
    assert column(classify_image(ps.col("x"), labels, model=model), [white, black]) == first[::-1]
    assert len(loads) == 3
    column(classify_image(ps.col("x"), labels[::-1], model=model), [black])
    assert len(loads) == 4


def test_other_weights_are_another_model(tmp_path: Path) -> None:
    model = save_bert(tmp_path / "bert")
    before = fingerprint(model)
    assert fingerprint(model) == before
    (tmp_path / "bert").rename(tmp_path / "moved")
    assert fingerprint(str(tmp_path / "moved")) == before
    config = tmp_path / "moved" / "config.json"
    config.write_text(config.read_text().replace('"gelu"', '"relu"'))
    assert fingerprint(str(tmp_path / "moved")) != before


def test_large_files_count_by_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(2**20 + 1))
    os.utime(weights, (1000, 1000))
    before = fingerprint(str(tmp_path))
    os.utime(weights, (2000, 2000))
    assert fingerprint(str(tmp_path)) != before


def test_a_run_of_which_all_is_known_does_not_import_torch(tmp_path: Path) -> None:
    model = save_bert(tmp_path / "bert")
    script = f"""
import sys, penstock as ps
from penstock.functions import embed_text
ps.set_config(cache_dir={str(tmp_path / "cache")!r}, progress=False)
print(ps.from_pydict({{"x": ["a joy"]}}).select(embed_text(ps.col("x"), model={model!r})).to_pydict()["x"][0].shape)
print("torch" in sys.modules)
"""
    column(embed_text(ps.col("x"), model=model), ["a joy"])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["(16,)", "False"], done.stderr

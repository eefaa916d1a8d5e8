"""The parameters of tasks are those of the functions, and ``help`` describes every option."""

from __future__ import annotations

import inspect
import pydoc
import re
from functools import partial
from typing import Any, get_type_hints

import pytest

import penstock as ps
import penstock.functions as functions
from penstock.ai import provider
from penstock.ai.local.generation import PROMPT_OPTIONS
from penstock.ai.local.local_model import OPTIONS
from penstock.ai.local.transformers import EMBEDDING_OPTIONS, TEXT_OPTIONS
from penstock.ai.option_types import CALL_OPTIONS, AskOptions, DecisionOptions, PromptOptions, SemanticJoinOptions
from penstock.ai.provider import (
    ImageClassification,
    ImageEmbedding,
    ModelTask,
    Prompting,
    TextClassification,
    TextEmbedding,
    TextRelevance,
)
from penstock.errors import InvalidArgumentError
from penstock.expr.nodes import UdfCall
from penstock.functions import classify_text, embed_text, prompt

TASKS = (Prompting, TextEmbedding, ImageEmbedding, TextClassification, ImageClassification, TextRelevance)


@pytest.mark.parametrize("task", TASKS)
def test_parameters_are_those_of_the_function(task: type[ModelTask]) -> None:
    taken = set(inspect.signature(getattr(functions, task.function)).parameters)
    assert {"provider", "model", "options", *task.parameters} == taken


LOCAL = {
    "prompt": PROMPT_OPTIONS,
    "embed_text": EMBEDDING_OPTIONS,
    "embed_image": (*OPTIONS, "normalize"),
    "classify_text": (*TEXT_OPTIONS, "hypothesis_template"),
    "classify_image": (*OPTIONS, "hypothesis_template"),
    "relevance": TEXT_OPTIONS,
}
REMOTE = {"embed_text": ("openai", "google"), "embed_image": (), "relevance": ()}


@pytest.mark.parametrize("name", LOCAL)
def test_help_has_a_line_for_each_option(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = getattr(functions, name)
    taken = {*inspect.signature(function).parameters, *CALL_OPTIONS, *LOCAL[name]} - {"options"}

    def collect(_: str, known: list[str]) -> str:
        taken.update(known)
        return ""

    monkeypatch.setattr(provider, "did_you_mean", collect)
    args = [ps.col("x"), *[["a", "b"]] * ("labels" in taken)]
    for each in REMOTE.get(name, ("openai", "anthropic", "google", "ollama", "vllm")):
        monkeypatch.setenv(f"{each.upper()}_API_KEY", "none")
        for options in ({}, {"use_chat_completions": True}):  # refused by some, in the same way
            with pytest.raises(InvalidArgumentError, match=rf"does not take .*help\(ps.{name}\) lists the options"):
                function(*args, provider=each, model="m", **options, no_such_option=1)
    lines = [line.split(maxsplit=1) for line in pydoc.render_doc(function, renderer=pydoc.plaintext).split("\n")[3:]]
    described = {words[0] for words in lines if len(words) == 2}
    assert taken - described == set()
    assert max(map(len, (function.__doc__ or "").split("\n"))) <= 120


VERBS = {
    "ask": (functions.ask, AskOptions),
    "decide": (functions.decide, DecisionOptions),
    "semantic_agg": (ps.DataFrame.semantic_agg, PromptOptions),
    "semantic_top_k": (ps.DataFrame.semantic_top_k, PromptOptions),
    "semantic_join": (ps.DataFrame.semantic_join, SemanticJoinOptions),
}


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb_has_a_line_for_each_parameter_and_option(name: str) -> None:
    function, options = VERBS[name]
    taken = {*inspect.signature(function).parameters, *get_type_hints(options)} - {"self", "options"}
    lines = [line.split(maxsplit=1) for line in (inspect.getdoc(function) or "").split("\n") if line.startswith("  ")]
    described = [words[0] for words in lines if len(words) == 2]
    assert sorted(described) == sorted(taken)
    assert {"cheap", "precision", "recall", "confidence"} <= taken or name not in ("ask", "semantic_join")


@pytest.mark.parametrize("model", [["a", "b"], 5, {"a": 1}], ids=str)
@pytest.mark.parametrize("name", ["openai", "anthropic", "transformers"])
def test_a_model_is_one_name(name: str, model: Any) -> None:
    words = re.escape(f"model={model!r} is not the name of a model")
    for call in (prompt, partial(classify_text, labels=["x", "y"]), embed_text):
        with pytest.raises(InvalidArgumentError, match=words):
            call(ps.col("t"), provider=name, model=model)


def test_concurrency_limits_the_requests_to_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    call = prompt("{x}", model="gpt-5", concurrency=3)._node
    assert isinstance(call, UdfCall)
    assert call.udf.resources.max_workers == 3
    with pytest.raises(InvalidArgumentError, match="max_concurrency= means concurrency="):
        prompt("{x}", model="gpt-5", concurrency=3, max_concurrency=4)
    with pytest.raises(InvalidArgumentError, match="concurrency has no effect with batch_api=True"):
        prompt("{x}", model="gpt-5", concurrency=3, batch_api=True)

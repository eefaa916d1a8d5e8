"""The model, the system message and the options of ``prompt`` as expressions: each row has its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.ai.conversation import Request
from penstock.ai.provider import Model, ModelTask, Prompter, check_options
from penstock.cost.budget import spending
from penstock.errors import InvalidArgumentError, TypeMismatchError, UdfError
from penstock.functions import classify_text, embed_text, prompt
from penstock.testing import ModelServer

ROWS = {
    "q": ["a", "b", "c", None],
    "m": ["m1", None, "m2", "m3"],
    "s": ["Be short.", None, "Rhyme.", "x"],
    "t": [0.5, None, 1.0, 0.1],
    "k": [5, 6, None, 7],
}
COLUMNS = {
    "model": ps.col("m"),
    "system_message": ps.col("s"),
    "temperature": ps.col("t") / 2,
    "max_output_tokens": ps.col("k"),
}


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    ps.set_provider("google", base_url=model_server.google_url, api_key="none")
    ps.set_provider("anthropic", base_url=model_server.anthropic_url, api_key="none")
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="none")
    return model_server


def openai(body: Mapping[str, Any]) -> tuple[Any, ...]:
    text, system = body["input"], body.get("instructions")
    return text, body["model"], system, body.get("temperature"), body.get("max_output_tokens")


def anthropic(body: Mapping[str, Any]) -> tuple[Any, ...]:
    text, system = body["messages"][0]["content"], body.get("system")
    return text, body["model"], system, body.get("temperature"), body["max_tokens"]


def google(body: Mapping[str, Any]) -> tuple[Any, ...]:
    config, system = body.get("generationConfig", {}), body.get("systemInstruction")
    text = body["contents"][0]["parts"][0]["text"]
    return text, system and system["parts"][0]["text"], config.get("temperature"), config.get("maxOutputTokens")


@pytest.mark.parametrize("provider", [openai, anthropic, google])
def test_each_row_has_its_own_options_and_null_is_the_default(
    server: ModelServer, tmp_path: Path, provider: Any
) -> None:
    name = provider.__name__
    column = prompt(ps.col("q"), provider=name, **COLUMNS)
    df = ps.from_pydict(ROWS).with_column("a", column)
    with ps.config(cache_dir=str(tmp_path)):
        assert df.to_pydict()["a"] == ["a", "b", "c", None]
        sent = sorted(provider(request.body) for request in server.requests)
        assert df.to_pydict()["a"] == ["a", "b", "c", None]
    assert len(server.requests) == 3, "the second run is cached"
    if name == "google":
        assert sent == [("a", "Be short.", 0.25, 5), ("b", None, None, 6), ("c", "Rhyme.", 0.5, None)]
        paths = sorted(request.path.rpartition("/")[2] for request in server.requests)
        assert paths == ["gemini-3.8-flash:generateContent", "m1:generateContent", "m2:generateContent"]
    else:
        model, limit = ("gpt-5-mini", None) if name == "openai" else ("claude-haiku-5-5", 16_384)
        expected = [("a", "m1", "Be short.", 0.25, 5), ("b", model, None, None, 6), ("c", "m2", "Rhyme.", 0.5, limit)]
        assert sent == expected
    if name == "anthropic":  # the version that has temperatures
        assert {request.headers["anthropic-version"] for request in server.requests} == {"2023-06-01"}


def test_a_shared_option_stays_beside_those_of_rows(server: ModelServer) -> None:
    for provider in ("openai", "anthropic", "google"):
        column = prompt(ps.col("q"), model="m", provider=provider, max_output_tokens=9, temperature=ps.col("t"))
        ps.from_pydict({"q": ["a"], "t": [0.5]}).select(column).collect()
        body = server.requests[-1].body
        limit = body.get("max_output_tokens") or body.get("max_tokens") or body["generationConfig"]["maxOutputTokens"]
        assert limit == 9


def test_the_answers_of_different_options_are_cached_separately(server: ModelServer, tmp_path: Path) -> None:
    rows = {"q": ["same"] * 4, "t": [0.0, 0.0, 1.0, 1.0], "m": ["m1", "m2", "m1", "m2"]}
    with ps.config(cache_dir=str(tmp_path)):
        for _ in range(2):
            ps.from_pydict(rows).select(prompt(ps.col("q"), model=ps.col("m"), temperature=ps.col("t"))).collect()
            ps.from_pydict(rows).select(prompt(ps.col("q"), model="m1", temperature=ps.col("t"))).collect()
    called = sorted((request.body["model"], request.body["temperature"]) for request in server.requests)
    assert called == [("m1", 0.0), ("m1", 1.0), ("m1", 1.0), ("m2", 0.0), ("m2", 1.0)]


def test_a_bad_option_is_the_error_of_its_row(server: ModelServer) -> None:
    df = ps.from_pydict({"q": ["a", "b"], "k": [0, 5]})
    df = df.select(prompt(ps.col("q"), max_output_tokens=ps.col("k"), provider="google", on_error="null")).collect()
    assert df.to_pydict()["q"] == [None, "b"]
    assert "max_output_tokens must be a whole number of 1 or more; got 0" in df.errors().to_pydict()["message"][0]


def test_the_cost_of_the_models_of_rows_is_estimated(server: ModelServer) -> None:
    df = ps.from_pydict({"q": ["a", "b"], "m": ["gpt-5", "gpt-5-mini"]})
    cost = df.select(prompt(ps.col("q"), model=ps.col("m"))).plan_cost(sample=2)
    assert {model.model: model.calls.middle for model in cost.models} == {"gpt-5": 1, "gpt-5-mini": 1}
    assert "nor in the dollars" not in str(cost)


def test_a_model_without_a_price_is_refused_under_a_budget(server: ModelServer) -> None:
    df = ps.from_pydict({"q": ["a"], "m": ["no-such-model"]}).select(prompt(ps.col("q"), model=ps.col("m")))
    with spending(1.0), pytest.raises(UdfError, match="no-such-model"):
        df.collect()
    assert not server.requests


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": ps.col("t")}, r"timeout takes one value for all rows; got the expression col\(t\)"),
        ({"provider": ps.col("t")}, "provider takes one value for all rows"),
        ({"use_chat_completions": ps.col("t")}, "takes one use_chat_completions for all rows.*These may differ"),
        ({"stop": ps.col("t")}, "does not take 'stop'; set use_chat_completions=True"),
        ({"temprature": ps.col("t")}, "does not take 'temprature'. Did you mean 'temperature'"),
    ],
    ids=str,
)
def test_what_is_not_per_row_says_so(server: ModelServer, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        prompt(ps.col("q"), **options)
    name = next(iter(options))
    for function in (
        lambda: classify_text(ps.col("q"), ["a", "b"], **options),
        lambda: embed_text(ps.col("q"), **options),
    ):
        with pytest.raises(InvalidArgumentError, match=f"{name} takes one value for all rows"):
            function()


@pytest.mark.parametrize("name", ["model", "system_message"])
def test_models_and_system_messages_are_texts(server: ModelServer, name: str) -> None:
    with pytest.raises(TypeMismatchError, match=f"prompt: {name} takes text; the expression has type float64"):
        ps.from_pydict(ROWS).select(prompt(ps.col("q"), **{name: ps.col("t")}))


# --- providers of one's own, and models on this machine ---------------------------------------------------------------


class Describing(ps.Provider):
    name = "describing"

    def __init__(self, kind: type[Prompter]) -> None:
        self.kind = kind

    def model(self, task: ModelTask) -> Model:
        check_options(task, self.name, ["loud"], ["loud"] if self.kind.takes_options else [])
        return self.kind()


def described(request: Request) -> str:
    return f"{request.text} {request.system} {dict(request.options or {})}"


class Batched(Prompter):
    takes_options = True

    def generate(self, requests: Sequence[Request]) -> list[Any]:
        return [described(request) for request in requests]


class Plain(Prompter):
    async def generate(self, request: Request) -> str:
        return described(request)


def test_a_model_that_takes_batches() -> None:
    df = ps.from_pydict({"q": ["a", "b"], "s": ["x", None], "l": [True, None]})
    column = prompt(ps.col("q"), provider=Describing(Batched), system_message=ps.col("s"), loud=ps.col("l"))
    assert df.select(column).to_pydict()["q"] == ["a x {'loud': True}", "b None {}"]
    with pytest.raises(InvalidArgumentError, match="model takes one value for all rows with provider 'describing'"):
        prompt(ps.col("q"), provider=Describing(Batched), model=ps.col("m"))


def test_a_model_without_options_of_rows_takes_system_messages() -> None:
    df = ps.from_pydict({"q": ["a", "b"], "s": ["x", None]})
    column = prompt(ps.col("q"), provider=Describing(Plain), system_message=ps.col("s"))
    assert df.select(column).to_pydict()["q"] == ["a x {}", "b None {}"]
    with pytest.raises(InvalidArgumentError, match="takes one loud for all rows, not an expression"):
        prompt(ps.col("q"), provider=Describing(Plain), loud=ps.col("l"))

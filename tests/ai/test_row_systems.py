"""The system message of ``prompt`` as an expression: each row has its own. Its other options are the same for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.ai.conversation import Request
from penstock.ai.provider import Model, ModelTask, Prompter, check_options
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.functions import classify_text, embed_text, prompt
from penstock.testing import ModelServer

ROWS = {"q": ["a", "b", "c", None], "s": ["Be short.", None, "Rhyme.", "x"], "t": [0.5, None, 1.0, 0.1]}


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    ps.set_provider("google", base_url=model_server.google_url, api_key="none")
    ps.set_provider("anthropic", base_url=model_server.anthropic_url, api_key="none")
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="none")
    return model_server


def openai(body: Mapping[str, Any]) -> tuple[Any, ...]:
    return body["input"], body.get("instructions"), body["temperature"]


def anthropic(body: Mapping[str, Any]) -> tuple[Any, ...]:
    return body["messages"][0]["content"], body.get("system"), body["temperature"]


def google(body: Mapping[str, Any]) -> tuple[Any, ...]:
    system = body.get("systemInstruction")
    text = body["contents"][0]["parts"][0]["text"]
    return text, system and system["parts"][0]["text"], body["generationConfig"]["temperature"]


@pytest.mark.parametrize("provider", [openai, anthropic, google])
def test_each_row_has_its_own_system_message_and_null_is_none(
    server: ModelServer, tmp_path: Path, provider: Any
) -> None:
    name = provider.__name__
    column = prompt(ps.col("q"), provider=name, system_message=ps.col("s"), temperature=0.25)
    df = ps.from_pydict(ROWS).with_column("a", column)
    with ps.config(cache_dir=str(tmp_path)):
        assert df.to_pydict()["a"] == ["a", "b", "c", None]
        sent = {provider(request.body) for request in server.requests}
        assert df.to_pydict()["a"] == ["a", "b", "c", None]
    assert len(server.requests) == 3, "the second run is cached"
    assert sent == {("a", "Be short.", 0.25), ("b", None, 0.25), ("c", "Rhyme.", 0.25)}
    if name == "anthropic":  # the version that has temperatures
        assert {request.headers["anthropic-version"] for request in server.requests} == {"2023-06-01"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"timeout": ps.col("t")},
            r"timeout takes one value for all rows; got the expression col\(t\).*sampling_params",
        ),
        ({"provider": ps.col("t")}, "provider takes one value for all rows"),
        ({"temperature": ps.col("t")}, "temperature takes one value for all rows"),
        ({"model": ps.col("t")}, "model takes one value for all rows"),
    ],
    ids=str,
)
def test_what_is_not_per_row_says_so(server: ModelServer, options: dict[str, Any], words: str) -> None:
    name = next(iter(options))
    with pytest.raises(InvalidArgumentError, match=words):
        prompt(ps.col("q"), **options)
    for function in (
        lambda: classify_text(ps.col("q"), ["a", "b"], **options),
        lambda: embed_text(ps.col("q"), **options),
    ):
        with pytest.raises(InvalidArgumentError, match=f"{name} takes one value for all rows"):
            function()


def test_system_messages_are_texts(server: ModelServer) -> None:
    with pytest.raises(TypeMismatchError, match="prompt: system_message takes text; the expression has type float64"):
        ps.from_pydict(ROWS).select(prompt(ps.col("q"), system_message=ps.col("t")))


# --- providers of one's own, and models on this machine ---------------------------------------------------------------


class Describing(ps.Provider):
    name = "describing"

    def __init__(self, kind: type[Prompter]) -> None:
        self.kind = kind

    def model(self, task: ModelTask) -> Model:
        check_options(task, self.name, [])
        return self.kind()


def described(request: Request) -> str:
    return f"{request.text} {request.system}"


class Batched(Prompter):
    def generate(self, requests: Sequence[Request]) -> list[Any]:
        return [described(request) for request in requests]


class Plain(Prompter):
    async def generate(self, request: Request) -> str:
        return described(request)


@pytest.mark.parametrize("kind", [Batched, Plain])
def test_any_model_takes_a_system_message_of_each_row(kind: type[Prompter]) -> None:
    df = ps.from_pydict({"q": ["a", "b"], "s": ["x", None]})
    column = prompt(ps.col("q"), provider=Describing(kind), system_message=ps.col("s"))
    assert df.select(column).to_pydict()["q"] == ["a x", "b None"]

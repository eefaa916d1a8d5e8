"""Log-probabilities of the tokens of remote answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

import penstock as ps
from penstock.ai.provider import Prompting
from penstock.ai.providers.chat_completions import CompletionsWire
from penstock.errors import InvalidArgumentError
from penstock.functions import prompt
from penstock.testing import ModelServer


@pytest.fixture(params=[False, True], ids=["responses", "chat"])
def options(request: pytest.FixtureRequest, model_server: ModelServer) -> dict[str, Any]:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    return {"model": "gpt-5", "logprobs": True, "use_chat_completions": request.param}


def answers(texts: list[str | None], *args: Any, **options: Any) -> list[Any]:
    return ps.from_pydict({"q": texts}).select(prompt(ps.col("q"), *args, **options)).to_pydict()["q"]  # type: ignore[no-any-return]


def test_each_token_has_a_log_probability(options: dict[str, Any], model_server: ModelServer, tmp_path: Path) -> None:
    with ps.config(cache_dir=str(tmp_path)):
        found = answers(["Hello there", None], **options, temperature=0)
        assert found[0]["value"] == "".join(each["token"] for each in found[0]["logprobs"]) == "Hello there"
        assert found[0]["logprobs"][0] == {"token": "Hell", "logprob": -0.25, "top_logprobs": []}
        assert found[1] is None
        num_requests = len(model_server.requests)
        assert answers(["Hello there", None], **options, temperature=0) == found  # from the cache
        assert len(model_server.requests) == num_requests


def test_the_most_likely_tokens(options: dict[str, Any]) -> None:
    (found,) = answers(["Hi"], **options, top_logprobs=2)
    (token,) = found["logprobs"]
    assert token["top_logprobs"] == [{"token": "Hi", "logprob": -0.25}, {"token": "Hi2", "logprob": -0.5}]


def test_with_usage_a_format_and_several_answers(options: dict[str, Any]) -> None:
    (found,) = answers(["Hi"], Literal["yes", "no"], **options, usage=True, n=2)
    for each in found:
        assert each["value"] in ("yes", "no")
        assert each["finish_reason"] == "stop"
        assert each["value"] in "".join(token["token"] for token in each["logprobs"])


def test_completions_send_a_list_for_each_field() -> None:
    wire = CompletionsWire.of(Prompting(options={"logprobs": True, "top_logprobs": 2}), "vllm", "m")
    assert wire.body["logprobs"] == 2
    given = {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0], "top_logprobs": [{"a": -1.0}, None]}
    (answer,) = wire.read({"choices": [{"text": "ab", "finish_reason": "stop", "logprobs": given}]})
    first, second = answer.logprobs or ()
    assert first == {"token": "a", "logprob": -1.0, "top_logprobs": [{"token": "a", "logprob": -1.0}]}
    assert second == {"token": "b", "logprob": -2.0, "top_logprobs": []}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logprobs": 5}, "top_logprobs=5 lists the five"),
        ({"top_logprobs": 5}, "no effect without logprobs=True"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs must be a whole number"),
        ({"logprobs": True, "provider": "anthropic"}, "'anthropic' does not take 'logprobs'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    with pytest.raises(InvalidArgumentError, match=message):
        prompt(ps.col("q"), **{"provider": "openai", "model": "gpt-5", **options})

"""The server speaks Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.testing import Limits, ModelServer, faults
from tests.testing.client import Reply, ask


def message(server: ModelServer, *messages: Any, key: str = "test", **more: Any) -> Reply:
    said = messages or ({"role": "user", "content": "hello"},)
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": said, **more}
    return ask(server, "/v1/messages", body, x_api_key=key, anthropic_version="2023-06-01")


def test_a_message(server: ModelServer) -> None:
    reply = message(server, system="Be brief.")
    assert reply.body["content"] == [{"type": "text", "text": "hello"}]
    assert (reply.body["type"], reply.body["role"]) == ("message", "assistant")
    assert (reply.body["stop_reason"], reply.body["model"]) == ("end_turn", "claude-sonnet-4-5")
    assert reply.body["usage"]["input_tokens"] > reply.body["usage"]["output_tokens"] > 0
    assert reply.headers["request-id"].startswith("req_")


def test_structured_output(server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}
    reply = message(server, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert orjson.loads(reply.body["content"][0]["text"])["label"] in ("a", "b")
    tools = [{"name": "answer", "input_schema": schema}]
    forced = message(server, tools=tools, tool_choice={"type": "tool", "name": "answer"}).body
    assert forced["stop_reason"] == "tool_use"
    assert forced["content"][0]["name"] == "answer"
    assert forced["content"][0]["input"]["label"] in ("a", "b")


def test_tools(server: ModelServer) -> None:
    server.change(faults=[faults.CallTools([("weather", {"city": "Oslo"})], rounds=2)])
    said: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Weather?"}]}]
    for answer in ("rain", "more rain"):
        reply = message(server, *said)
        (call,) = reply.body["content"]
        assert (reply.body["stop_reason"], call["type"], call["input"]) == ("tool_use", "tool_use", {"city": "Oslo"})
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": answer}
        said += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert message(server, *said).body["content"] == [{"type": "text", "text": "rain\nmore rain"}]


def test_refusals_and_cuts(server: ModelServer) -> None:
    server.change(faults=[faults.Refusal(at=1), faults.CutShort(at=2)])
    refused = message(server).body
    assert (refused["stop_reason"], refused["content"]) == ("refusal", [])
    cut = message(server).body
    assert (cut["stop_reason"], cut["content"][0]["text"]) == ("max_tokens", "he")


def test_errors(server: ModelServer) -> None:
    server.change(api_key="test", models=["claude-sonnet-4-5"], faults=[faults.ServerError(529, at=1)])
    assert message(server, model="other").body["error"]["type"] == "not_found_error"
    wrong = message(server, key="wrong")
    assert (wrong.status, wrong.body["error"]["type"]) == (401, "authentication_error")
    overloaded = message(server)
    assert (overloaded.status, overloaded.body["type"]) == (529, "error")
    assert overloaded.body["error"]["type"] == "overloaded_error"
    body = {"model": "claude-sonnet-4-5", "messages": []}
    assert ask(server, "/v1/messages", body, x_api_key="test").status == 400  # max_tokens is required


def test_limits(server: ModelServer) -> None:
    server.change(limits=Limits(requests_per_second=1 / 60, burst_s=60))
    taken = message(server)
    assert taken.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert taken.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert taken.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    refused = message(server)
    assert (refused.status, refused.body["error"]["type"]) == (429, "rate_limit_error")
    assert 30 < int(refused.headers["retry-after"]) <= 60

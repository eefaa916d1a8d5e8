"""The server speaks the Gemini API."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from penstock.testing import ModelServer, faults
from tests.testing.client import Reply, ask

PATH = "/v1beta/models/gemini-2.5-flash"
HELLO = [{"role": "user", "parts": [{"text": "hello"}]}]


def generate(server: ModelServer, contents: Any = HELLO, **more: Any) -> Reply:
    return ask(server, f"{PATH}:generateContent", {"contents": contents, **more}, x_goog_api_key="test")


def test_content(server: ModelServer) -> None:
    body = generate(server).body
    (candidate,) = body["candidates"]
    assert candidate["content"] == {"role": "model", "parts": [{"text": "hello"}]}
    assert (candidate["finishReason"], body["modelVersion"]) == ("STOP", "gemini-2.5-flash")
    usage = body["usageMetadata"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"] == 4
    assert len(generate(server, generationConfig={"candidateCount": 3}).body["candidates"]) == 3


def test_structured_output(server: ModelServer) -> None:
    schema = {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}, "s": {"type": "STRING", "nullable": True}}}
    config = {"responseMimeType": "application/json", "responseSchema": schema}
    text = generate(server, generationConfig=config).body["candidates"][0]["content"]["parts"][0]["text"]
    assert {key: type(value) for key, value in orjson.loads(text).items()} == {"n": int, "s": str}


def test_functions(server: ModelServer) -> None:
    server.change(faults=[faults.CallTools([("weather", {"city": "Oslo"})])])
    content = generate(server).body["candidates"][0]["content"]
    assert content["parts"] == [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]
    result = {"functionResponse": {"name": "weather", "response": {"result": "rain"}}}
    again = generate(server, [*HELLO, content, {"role": "user", "parts": [result]}]).body
    assert again["candidates"][0]["content"]["parts"] == [{"text": "rain"}]


def test_blocks_and_cuts(server: ModelServer) -> None:
    server.change(faults=[faults.Refusal(at=1), faults.ContentFilter(at=2), faults.CutShort(at=3)])
    blocked = generate(server).body
    assert blocked["promptFeedback"]["blockReason"] == "SAFETY"
    assert "candidates" not in blocked
    filtered = generate(server).body["candidates"][0]
    assert filtered["finishReason"] == "SAFETY"
    assert "content" not in filtered
    assert generate(server).body["candidates"][0]["finishReason"] == "MAX_TOKENS"


def test_errors(server: ModelServer) -> None:
    server.change(
        models=["gemini-2.5-flash"], faults=[faults.RateLimited(retry_after=2, at=1), faults.ServerError(503)]
    )
    refused = generate(server)
    assert (refused.status, refused.body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert refused.body["error"]["details"][0]["retryDelay"] == "2s"
    assert generate(server).body["error"]["status"] == "UNAVAILABLE"
    unknown = ask(server, "/v1beta/models/other:generateContent", {"contents": HELLO})
    assert (unknown.status, unknown.body["error"]["status"]) == (404, "NOT_FOUND")


def test_embeddings(server: ModelServer) -> None:
    server.change(models=["gemini-embedding-001"])
    path = "/v1beta/models/gemini-embedding-001"
    requests = [
        {"model": "models/gemini-embedding-001", "content": {"parts": [{"text": text}]}, "outputDimensionality": 16}
        for text in ("a", "b")
    ]
    both = ask(server, f"{path}:batchEmbedContents", {"requests": requests}).body["embeddings"]
    one = ask(server, f"{path}:embedContent", requests[1]).body["embedding"]
    assert np.array(both[1]["values"]).shape == (16,)
    assert both[1] == one != both[0]


def test_models(server: ModelServer) -> None:
    server.change(models=["gemini-a"])
    assert ask(server, "/v1beta/models").body["models"][0]["name"] == "models/gemini-a"

"""Whatever JSON it is sent, the server answers, and blames the client."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings, strategies as st

from penstock.testing.http1 import Head, HttpRequest
from penstock.testing.script import Script
from penstock.testing.service import Service

NAMES = (
    *(
        "model",
        "messages",
        "input",
        "contents",
        "role",
        "content",
        "parts",
        "text",
        "type",
        "tools",
        "function",
        "name",
    ),
    *("tool_choice", "response_format", "json_schema", "schema", "n", "max_tokens", "dimensions", "requests", "format"),
    *("generationConfig", "responseSchema", "properties", "items", "enum", "anyOf", "output", "functionResponse"),
)
KEYS = st.sampled_from(NAMES)
SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 300) | st.sampled_from(["user", "tool", "json_schema", "object", ""])
)
ANY = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
MESSAGES = st.lists(st.fixed_dictionaries({"role": SCALARS, "content": ANY, "parts": ANY}), max_size=2)
ASKED = st.sampled_from(["messages", "contents", "input", "requests"])
BODIES = st.builds(
    lambda asked, messages, more: {"model": "m", "max_tokens": 9, asked: messages, **more},
    ASKED,
    MESSAGES,
    st.dictionaries(KEYS, ANY, max_size=3),
)
PATHS = (
    *("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/messages/batches", "/v1/batches"),
    *("/v1beta/models/m:generateContent", "/v1beta/models/m:embedContent", "/v1beta/models/m:batchEmbedContents"),
    *("/v1/files", "/v1beta/models/m:nothing", "/v1/batches/none/cancel"),
)


@settings(max_examples=200)
@given(path=st.sampled_from(PATHS), body=BODIES)
def test_any_json_has_an_answer(path: str, body: dict[str, Any]) -> None:
    service = Service(Script(), lambda seconds, function: None)
    data = orjson.dumps(body)
    reply = service.respond(HttpRequest(Head("POST", path, "", {}, len(data)), data))
    assert reply.status in (200, 400, 404)
    assert isinstance(orjson.loads(reply.body), dict)

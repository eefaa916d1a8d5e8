"""The server answers any JSON, with an error of the client where it does not fit."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from penstock.testing.http_server import HttpRequest
from penstock.testing.script import Script
from penstock.testing.service import ModelService

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
    *("$ref", "allOf", "minItems", "minimum"),
)
SCALARS = (
    None,
    True,
    "#",
    "integer",
    0,
    3,
    300,
    -1,
    0.5,
    "",
    "user",
    "tool",
    "assistant",
    "json_schema",
    "object",
    "array",
    "required",
)
PATHS = (
    *("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/messages/batches", "/v1/batches"),
    *("/v1beta/models/m:generateContent", "/v1beta/models/m:embedContent", "/v1beta/models/m:batchEmbedContents"),
    *("/v1/files", "/v1beta/models/m:nothing", "/v1/batches/none/cancel"),
)


def any_json(random: Random, depth: int = 3) -> Any:
    kind = random.random()
    if depth == 0 or kind < 0.4:
        return random.choice(SCALARS)
    if kind < 0.6:
        return [any_json(random, depth - 1) for _ in range(random.randrange(3))]
    return {name: any_json(random, depth - 1) for name in random.sample(NAMES, random.randrange(5))}


def any_body(random: Random) -> dict[str, Any]:
    """Return a body that begins as a good one does, so that it is not refused at once."""
    parts = [{"role": "user", "content": any_json(random), "parts": [any_json(random, 1)]}, any_json(random)]
    asked = random.choice(("messages", "contents", "input", "requests"))
    more = {name: any_json(random) for name in random.sample(NAMES, 4)}
    return {"model": "m", "max_tokens": 9, asked: parts[: random.randrange(1, 3)], **more}


@pytest.mark.parametrize("path", PATHS)
def test_any_json_has_an_answer(path: str) -> None:
    random = Random(path)
    service = ModelService(Script())
    for _ in range(300):
        data = orjson.dumps(any_body(random))
        reply = service.respond(HttpRequest("POST", path, {}, data))
        assert reply.status in (200, 400, 404), data
        assert isinstance(orjson.loads(reply.body), dict)

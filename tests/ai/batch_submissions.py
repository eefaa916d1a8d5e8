"""Batches that a server received."""

from __future__ import annotations

import re
from typing import Any

import orjson

from penstock.testing import ModelServer


def batches(server: ModelServer) -> list[list[str]]:
    """Return the prompts of each batch that was created, by either provider's API."""
    files = [
        re.findall(rb'^\{"custom_id".*\}$', seen.raw_body, re.MULTILINE)
        for seen in server.requests
        if seen.path == "/v1/files" and seen.method == "POST"
    ]
    bodies = [[orjson.loads(line)["body"] for line in lines] for lines in files]
    for seen in server.requests:
        if seen.path == "/v1/messages/batches" and seen.method == "POST":
            bodies.append([request["params"] for request in seen.body["requests"]])
    return [[text_of(body) for body in each] for each in bodies]


def text_of(body: dict[str, Any]) -> str:
    """Return what the user said last in a request of any of the APIs, or the text to embed."""
    said: Any = body.get("messages") or body["input"]
    while not isinstance(said, str):
        said = said[-1] if isinstance(said, list) else said.get("content") or said.get("text") or said.get("output")
    return said


def num_posted(server: ModelServer, path: str) -> int:
    return sum(seen.method == "POST" and seen.path == path for seen in server.requests)

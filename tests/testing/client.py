"""A plain client for the tests of the server."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from penstock.testing import ModelServer


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return orjson.loads(self.raw)


def ask(server: ModelServer, path: str, body: Any = None, method: str | None = None, **headers: str) -> Reply:
    """Send one request on a connection of its own; underscores in the names of headers stand for dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        data = None if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, data, named)
        reply = connection.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
    finally:
        connection.close()


def chat(server: ModelServer, text: str = "hello", **more: Any) -> Reply:
    return ask(server, "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": text}], **more})


def said(reply: Reply) -> str:
    """Return the text of a chat completion."""
    text: str = reply.body["choices"][0]["message"]["content"]
    return text


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.005)

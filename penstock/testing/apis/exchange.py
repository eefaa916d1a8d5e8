"""What the APIs have in common: a request for an answer, the answer, and how each API reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Protocol

import orjson

Finish = Literal["stop", "length", "refusal", "filter", "tools"]


@dataclass(slots=True)
class ModelRequest:
    """What a model is asked. ``text`` is the last thing the user said; ``body`` is the whole request."""

    path: str
    model: str
    text: str
    body: dict[str, Any]
    schema: dict[str, Any] | None = None  # that the answer must follow
    forced_tool: str | None = None  # that the answer must call, with arguments by ``schema``
    tool_results: tuple[str, ...] = ()  # what tools gave since the user spoke
    num_rounds: int = 0  # of tool calls since the user spoke
    num_answers: int = 1
    max_tokens: int | None = None
    index: int = 0  # of the answer, where several are asked for


@dataclass(slots=True)
class Answer:
    """What a model says. ``tool_calls`` are pairs of a name and arguments as JSON."""

    text: str
    finish: Finish = "stop"
    tool_calls: tuple[tuple[str, str], ...] = ()
    refusal: str | None = None


class Api(Protocol):
    """One way to ask a model and be answered, by JSON."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        """Return what a body asks for; raises BadRequestError."""
        ...

    def write(self, request: ModelRequest, answers: list[Answer]) -> dict[str, Any]:
        """Return the body that gives the answers."""
        ...


class Vendor(Protocol):
    """What all APIs of one provider share: errors, and the headers that tell of limits."""

    def key(self, headers: Mapping[str, str]) -> str | None: ...

    request_id_header: str

    def error(
        self, status: int, message: str | None, code: str | None, retry_s: float | None = None
    ) -> dict[str, Any]: ...

    def limit_headers(self, kind: str, limit: int, remaining: int, reset_s: float) -> dict[str, str]:
        """``kind`` is "requests" or "tokens"."""
        ...

    def retry_headers(self, wait_s: float) -> dict[str, str]: ...


class BadRequestError(Exception):
    """The client is at fault."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.code = message, status, code


_ids = count(1)


def new_id(prefix: str) -> str:
    return f"{prefix}{next(_ids):024x}"


def count_tokens(text: str) -> int:
    """Four characters a token, as a rule of thumb has it."""
    return (len(text) + 3) // 4


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def field(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    """Return a field of a body, checked as the APIs check it."""
    value = body.get(name, default)
    if value is None and default is None and name not in body:
        raise BadRequestError(f"Missing required parameter: '{name}'.", code="missing_required_parameter")
    if not isinstance(value, kind):
        raise BadRequestError(f"Invalid type for '{name}': got {type(value).__name__}.", code="invalid_type")
    return value

"""The parts that all APIs share: a request to a model, its answer, and the protocols of an API and a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Protocol

import orjson

Finish = Literal["stop", "length", "refusal", "filter", "tools"]


@dataclass(slots=True)
class ModelRequest:
    """A request to a model. ``text`` is the last message of the user; ``body`` is the complete request."""

    path: str
    model: str
    text: str
    body: dict[str, Any]
    schema: dict[str, Any] | None = None  # of the answer
    forced_tool: str | None = None  # the tool to call, with arguments by ``schema``
    tool_results: tuple[str, ...] = ()  # since the last message of the user
    num_rounds: int = 0  # of tool calls since then
    num_answers: int = 1
    max_tokens: int | None = None
    index: int = 0  # of the answer, if the request asks for several


@dataclass(slots=True)
class ModelAnswer:
    """An answer. ``tool_calls`` are pairs of a name and arguments as JSON."""

    text: str
    finish: Finish = "stop"
    tool_calls: tuple[tuple[str, str], ...] = ()
    refusal: str | None = None


class Api(Protocol):
    """One endpoint for prompts."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        """Return the request in a body; raises BadRequestError."""

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        """Return the body that carries the answers."""


class Vendor(Protocol):
    """The conventions of a provider: keys, errors and headers."""

    key_header: str
    request_id_header: str

    def error(
        self, status: int, message: str | None, code: str | None, retry_s: float | None = None
    ) -> dict[str, Any]: ...

    def limit_headers(self, kind: str, limit: int, remaining: int, reset_s: float) -> dict[str, str]:
        """Return the headers that report a limit; ``kind`` is "requests" or "tokens"."""

    def retry_headers(self, wait_s: float) -> dict[str, str]: ...


class BadRequestError(Exception):
    """The request is wrong; the client gets the status and the message."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.code = message, status, code


class UnknownUrlError(BadRequestError):
    """The server has no such resource."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Unknown request URL: {path}.", 404, "unknown_url")


_ids = count(1)


def new_id(prefix: str) -> str:
    return f"{prefix}{next(_ids):024x}"


def count_tokens(text: str) -> int:
    """Count four characters as one token."""
    return (len(text) + 3) // 4


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def text_of(content: Any) -> str:
    """Return the text of a message whose content is a text or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part, dict) and "text" in part)
    return ""


def json_or(text: str | bytes, default: Any) -> Any:
    """Return the value of a JSON text, or ``default`` if it is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return default


def split_at_question(
    messages: list[dict[str, Any]], is_from_user: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the last message of the user, and the messages after it."""
    for index in range(len(messages) - 1, -1, -1):
        if is_from_user(messages[index]):
            return messages[index], messages[index + 1 :]
    return {}, messages


def parse_json(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise BadRequestError("We could not parse the JSON body of your request.") from exc
    if not isinstance(value, dict):
        raise BadRequestError("The body of the request must be an object.")
    return value


def field(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a required field of a body, with the checks of the APIs."""
    if name not in body:
        raise BadRequestError(f"Missing required parameter: '{name}'.", code="missing_required_parameter")
    if not isinstance(body[name], kind):
        raise BadRequestError(f"Invalid type for '{name}': got {type(body[name]).__name__}.", code="invalid_type")
    return body[name]

"""Anthropic's Messages."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

from penstock.testing.apis.model_api import (
    ModelAnswer,
    ModelRequest,
    count_tokens,
    field,
    json_or,
    new_id,
    split_at_question,
    text_of,
)
from penstock.testing.apis.openai import forced_tool

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "refusal": "refusal",
    "filter": "refusal",
    "tools": "tool_use",
}


class Anthropic:
    """Keys, errors and rate-limit headers of Anthropic."""

    key_header = "x-api-key"
    request_id_header = "request-id"

    def error(self, status: int, message: str | None, code: str | None, retry_s: float | None = None) -> dict[str, Any]:
        kind = code or ERROR_TYPES.get(status, "api_error")
        error = {"type": kind, "message": message or "Internal server error"}
        return {"type": "error", "error": error, "request_id": new_id("req_")}

    def limit_headers(self, kind: str, limit: int, remaining: int, reset_s: float) -> dict[str, str]:
        reset = datetime.fromtimestamp(time.time() + reset_s, UTC)
        return {
            f"anthropic-ratelimit-{kind}-limit": str(limit),
            f"anthropic-ratelimit-{kind}-remaining": str(remaining),
            f"anthropic-ratelimit-{kind}-reset": f"{reset:%Y-%m-%dT%H:%M:%SZ}",
        }

    def retry_headers(self, wait_s: float) -> dict[str, str]:
        return {"retry-after": str(math.ceil(wait_s))}


class Messages:
    """POST /messages."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        messages = field(body, "messages", list)
        max_tokens = field(body, "max_tokens", int)
        asked, since = split_at_question(messages, _is_from_user)
        tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or ()}
        choice = body.get("tool_choice") or {}
        kind = choice.get("type")
        forced = forced_tool("required" if kind == "any" else choice if kind == "tool" else None, list(tools))
        output = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        results = [
            text_of(block.get("content"))
            for message in since
            if message.get("role") == "user"
            for block in message["content"]
        ]
        return ModelRequest(
            path,
            field(body, "model", str),
            text_of(asked.get("content")),
            body,
            tools[forced] if forced else output.get("schema"),
            forced,
            tuple(results),
            sum(message.get("role") == "assistant" for message in since),
            1,
            max_tokens,
        )

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        (answer,) = answers
        body = request.body
        input_tokens = count_tokens(text_of(body.get("system"))) + sum(
            count_tokens(text_of(message["content"])) + 4 for message in body["messages"]
        )
        if answer.tool_calls:
            content: list[dict[str, Any]] = [
                {"type": "tool_use", "id": new_id("toolu_"), "name": name, "input": json_or(arguments, arguments)}
                for name, arguments in answer.tool_calls
            ]
        else:
            content = [] if answer.finish == "refusal" else [{"type": "text", "text": answer.text}]
        return {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": content,
            "stop_reason": STOP_REASONS[answer.finish],
            "usage": {"input_tokens": input_tokens, "output_tokens": count_tokens(answer.text)},
        }


def _is_from_user(message: dict[str, Any]) -> bool:
    """Return whether the user wrote a message, rather than a tool."""
    if message.get("role") != "user":
        return False
    content = message.get("content")
    return isinstance(content, str) or any(block.get("type") != "tool_result" for block in content or ())

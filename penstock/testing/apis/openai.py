"""OpenAI's Chat Completions, Completions and Responses."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from penstock.testing.apis.model_api import (
    BadRequestError,
    ModelAnswer,
    ModelRequest,
    as_text,
    count_tokens,
    field,
    new_id,
    text_of,
)

ERROR_TYPES = {401: "invalid_request_error", 429: "requests"}
ERROR_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class OpenAI:
    """Keys, errors and rate-limit headers of OpenAI."""

    key_header = "authorization"
    request_id_header = "x-request-id"

    def error(self, status: int, message: str | None, code: str | None, retry_s: float | None = None) -> dict[str, Any]:
        kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        if code == "insufficient_quota":
            kind = code
        message = message or "The server had an error while processing your request."
        return {"error": {"message": message, "type": kind, "param": None, "code": code or ERROR_CODES.get(status)}}

    def limit_headers(self, kind: str, limit: int, remaining: int, reset_s: float) -> dict[str, str]:
        return {
            f"x-ratelimit-limit-{kind}": str(limit),
            f"x-ratelimit-remaining-{kind}": str(remaining),
            f"x-ratelimit-reset-{kind}": duration(reset_s),
        }

    def retry_headers(self, wait_s: float) -> dict[str, str]:
        return {"retry-after-ms": str(math.ceil(wait_s * 1000)), "retry-after": str(math.ceil(wait_s))}


class Chat:
    """POST /chat/completions."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        messages = field(body, "messages", list)
        asked = last_of(messages, "user")
        check_tool_messages(messages)
        since = messages[asked + 1 :]
        schema = forced = None
        if output := body.get("response_format"):
            schema = output_schema(output, output.get("json_schema") or {})
        if offered := body.get("tools"):
            tools = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in offered}
            forced = forced_tool(body.get("tool_choice"), list(tools))
            schema = tools[forced] if forced else schema
        return ModelRequest(
            path,
            field(body, "model", str),
            text_of(messages[asked].get("content")) if asked >= 0 else "",
            body,
            schema,
            forced,
            tuple([text_of(message.get("content")) for message in since if message.get("role") == "tool"]),
            len([message for message in since if message.get("role") == "assistant"]),
            body.get("n") or 1,
            body.get("max_completion_tokens") or body.get("max_tokens"),
        )

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        prompt_tokens = sum([count_tokens(text_of(message.get("content"))) + 4 for message in request.body["messages"]])
        completion_tokens = sum([count_tokens(answer.text) for answer in answers])
        return {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": [_choice(index, answer) for index, answer in enumerate(answers)],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            },
            "service_tier": "default",
            "system_fingerprint": "fp_penstock",
        }


CHAT_FINISH = {"stop": "stop", "length": "length", "refusal": "stop", "filter": "content_filter", "tools": "tool_calls"}


def _choice(index: int, answer: ModelAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if answer.tool_calls or answer.refusal else answer.text,
        "refusal": answer.refusal,
        "annotations": [],
    }
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": new_id("call_"), "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in answer.tool_calls
        ]
    return {"index": index, "message": message, "logprobs": None, "finish_reason": CHAT_FINISH[answer.finish]}


class Completions:
    """POST /completions."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        model, prompt = field(body, "model", str), field(body, "prompt", str)
        return ModelRequest(
            path, model, prompt, body, num_answers=body.get("n") or 1, max_tokens=body.get("max_tokens")
        )

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        prompt_tokens = count_tokens(request.text)
        completion_tokens = sum([count_tokens(answer.text) for answer in answers])
        return {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": [
                {"index": index, "text": answer.text, "logprobs": None, "finish_reason": CHAT_FINISH[answer.finish]}
                for index, answer in enumerate(answers)
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        }


class Responses:
    """POST /responses."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        given = field(body, "input", (str, list))
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        asked = last_of(items, "user")
        check_call_outputs(items, has_history="previous_response_id" in body or "conversation" in body)
        since = items[asked + 1 :]
        results = tuple(as_text(item["output"]) for item in since if item.get("type") == "function_call_output")
        is_call = [item.get("type") == "function_call" for item in since]
        output = (body.get("text") or {}).get("format") or {}
        schema, forced = output_schema(output, output), None
        if offered := body.get("tools"):
            tools = {tool["name"]: tool.get("parameters") or {} for tool in offered if "name" in tool}
            forced = forced_tool(body.get("tool_choice"), list(tools))
            schema = tools[forced] if forced else schema
        return ModelRequest(
            path,
            field(body, "model", str),
            text_of(items[asked].get("content")) if asked >= 0 else "",
            body,
            schema,
            forced,
            results,
            # Calls in a row belong to one round.
            sum(now and not before for before, now in zip([False, *is_call], is_call, strict=False)),
            1,
            body.get("max_output_tokens"),
        )

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        (answer,) = answers
        body = request.body
        input_tokens = count_tokens(body.get("instructions") or "") + 4
        if isinstance(given := body["input"], str):
            input_tokens += count_tokens(given)
        else:
            input_tokens += sum(count_tokens(text_of(item.get("content", item.get("output")))) + 4 for item in given)
        output_tokens = count_tokens(answer.text)
        reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(answer.finish)
        return {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "incomplete" if reason else "completed",
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": request.max_tokens,
            "model": request.model,
            "output": _output(answer),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": body.get("store", True),
            "temperature": body.get("temperature", 1.0),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools") or [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": {
                "input_tokens": input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": input_tokens + output_tokens,
            },
            "user": None,
            "metadata": body.get("metadata") or {},
        }


def _output(answer: ModelAnswer) -> list[dict[str, Any]]:
    if answer.tool_calls:
        return [
            {
                "id": new_id("fc_"),
                "type": "function_call",
                "status": "completed",
                "call_id": new_id("call_"),
                "name": name,
                "arguments": arguments,
            }
            for name, arguments in answer.tool_calls
        ]
    if answer.refusal:
        part: dict[str, Any] = {"type": "refusal", "refusal": answer.refusal}
    else:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    status = "incomplete" if answer.finish in ("length", "filter") else "completed"
    return [{"id": new_id("msg_"), "type": "message", "status": status, "role": "assistant", "content": [part]}]


def last_of(messages: list[Any], role: str) -> int:
    """Return the index of the last message of a role, or -1."""
    for index in range(len(messages) - 1, -1, -1):
        if not isinstance(messages[index], dict):
            raise BadRequestError(f"Invalid type for 'messages[{index}]': expected an object.", code="invalid_type")
        if messages[index].get("role") == role:
            return index
    return -1


def check_tool_messages(messages: list[Any]) -> None:
    """Refuse a tool result without a call before it, and a call without a result after it."""
    pending: set[str] = set()
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in pending:
                raise BadRequestError(
                    f"Invalid parameter: messages[{index}] with role 'tool' must be a response to a preceding message "
                    "with 'tool_calls'."
                )
            pending.discard(message["tool_call_id"])
            continue
        if pending:
            raise BadRequestError(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. These did not have response messages: {', '.join(sorted(pending))}"
            )
        pending = {call["id"] for call in message.get("tool_calls") or ()}


def check_call_outputs(items: list[Any], *, has_history: bool) -> None:
    """Refuse a function output without a call before it, unless the call may be in the history on the server."""
    called: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            called.add(item["call_id"])
        elif item.get("type") == "function_call_output" and item["call_id"] not in called and not has_history:
            raise BadRequestError(f"No tool call found for function call output with call_id {item['call_id']}.")


def output_schema(output: Mapping[str, Any], holder: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a structured output, None for plain text."""
    match output.get("type"):
        case "json_schema":
            schema: dict[str, Any] = field(holder, "schema", dict)
            return schema
        case "json_object":
            return {"type": "object", "properties": {"answer": {"type": "string"}}}
    return None


def forced_tool(choice: Any, names: list[str]) -> str | None:
    """Return the tool that ``tool_choice`` requires, if any."""
    if isinstance(choice, dict):
        name = choice.get("name") or choice.get("function", {}).get("name")
        if name not in names:
            raise BadRequestError(f"Tool choice {name!r} not found in 'tools' parameter.", code="invalid_value")
        return str(name)
    return names[0] if choice == "required" else None


def duration(seconds: float) -> str:
    """Format seconds like OpenAI's headers.

    >>> duration(0.012), duration(1.5), duration(372)
    ('12ms', '1.5s', '6m12s')
    """
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return (f"{int(minutes)}m" if minutes else "") + f"{round(rest, 3):g}s"

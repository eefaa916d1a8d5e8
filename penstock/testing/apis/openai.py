"""OpenAI's Chat Completions, Completions and Responses."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from penstock.testing.apis.model_api import (
    BadRequestError,
    ModelAnswer,
    ModelRequest,
    as_text,
    count_tokens,
    field,
    new_id,
    split_at_question,
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
        check_results(
            [call["id"] for message in messages for call in message.get("tool_calls") or ()],
            [message["tool_call_id"] for message in messages if message.get("role") == "tool"],
        )
        asked, since = split_at_question(messages, _is_from_user)
        output = body.get("response_format") or {}
        functions = [tool["function"] for tool in body.get("tools") or ()]
        forced, schema = required_output(body, functions, output, output.get("json_schema") or {})
        return ModelRequest(
            path,
            field(body, "model", str),
            text_of(asked.get("content")),
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
        completion = _completion(request, answers, prompt_tokens)
        choices = [_choice(index, answer) for index, answer in enumerate(answers)]
        if request.body.get("logprobs"):
            for choice, answer in zip(choices, answers, strict=True):
                choice["logprobs"] = {"content": _logprobs(answer.text, request.body), "refusal": None}
        return {"id": new_id("chatcmpl-"), "object": "chat.completion", "choices": choices, **completion}


CHAT_FINISH = {"stop": "stop", "length": "length", "refusal": "stop", "filter": "content_filter", "tools": "tool_calls"}


def _choice(index: int, answer: ModelAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if answer.tool_calls or answer.refusal else answer.text,
        "refusal": answer.refusal,
    }
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": new_id("call_"), "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in answer.tool_calls
        ]
    return {"index": index, "message": message, "finish_reason": CHAT_FINISH[answer.finish]}


def _logprobs(text: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a log-probability of -0.25 for each token; the n-th most likely token has n quarters."""
    tokens = [text[start : start + 4] for start in range(0, len(text), 4)]

    def ranked(token: str) -> list[dict[str, Any]]:
        names = [token, *(f"{token}{rank}" for rank in range(2, 21))]
        return [
            {"token": name, "bytes": list(name.encode()), "logprob": -rank / 4} for rank, name in enumerate(names, 1)
        ]

    return [{**ranked(token)[0], "top_logprobs": ranked(token)[: body.get("top_logprobs") or 0]} for token in tokens]


class Completions:
    """POST /completions."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        model, prompt = field(body, "model", str), field(body, "prompt", str)
        return ModelRequest(
            path, model, prompt, body, num_answers=body.get("n") or 1, max_tokens=body.get("max_tokens")
        )

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        completion = _completion(request, answers, count_tokens(request.text))
        choices = [
            {"index": index, "text": answer.text, "finish_reason": CHAT_FINISH[answer.finish]}
            for index, answer in enumerate(answers)
        ]
        return {"id": new_id("cmpl-"), "object": "text_completion", "choices": choices, **completion}


def _completion(request: ModelRequest, answers: list[ModelAnswer], prompt_tokens: int) -> dict[str, Any]:
    """Return the fields that both kinds of completions have."""
    completion_tokens = sum([count_tokens(answer.text) for answer in answers])
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    return {"created": int(time.time()), "model": request.model, "usage": usage}


class Responses:
    """POST /responses."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        given = field(body, "input", (str, list))
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if "previous_response_id" not in body and "conversation" not in body:  # else the call is on the server
            check_results(
                [item["call_id"] for item in items if item.get("type") == "function_call"],
                [item["call_id"] for item in items if item.get("type") == "function_call_output"],
            )
        asked, since = split_at_question(items, _is_from_user)
        results = tuple(as_text(item["output"]) for item in since if item.get("type") == "function_call_output")
        is_call = [item.get("type") == "function_call" for item in since]
        output = (body.get("text") or {}).get("format") or {}
        forced, schema = required_output(body, body.get("tools") or [], output, output)
        return ModelRequest(
            path,
            field(body, "model", str),
            text_of(asked.get("content")),
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
            "incomplete_details": {"reason": reason} if reason else None,
            "model": request.model,
            "output": _output(answer, body),
            "usage": {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "total_tokens": input_tokens + output_tokens,
            },
        }


def _output(answer: ModelAnswer, body: dict[str, Any]) -> list[dict[str, Any]]:
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
        has_logprobs = "message.output_text.logprobs" in (body.get("include") or ())
        logprobs = _logprobs(answer.text, body) if has_logprobs else []
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": logprobs}
    status = "incomplete" if answer.finish in ("length", "filter") else "completed"
    return [{"id": new_id("msg_"), "type": "message", "status": status, "role": "assistant", "content": [part]}]


def _is_from_user(message: dict[str, Any]) -> bool:
    return message.get("role") == "user"


def check_results(calls: Iterable[str], results: Iterable[str]) -> None:
    """Refuse the result of a tool without a call."""
    if stray := set(results) - set(calls):
        raise BadRequestError(f"No tool call found for the result with call id {min(stray)}.")


def required_output(
    body: dict[str, Any], functions: list[dict[str, Any]], output: dict[str, Any], holder: dict[str, Any]
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the tool that the request requires, if any, and the schema of its arguments or of the answer."""
    tools = {function["name"]: function.get("parameters") or {} for function in functions if "name" in function}
    if forced := forced_tool(body.get("tool_choice"), list(tools)):
        return forced, tools[forced]
    match output.get("type"):
        case "json_schema":
            return None, field(holder, "schema", dict)
        case "json_object":
            return None, {"type": "object", "properties": {"answer": {"type": "string"}}}
    return None, None


def forced_tool(choice: Any, names: list[str]) -> str | None:
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

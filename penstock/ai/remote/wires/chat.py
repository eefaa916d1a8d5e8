"""Chat Completions, the protocol that most servers of models speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.conversation import (
    Audio,
    Document,
    Generation,
    Image,
    ModelTurn,
    Part,
    Request,
    Text,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from penstock.ai.provider import ModelTask, check_options
from penstock.ai.remote.wires.bodies import effort_of, extra_body_of, merged, tools_of
from penstock.ai.remote.wires.wire import (
    ApiCall,
    audio_format,
    check_row_options,
    data_url,
    encoded,
    field_of,
    usage_of,
)
from penstock.errors import InvalidAnswerError, ProviderUnavailableError

# Options whose names are the API's own.
PASSED_ON = (
    *("temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias"),
    *("parallel_tool_calls", "tool_choice", "service_tier", "user", "metadata", "verbosity", "store", "prediction"),
    *("prompt_cache_key", "safety_identifier"),
)
RENAMED = {"max_output_tokens": "max_completion_tokens"}
OPTIONS = (*PASSED_ON, *RENAMED, "reasoning", "reasoning_effort", "tools", "extra_body", "use_chat_completions")
ROW_OPTIONS = OPTIONS[:-1]


@dataclass(frozen=True)
class ChatWire:
    """``POST /chat/completions``. ``body`` is what is the same for all rows, ``extra_body`` is merged into it."""

    body: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    takes_options: ClassVar[bool] = True

    @staticmethod
    def of(task: ModelTask, provider: str, model: str, options: Mapping[str, Any]) -> ChatWire:
        check_options(task, provider, OPTIONS)
        return ChatWire({"model": model, **fields_of(options)}, extra_body_of(options))

    def call(self, request: Request) -> ApiCall:
        messages = [{"role": "system", "content": request.system}] if request.system else []
        text = request.text
        if text is not None:
            messages.append({"role": "user", "content": text})
        else:
            for turn in request.turns:
                messages += _messages(turn)
        body, extra_body = {**self.body, "messages": messages}, self.extra_body
        if request.options:
            check_row_options(request.options, ROW_OPTIONS)
            body |= fields_of(request.options)
            extra_body = merged(extra_body, extra_body_of(request.options))
        if request.num_answers > 1:
            body["n"] = request.num_answers
        if request.output is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": request.output.named_schema}
        if request.tools:
            functions = [
                {"name": tool.name, "description": tool.description, "parameters": tool.schema}
                for tool in request.tools
            ]
            body["tools"] = [*body.get("tools", ()), *({"type": "function", "function": each} for each in functions)]
        return ApiCall("/chat/completions", merged(body, extra_body) if extra_body else body)

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        input_tokens, output_tokens, cached_tokens = usage_of(
            body.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details"
        )
        found = []
        if not body.get("choices") and body.get("error"):
            raise _failed(body["error"])
        for choice in field_of(body, "choices", list):
            message = field_of(choice, "message", dict)
            reason = choice.get("finish_reason")
            if reason == "error" or choice.get("error"):
                raise _failed(choice.get("error"))
            refusal = message.get("refusal")
            if reason == "content_filter" and not refusal:
                refusal = "the provider's content filter stopped the answer"
            text, calls = _text(message.get("content")), message.get("tool_calls") or ()
            if text is None and not (calls or refusal or reason == "length"):
                raise InvalidAnswerError(
                    f"the answer's message has no content, no tool calls and no refusal; finish_reason is {reason!r}"
                )
            found.append(
                Generation(
                    text=text or "",
                    model=body.get("model"),
                    input_tokens=input_tokens,
                    output_tokens=output_tokens,
                    cached_tokens=cached_tokens,
                    finish_reason=reason,
                    tool_calls=tuple(map(_tool_call, calls)),
                    reasoning=message.get("reasoning_content") or message.get("reasoning"),
                    refusal=refusal,
                    raw=message,
                )
            )
            input_tokens = output_tokens = cached_tokens = None  # those of all answers stand with the first
        return found


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what options are in a body, but for those of ``extra_body``."""
    body = {RENAMED.get(name, name): options[name] for name in (*PASSED_ON, *RENAMED) if name in options}
    if (effort := effort_of(options, "Chat Completions", ("effort",)).get("effort")) is not None:
        body["reasoning_effort"] = effort
    if tools := tools_of(options):
        body["tools"] = tools
    return body


def _failed(error: Any) -> ProviderUnavailableError:
    """Return the error of a server that failed after it had said 200, as OpenRouter does when a model's host fails."""
    message = error.get("message") if isinstance(error, Mapping) else error
    return ProviderUnavailableError(f"the server failed while it answered: {message or 'no reason given'}")


def _text(content: Any) -> str | None:
    """Return the text of a content; None where there is none, for a text may be empty."""
    if content is None or isinstance(content, str):
        return content
    texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "".join(texts) if texts else None


def _tool_call(given: Mapping[str, Any]) -> ToolCall:
    function = field_of(given, "function", dict)
    return ToolCall(str(given.get("id", "")), field_of(function, "name", str), function.get("arguments") or "{}")


def _messages(turn: UserTurn | ModelTurn | ToolTurn) -> list[dict[str, Any]]:
    match turn:
        case UserTurn(parts):
            return [{"role": "user", "content": [_part(part) for part in parts]}]
        case ModelTurn(raw=dict(raw)):
            kept = ("role", "content", "tool_calls", "refusal")
            return [{"role": "assistant", **{name: raw[name] for name in kept if raw.get(name) is not None}}]
        case ModelTurn(text, calls):
            said: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
            if calls:
                said["tool_calls"] = [
                    {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                    for each in calls
                ]
            return [said]
        case ToolTurn(results):
            return [{"role": "tool", "tool_call_id": each.call.id, "content": each.content} for each in results]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(data, mime_type):
            return {"type": "image_url", "image_url": {"url": data_url(data, mime_type)}}
        case Audio(data, mime_type):
            audio = {"data": encoded(data), "format": audio_format(mime_type)}
            return {"type": "input_audio", "input_audio": audio}
        case Document(data, mime_type, name):
            return {"type": "file", "file": {"filename": name, "file_data": data_url(data, mime_type)}}

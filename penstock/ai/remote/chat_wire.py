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
from penstock.ai.provider import Task, check_options
from penstock.ai.remote.bodies import effort_of, extra_body_of, tools_of
from penstock.ai.remote.wire import ApiCall, audio_format, check_row_options, data_url, encoded, field_of, usage_of

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
    """``POST /chat/completions``. ``body`` is what is the same for all rows, ``extra_body`` has the last word."""

    body: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    takes_options: ClassVar[bool] = True

    @staticmethod
    def of(task: Task, provider: str, model: str, options: Mapping[str, Any]) -> ChatWire:
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
            extra_body = {**extra_body, **extra_body_of(request.options)}
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
        return ApiCall("/chat/completions", body | dict(extra_body))

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        input_tokens, output_tokens, cached_tokens = usage_of(
            body.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details"
        )
        found = []
        for choice in field_of(body, "choices", list):
            message = field_of(choice, "message", dict)
            reason = choice.get("finish_reason")
            refusal = message.get("refusal")
            if reason == "content_filter" and not refusal:
                refusal = "the provider's content filter stopped the answer"
            found.append(
                Generation(
                    text=_text(message.get("content")),
                    model=body.get("model"),
                    input_tokens=input_tokens,
                    output_tokens=output_tokens,
                    cached_tokens=cached_tokens,
                    finish_reason=reason,
                    tool_calls=tuple(_tool_call(each) for each in message.get("tool_calls") or ()),
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


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))


def _tool_call(given: Mapping[str, Any]) -> ToolCall:
    function = field_of(given, "function", dict)
    return ToolCall(str(given.get("id", "")), field_of(function, "name", str), function.get("arguments") or "{}")


def _messages(turn: UserTurn | ModelTurn | ToolTurn) -> list[dict[str, Any]]:
    match turn:
        case UserTurn(parts):
            return [{"role": "user", "content": [_part(part) for part in parts]}]
        case ModelTurn(text, raw=raw):
            kept = ("role", "content", "tool_calls", "refusal")
            said = {name: raw[name] for name in kept if raw.get(name) is not None} if raw else {"content": text}
            return [{"role": "assistant", **said}]
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

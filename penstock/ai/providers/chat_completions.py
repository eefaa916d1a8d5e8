"""Chat Completions, the API that most model servers implement, and the older Completions API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    Turn,
    UserTurn,
)
from penstock.ai.lenient_json import field_of, field_or_none
from penstock.ai.providers import wire
from penstock.ai.providers.wire import PromptWire
from penstock.errors import InvalidAnswerError, InvalidArgumentError, ProviderUnavailableError

# Options that the API has under the same name.
PASSED_ON = (
    *("temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias"),
    *("parallel_tool_calls", "tool_choice", "service_tier", "user", "metadata", "verbosity", "store", "prediction"),
    *("prompt_cache_key", "safety_identifier"),
)
RENAMED = {"max_output_tokens": "max_completion_tokens"}
ROW_OPTIONS = (*PASSED_ON, *RENAMED, "reasoning", "reasoning_effort", "tools", "extra_body")


class ChatWire(PromptWire):
    """``POST /chat/completions``."""

    path = "/chat/completions"
    options = (*ROW_OPTIONS, "use_chat_completions")
    logprob_options = wire.LOGPROBS
    row_options = ROW_OPTIONS

    @classmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        return chat_fields(model, options)

    def add(self, body: dict[str, Any], request: Request) -> None:
        messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
        if (text := request.text) is not None:
            messages.append({"role": "user", "content": text})
        else:
            for turn in request.turns:
                messages += _messages(turn)
        body["messages"] = messages
        if request.num_answers > 1:
            body["n"] = request.num_answers
        if request.output is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": request.output.named_schema}
        if request.tools:
            functions = [
                {"type": "function", "function": wire.declaration(tool, "parameters")} for tool in request.tools
            ]
            body["tools"] = [*body.get("tools", ()), *functions]

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        found = []
        for choice in field_of(body, "choices", list):
            message = field_of(choice, "message", dict)
            reason = choice.get("finish_reason")
            if reason == "error" or choice.get("error"):
                raise _failed(choice.get("error"))
            refusal = message.get("refusal") or (wire.FILTERED if reason == "content_filter" else None)
            text, calls = _text(message.get("content")), message.get("tool_calls") or ()
            if text is None and not (calls or refusal or reason == "length"):
                raise InvalidAnswerError(
                    f"the answer's message has no content, no tool calls and no refusal; finish_reason is {reason!r}"
                )
            found.append(
                Generation(
                    text=text or "",
                    model=body.get("model"),
                    finish_reason=reason,
                    tool_calls=tuple(map(_tool_call, calls)),
                    reasoning=message.get("reasoning_content") or message.get("reasoning"),
                    refusal=refusal,
                    raw=message,
                    logprobs=wire.logprobs_in(field_or_none(choice.get("logprobs"), "content")),
                )
            )
        return found


class CompletionsWire(PromptWire):
    """``POST /completions``: continues a text without a chat template. vLLM still offers it."""

    path = "/completions"
    options = row_options = ROW_OPTIONS
    logprob_options = wire.LOGPROBS

    @classmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        fields = chat_fields(model, options)
        if "max_completion_tokens" in fields:  # the name in Chat Completions
            fields["max_tokens"] = fields.pop("max_completion_tokens")
        if "logprobs" in fields:  # here the number of tokens to list
            fields["logprobs"] = fields.pop("top_logprobs", 0)
        return fields

    def add(self, body: dict[str, Any], request: Request) -> None:
        if request.text is None or request.system or request.tools or request.output is not None:
            raise InvalidArgumentError(
                "Without a chat template a prompt must be one text. Conversations, system messages, images, tools and "
                "return formats need the template."
            )
        body["prompt"] = request.text
        if request.num_answers > 1:
            body["n"] = request.num_answers

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        found = []
        for choice in field_of(body, "choices", list):
            text, reason = field_of(choice, "text", str), choice.get("finish_reason")
            logprobs = _logprobs(choice.get("logprobs"))
            found.append(Generation(text, body.get("model"), finish_reason=reason, logprobs=logprobs))
        return found


def chat_fields(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    given = {
        RENAMED.get(name, name): options[name] for name in (*PASSED_ON, *RENAMED, *wire.LOGPROBS) if name in options
    }
    body = {"model": model, **given}
    if reasoning := wire.reasoning_of(options, ("effort",)):
        body["reasoning_effort"] = reasoning["effort"]
    if tools := wire.tools_of(options):
        body["tools"] = tools
    return body


def _logprobs(given: Any) -> list[dict[str, Any]] | None:
    """Return the log-probabilities of a completion, which has a list for each field."""
    tokens = field_or_none(given, "tokens")
    if not tokens:
        return None
    top = given.get("top_logprobs") or [None] * len(tokens)
    return [
        {
            "token": token,
            "logprob": logprob,
            "top_logprobs": [{"token": name, "logprob": each} for name, each in (others or {}).items()],
        }
        for token, logprob, others in zip(tokens, given["token_logprobs"], top, strict=True)
    ]


def _failed(error: Any) -> ProviderUnavailableError:
    """Return the error of a server that failed after it sent status 200, as OpenRouter may."""
    message = error.get("message") if isinstance(error, Mapping) else error
    return ProviderUnavailableError(f"the server failed while it answered: {message or 'no reason given'}")


def _text(content: Any) -> str | None:
    """Return the text of a content, perhaps an empty one; None if there is no text."""
    if content is None or isinstance(content, str):
        return content
    texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "".join(texts) if texts else None


def _tool_call(given: Mapping[str, Any]) -> ToolCall:
    function = field_of(given, "function", dict)
    return ToolCall(str(given.get("id", "")), field_of(function, "name", str), function.get("arguments") or "{}")


def _messages(turn: Turn) -> list[dict[str, Any]]:
    match turn:
        case UserTurn(parts):
            return [{"role": "user", "content": [_part(part) for part in parts]}]
        case ModelTurn(raw=dict(raw)):
            names = ("role", "content", "tool_calls", "refusal")
            return [{"role": "assistant", **{name: raw[name] for name in names if raw.get(name) is not None}}]
        case ModelTurn(text, calls):
            message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
            if calls:
                message["tool_calls"] = [
                    {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                    for each in calls
                ]
            return [message]
        case ToolTurn(results):
            return [{"role": "tool", "tool_call_id": each.call.id, "content": each.content} for each in results]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image_url", "image_url": {"url": wire.data_url(part)}}
        case Audio():
            return {"type": "input_audio", "input_audio": wire.audio_of(part)}
        case Document():
            return {"type": "file", "file": {"filename": part.name, "file_data": wire.data_url(part)}}

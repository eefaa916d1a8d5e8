"""Responses, OpenAI's present protocol."""

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
from penstock.errors import InvalidAnswerError, InvalidArgumentError, ProviderUnavailableError, RequestRefusedError

PASSED_ON = (
    *("temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "tool_choice", "service_tier", "user"),
    *("metadata", "store", "truncation", "include", "prompt_cache_key", "safety_identifier", "max_tool_calls"),
)
RENAMED = {"max_tokens": "max_output_tokens"}
CHAT_ONLY = ("stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias")
OPTIONS = (
    *PASSED_ON,
    *RENAMED,
    "reasoning",
    "reasoning_effort",
    "verbosity",
    "tools",
    "extra_body",
    "use_chat_completions",
)
ROW_OPTIONS = OPTIONS[:-1]

REASONING = ("effort", "summary", "generate_summary")

FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}


@dataclass(frozen=True)
class ResponsesWire:
    """``POST /responses``. ``body`` is what is the same for all rows, ``extra_body`` is merged into it."""

    body: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    takes_options: ClassVar[bool] = True

    @staticmethod
    def of(task: ModelTask, provider: str, model: str, options: Mapping[str, Any]) -> ResponsesWire:
        _refuse_chat_only(task.function, options)
        check_options(task, provider, OPTIONS)
        return ResponsesWire({"model": model, **_fields(options)}, extra_body_of(options))

    def call(self, request: Request) -> ApiCall:
        text = request.text
        given: Any = text if text is not None else [item for turn in request.turns for item in _items(turn)]
        body, extra_body = {**self.body, "input": given}, self.extra_body
        if request.options:
            _refuse_chat_only("a request", request.options)
            check_row_options(request.options, ROW_OPTIONS)
            body |= _fields(request.options)
            extra_body = merged(extra_body, extra_body_of(request.options))
        if request.system:
            body["instructions"] = request.system
        if request.output is not None:
            form = {"type": "json_schema", **request.output.named_schema}
            body["text"] = {**body.get("text", {}), "format": form}
        if request.tools:
            functions = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    "strict": False,
                }
                for tool in request.tools
            ]
            body["tools"] = [*body.get("tools", ()), *functions]
        return ApiCall("/responses", merged(body, extra_body) if extra_body else body)

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        status = body.get("status")
        if status != "completed":
            _check_status(status, body)
        output = field_of(body, "output", list)
        input_tokens, output_tokens, cached_tokens = usage_of(
            body.get("usage"), "input_tokens", "output_tokens", "input_tokens_details"
        )
        answer = Generation(
            "",
            body.get("model"),
            input_tokens,
            output_tokens,
            cached_tokens,
            finish_reason=_finish_reason(body) if status == "incomplete" else "stop",
            raw=output,
        )
        has_text = False
        for item in output:
            has_text |= _add(answer, item)
        if answer.tool_calls:
            answer.finish_reason = "tool_calls"
        if answer.finish_reason == "content_filter" and not answer.refusal:
            answer.refusal = "the provider's content filter stopped the answer"
        if not (has_text or answer.tool_calls or answer.refusal or answer.finish_reason == "length"):
            kinds = ", ".join(str(item.get("type")) for item in output) or "none"
            raise InvalidAnswerError(
                f"the response has no text, no call of a function and no refusal; its items are: {kinds}"
            )
        return [answer]


def _refuse_chat_only(what: str, options: Mapping[str, Any]) -> None:
    for name in CHAT_ONLY:
        if name in options:
            raise InvalidArgumentError(
                f"{what}: the Responses API does not take {name!r}; set use_chat_completions=True for it."
            )


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what options are in a body, but for those of ``extra_body``."""
    body = {RENAMED.get(name, name): options[name] for name in (*RENAMED, *PASSED_ON) if name in options}
    if reasoning := effort_of(options, "the Responses API", REASONING):
        body["reasoning"] = reasoning
    if "verbosity" in options:
        body["text"] = {"verbosity": options["verbosity"]}
    if tools := tools_of(options):
        body["tools"] = tools
    return body


def _finish_reason(body: Mapping[str, Any]) -> str:
    reason = (body.get("incomplete_details") or {}).get("reason") or "incomplete"
    return FINISH.get(reason, reason)


def _check_status(status: Any, body: Mapping[str, Any]) -> None:
    match status:
        case "failed":
            raise ProviderUnavailableError(f"the response failed: {body.get('error') or 'no reason given'}")
        case "queued" | "in_progress" if body.get("background"):
            raise RequestRefusedError(
                "background=True gives a response that is fetched later, which prompt does not do; leave it out."
            )
        case "queued" | "in_progress" | "cancelled":
            raise InvalidAnswerError(f"the response has status {status!r}, so there is no answer yet")


def _add(answer: Generation, item: Mapping[str, Any]) -> bool:
    """Add what an output item says to an answer, and say whether that was a text, which may be empty.

    Kinds that are not known, such as searches, are the server's own.
    """
    has_text = False
    match item.get("type"):
        case "message":
            for part in field_of(item, "content", list):
                kind = part.get("type")
                if kind == "output_text":
                    answer.text += field_of(part, "text", str, "a part of the response")
                    has_text = True
                elif kind == "refusal":
                    answer.refusal = part.get("refusal") or "the model declined"
                elif text := part.get("text"):
                    answer.text += text
                    has_text = True
        case "function_call":
            call = ToolCall(field_of(item, "call_id", str), field_of(item, "name", str), item.get("arguments") or "{}")
            answer.tool_calls += (call,)
        case "reasoning":
            summary = "\n".join(part.get("text", "") for part in item.get("summary") or ())
            answer.reasoning = f"{answer.reasoning or ''}{summary}" or None
    return has_text


def _items(turn: UserTurn | ModelTurn | ToolTurn) -> list[dict[str, Any]]:
    match turn:
        case UserTurn(parts):
            return [{"role": "user", "content": [_part(part) for part in parts]}]
        case ModelTurn(raw=list(raw)) if raw:
            return list(raw)
        case ModelTurn(text, calls):
            said: list[dict[str, Any]] = [{"role": "assistant", "content": text}] if text or not calls else []
            called = [
                {"type": "function_call", "call_id": each.id, "name": each.name, "arguments": each.arguments}
                for each in calls
            ]
            return said + called
        case ToolTurn(results):
            return [
                {"type": "function_call_output", "call_id": each.call.id, "output": each.content} for each in results
            ]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image(data, mime_type):
            return {"type": "input_image", "image_url": data_url(data, mime_type)}
        case Audio(data, mime_type):
            audio = {"data": encoded(data), "format": audio_format(mime_type)}
            return {"type": "input_audio", "input_audio": audio}
        case Document(data, mime_type, name):
            return {"type": "input_file", "filename": name, "file_data": data_url(data, mime_type)}

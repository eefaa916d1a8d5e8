"""Responses, OpenAI's current API."""

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
from penstock.ai.lenient_json import field_of
from penstock.ai.providers import wire
from penstock.ai.providers.wire import PromptWire
from penstock.errors import InvalidAnswerError, InvalidArgumentError, ProviderUnavailableError

# Options that the API has under the same name.
PASSED_ON = (
    *("temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "tool_choice", "service_tier", "user"),
    *("metadata", "store", "truncation", "include", "prompt_cache_key", "safety_identifier", "max_tool_calls"),
)
RENAMED = {"max_tokens": "max_output_tokens"}
CHAT_ONLY = ("stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias")
ROW_OPTIONS = (*PASSED_ON, *RENAMED, "reasoning", "reasoning_effort", "verbosity", "tools", "extra_body")
LOGPROBS = "message.output_text.logprobs"
REASONING = ("effort", "summary", "generate_summary")
FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponsesWire(PromptWire):
    """``POST /responses``."""

    path = "/responses"
    options = (*ROW_OPTIONS, "use_chat_completions")
    logprob_options = wire.LOGPROBS
    row_options = ROW_OPTIONS

    @classmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in CHAT_ONLY:
            if name in options:
                raise InvalidArgumentError(
                    f"{what}: the Responses API does not take {name!r}; set use_chat_completions=True for it."
                )
        given = {RENAMED.get(name, name): options[name] for name in (*RENAMED, *PASSED_ON) if name in options}
        body = {"model": model, **given}
        if reasoning := wire.reasoning_of(options, REASONING):
            body["reasoning"] = reasoning
        if "verbosity" in options:
            body["text"] = {"verbosity": options["verbosity"]}
        if tools := wire.tools_of(options):
            body["tools"] = tools
        if options.get("logprobs"):
            body["include"] = [*(options.get("include") or ()), LOGPROBS]
            body["top_logprobs"] = options.get("top_logprobs", 0)
        return body

    def add(self, body: dict[str, Any], request: Request) -> None:
        text = request.text
        body["input"] = text if text is not None else [item for turn in request.turns for item in _items(turn)]
        if request.system:
            body["instructions"] = request.system
        if request.output is not None:
            schema = {"type": "json_schema", **request.output.named_schema}
            body["text"] = {**body.get("text", {}), "format": schema}
        if request.tools:
            functions = [
                {"type": "function", **wire.declaration(tool, "parameters"), "strict": False} for tool in request.tools
            ]
            body["tools"] = [*body.get("tools", ()), *functions]

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        status = body.get("status")
        if status != "completed":
            _check_status(status, body)
        output = field_of(body, "output", list)
        answer = Generation(
            "",
            body.get("model"),
            finish_reason=_finish_reason(body) if status == "incomplete" else "stop",
            raw=output,
        )
        has_text = False
        for item in output:
            has_text |= _add(answer, item)
        if answer.tool_calls:
            answer.finish_reason = "tool_calls"
        if answer.finish_reason == "content_filter" and not answer.refusal:
            answer.refusal = wire.FILTERED
        if not (has_text or answer.tool_calls or answer.refusal or answer.finish_reason == "length"):
            kinds = ", ".join(str(item.get("type")) for item in output) or "none"
            raise InvalidAnswerError(
                f"the response has no text, no function call and no refusal; its items are: {kinds}"
            )
        return [answer]


def _finish_reason(body: Mapping[str, Any]) -> str:
    reason = (body.get("incomplete_details") or {}).get("reason") or "incomplete"
    return FINISH_REASONS.get(reason, reason)


def _check_status(status: Any, body: Mapping[str, Any]) -> None:
    match status:
        case "failed":
            raise ProviderUnavailableError(f"the response failed: {body.get('error') or 'no reason given'}")
        case "queued" | "in_progress" | "cancelled":
            raise InvalidAnswerError(f"the response has status {status!r}, so there is no answer yet")


def _add(answer: Generation, item: Mapping[str, Any]) -> bool:
    """Add an output item to an answer. Return whether it was a text, even an empty one. Ignore unknown items."""
    has_text = False
    match item.get("type"):
        case "message":
            for part in field_of(item, "content", list):
                kind = part.get("type")
                if kind == "output_text":
                    answer.text += field_of(part, "text", str, "a part of the response")
                    has_text = True
                    if logprobs := wire.logprobs_in(part.get("logprobs")):
                        answer.logprobs = [*(answer.logprobs or ()), *logprobs]
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


def _items(turn: Turn) -> list[dict[str, Any]]:
    match turn:
        case UserTurn(parts):
            return [{"role": "user", "content": [_part(part) for part in parts]}]
        case ModelTurn(raw=list(raw)) if raw:
            return list(raw)
        case ModelTurn(text, calls):
            message: list[dict[str, Any]] = [{"role": "assistant", "content": text}] if text or not calls else []
            items = [
                {"type": "function_call", "call_id": each.id, "name": each.name, "arguments": each.arguments}
                for each in calls
            ]
            return message + items
        case ToolTurn(results):
            return [
                {"type": "function_call_output", "call_id": each.call.id, "output": each.content} for each in results
            ]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": wire.data_url(part)}
        case Audio():
            return {"type": "input_audio", "input_audio": wire.audio_of(part)}
        case Document():
            return {"type": "input_file", "filename": part.name, "file_data": wire.data_url(part)}

"""Anthropic: the Messages API.

Structured output uses ``output_config.format``, since the newest models cannot be forced to call a tool.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.ai.client.api_call import Endpoint
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
    ToolResult,
    ToolTurn,
    Turn,
    UserTurn,
)
from penstock.ai.lenient_json import field_of
from penstock.ai.provider import ImageClassification, Model, ModelTask, Prompting, TextClassification
from penstock.ai.providers.anthropic_batches import AnthropicBatchService
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.ai.providers.remote_provider import RemoteProvider
from penstock.ai.providers.wire import (
    PromptWire,
    base64_of,
    declaration,
    max_tokens_of,
    object_of,
    reasoning_of,
    stops_of,
    tools_of,
)
from penstock.ai.structured.return_formats import OutputFormat
from penstock.errors import RequestRefusedError

API_VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
"""The last version of the API that has temperature, top_p and top_k, for models that still take them."""

MAX_TOKENS = 16_384
"""The API requires a limit. This limit leaves room for reasoning, and answers of this length arrive within usual
time-outs."""

SCHEMA_IN_WORDS = "Answer with JSON only, without Markdown around it, that is valid under this JSON schema:\n"

SAMPLING = ("temperature", "top_p", "top_k")
REASONING = ("effort", "max_tokens", "summary")
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_KEYWORDS = ("title", "description", "required", "enum", "const", "$ref")  # supported


@dataclass(frozen=True)
class AnthropicProvider(RemoteProvider):
    """Claude models. ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL are defaults for ``api_key`` and ``base_url``."""

    name: str = "anthropic"
    key_variables: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    url_variable: ClassVar[str | None] = "ANTHROPIC_BASE_URL"
    default_url: ClassVar[str] = "https://api.anthropic.com"
    default_models: ClassVar[Mapping[str, str]] = {"prompt": "claude-haiku-5-5"}
    has_batch_api: ClassVar[bool] = True
    key_header: ClassVar[tuple[str, str]] = ("x-api-key", "{}")
    version_path: ClassVar[str] = "/v1"

    def model(self, task: ModelTask) -> Model:
        match task:
            case Prompting() | TextClassification() | ImageClassification():
                model = task.model or self.default_models["prompt"]
                wire = MessagesWire.of(task, self.name, model)
                endpoint = with_version(self.endpoint(), wire)
                return ApiPrompter(endpoint, wire, model, task.settings, AnthropicBatchService())
            case _:
                return super().model(task)


def with_version(endpoint: Endpoint, wire: MessagesWire) -> Endpoint:
    """Return the server for the calls of a wire, with the version of the API in a header."""
    return replace(endpoint, headers=tuple({"anthropic-version": wire.api_version, **dict(endpoint.headers)}.items()))


class MessagesWire(PromptWire):
    """POST /v1/messages. One call gives one answer."""

    path = "/v1/messages"
    takes_cache_control = True
    options = row_options = ("extra_body", "max_output_tokens", "max_tokens", "reasoning", "stop", "tools", *SAMPLING)

    @classmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        reasoning = reasoning_of(options, REASONING)
        effort, budget = reasoning.get("effort"), reasoning.get("max_tokens")
        fields = {"model": model, **{name: options[name] for name in SAMPLING if name in options}}
        fields["max_tokens"] = max_tokens_of(options) or MAX_TOKENS + (budget or 0)
        if stops := stops_of(options):
            fields["stop_sequences"] = stops
        if effort == "none":
            fields["thinking"] = {"type": "disabled"}
        elif reasoning:
            shown = {"display": "summarized"} if reasoning.get("summary") else {}
            kind = {"type": "enabled", "budget_tokens": budget} if budget else {"type": "adaptive"}
            fields["thinking"] = {**kind, **shown}
            if effort:
                fields["output_config"] = {"effort": "low" if effort == "minimal" else effort}
        if tools := tools_of(options):
            fields["tools"] = tools
        return fields

    @property
    def api_version(self) -> str:
        is_sampling = any(name in self.body or name in self.row_names for name in SAMPLING)
        return SAMPLING_VERSION if is_sampling else API_VERSION

    def body_of_row(self, options: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body_of_row(options)
        if not any(name in options for name in ("max_output_tokens", "max_tokens", "reasoning")):
            body["max_tokens"] = self.body["max_tokens"]
        return body

    def add(self, body: dict[str, Any], request: Request) -> None:
        body["messages"] = _messages(request.turns)
        system: Any = _blocks(request.system_parts) or request.system
        if request.output is not None:
            if (schema := _output_schema(request.output)) is not None:
                body["output_config"] = {
                    **body.get("output_config", {}),
                    "format": {"type": "json_schema", "schema": schema},
                }
            else:
                system = _extended(system, SCHEMA_IN_WORDS + json.dumps(request.output.schema))
        if system:
            body["system"] = system
        if request.tools:
            functions = [declaration(tool, "input_schema") for tool in request.tools]
            body["tools"] = [*body.get("tools", ()), *functions]

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        blocks = field_of(body, "content", list, "Anthropic's answer")
        reason = body.get("stop_reason")
        return [
            Generation(
                text="".join(_texts(blocks, "text", "text")),
                model=body.get("model") or self.model,
                finish_reason=FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None,
                tool_calls=tuple(_tool_calls(blocks)),
                reasoning="\n\n".join(filter(None, _texts(blocks, "thinking", "thinking"))) or None,
                refusal=_refusal(body) if reason == "refusal" else None,
                raw=blocks,
            )
        ]


# --- requests ---------------------------------------------------------------------------------------------------------


def _messages(turns: tuple[Turn, ...]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        match turn:
            case UserTurn((Text(text, None),)):
                messages.append({"role": "user", "content": text})
            case UserTurn(parts):
                messages.append({"role": "user", "content": _blocks(parts)})
            case ModelTurn():
                messages.append({"role": "assistant", "content": _model_content(turn)})
            case ToolTurn(results):
                messages.append({"role": "user", "content": [_result(result) for result in results]})
    return messages


def _extended(system: Any, text: str) -> Any:
    if isinstance(system, list):
        return [*system, {"type": "text", "text": text}]
    return f"{system}\n\n{text}" if system else text


def _blocks(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    # The API refuses empty texts.
    return [_marked_block(part) for part in parts if not (isinstance(part, Text) and not part.text)]


def _marked_block(part: Part) -> dict[str, Any]:
    return {**_block(part), "cache_control": part.cache_control} if part.cache_control else _block(part)


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image", "source": _source(part)}
        case Document(mime_type="application/pdf"):
            return {"type": "document", "source": _source(part), "title": part.name}
        case Document() | Audio():
            raise RequestRefusedError(
                f"Provider 'anthropic' does not read {part.mime_type}; it reads text, images (PNG, JPEG, WebP, GIF) "
                "and PDF. Extract its text or pictures first."
            )


def _source(part: Image | Document) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.mime_type, "data": base64_of(part)}


def _model_content(turn: ModelTurn) -> Any:
    """Return a turn of the model. Its own blocks, if any, stay unchanged, because reasoning is signed."""
    if turn.raw is not None:
        return turn.raw
    if not turn.tool_calls:
        return turn.text
    text = [{"type": "text", "text": turn.text}] if turn.text else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": object_of(call.arguments)}
        for call in turn.tool_calls
    ]
    return [*text, *calls]


def _result(result: ToolResult) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": result.call.id, "content": result.content}
    return {**block, "is_error": True} if result.is_error else block


@functools.lru_cache(maxsize=64)
def _output_schema(output: OutputFormat) -> Any:
    """Return the strict schema of a format, or None if it has none. Cached, since all rows have the same format."""
    named = output.named_schema
    return _schema_of(named["schema"]) if named["strict"] else None


def _schema_of(schema: Any) -> Any:
    """Return a strict schema with the keywords that this API supports; move the others into the description.

    >>> _schema_of({"type": ["integer", "null"], "minimum": 1})
    {'anyOf': [{'type': 'integer', 'description': '(minimum: 1)'}, {'type': 'null'}]}
    """
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(kinds := schema.get("type"), list):
        rest = {name: value for name, value in schema.items() if name != "type"}
        return {"anyOf": [_schema_of({"type": kind} if kind == "null" else {**rest, "type": kind}) for kind in kinds]}
    kept: dict[str, Any] = {}
    other: list[str] = []
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            kept[name] = {key: _schema_of(inner) for key, inner in value.items()}
        elif name in ("anyOf", "oneOf", "allOf"):
            kept["anyOf" if name == "oneOf" else name] = [_schema_of(inner) for inner in value]
        elif name == "items":
            kept[name] = _schema_of(value)
        elif name == "type":
            if not ("enum" in schema or "const" in schema):
                kept[name] = value
        elif name == "additionalProperties":
            kept[name] = False
        elif name in _KEYWORDS:
            kept[name] = value
        else:
            other.append(f"{name}: {json.dumps(value)}")
    if other:
        kept["description"] = " ".join(filter(None, (kept.get("description"), f"({', '.join(other)})")))
    return kept


# --- answers ----------------------------------------------------------------------------------------------------------


def _texts(blocks: list[Any], kind: str, name: str) -> list[str]:
    return [
        block[name]
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == kind and isinstance(block.get(name), str)
    ]


def _tool_calls(blocks: list[Any]) -> list[ToolCall]:
    return [
        ToolCall(
            field_of(block, "id", str, "A tool call in Anthropic's answer"),
            field_of(block, "name", str, "A tool call in Anthropic's answer"),
            json.dumps(block.get("input") or {}),
        )
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == "tool_use"
    ]


def _refusal(body: Mapping[str, Any]) -> str:
    details = body.get("stop_details") or {}
    reason = details.get("explanation") or details.get("category")
    return f"Claude declined to answer: {reason}" if reason else "Claude declined to answer."

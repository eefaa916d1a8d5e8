"""Anthropic: the Messages API.

The options of a model depend on the version in its name: reasoning takes an effort since 4.6 and a token budget before,
and there is no temperature since 4.7. Structured output uses ``output_config.format``, since the newest models cannot
be forced to call a tool.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from penstock.ai.conversation import (
    Audio,
    Document,
    Generation,
    Image,
    ModelTurn,
    Part,
    Request,
    ReturnFormat,
    Text,
    ToolCall,
    ToolResult,
    ToolTurn,
    Turn,
    UserTurn,
)
from penstock.ai.provider import ImageClassification, Model, ModelTask, Prompting, TextClassification
from penstock.ai.remote.addresses import checked_address, without_end
from penstock.ai.remote.batch.anthropic import AnthropicBatchService
from penstock.ai.remote.prompter import ApiPrompter
from penstock.ai.remote.server import RemoteProvider
from penstock.ai.remote.wires import bodies
from penstock.ai.remote.wires.wire import ApiCall, Endpoint, field_of
from penstock.errors import InvalidArgumentError

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
"""The last version of the API with temperature, top_p and top_k, for models that still take them."""

MAX_TOKENS = 16_384
"""The API requires a limit. This one leaves room for reasoning, and such an answer arrives within usual time-outs."""

BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 4_096, "high": 16_384, "xhigh": 32_768, "max": 32_768}
"""Reasoning tokens by effort, for models before 4.6."""

SAMPLING = ("temperature", "top_p", "top_k")
KNOWN = ("extra_body", "max_output_tokens", "max_tokens", "reasoning", "stop", "tools", *SAMPLING)
UNSUPPORTED = {
    "seed": "the Messages API has none, and its answers are never certain to be equal",
    "use_chat_completions": "that is OpenAI's API; Anthropic has the Messages API",
    "frequency_penalty": "the Messages API has none",
    "presence_penalty": "the Messages API has none",
    "logprobs": "the Messages API has none",
}
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_KEYWORDS = ("title", "description", "required", "enum", "const", "$ref")  # supported


@dataclass(frozen=True)
class AnthropicProvider(RemoteProvider):
    """Claude models. ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL are defaults for ``api_key`` and ``base_url``."""

    name: str = "anthropic"
    key_variables: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    default_models: ClassVar[Mapping[str, str]] = {"prompt": "claude-haiku-5-5"}
    has_batch_api: ClassVar[bool] = True

    def model(self, task: ModelTask) -> Model:
        match task:
            case Prompting() | TextClassification() | ImageClassification():
                model = task.model or self.default_models["prompt"]
                wire = MessagesWire(model, task.options)
                return ApiPrompter(self.endpoint(wire), wire, model, task.settings, AnthropicBatchService())
            case _:
                return super().model(task)

    def endpoint(self, wire: MessagesWire) -> Endpoint:
        """Return the server for the calls of a wire."""
        base_url = self.base_url or os.environ.get("ANTHROPIC_BASE_URL") or BASE_URL
        headers = {"anthropic-version": wire.api_version, **dict(self.headers)}
        return Endpoint(
            provider=self.name,
            base_url=without_end(checked_address(base_url), "/v1"),
            key=self.key(),
            key_header=("x-api-key", "{}"),
            headers=tuple(headers.items()),
        )


@dataclass(frozen=True)
class MessagesWire:
    """POST /v1/messages. One call gives one answer."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    takes_options: ClassVar[bool] = False

    def __post_init__(self) -> None:
        bodies.check_prompt_options("anthropic", self.model, self.options, KNOWN, UNSUPPORTED)
        bodies.tools_of(self.options)
        bodies.extra_body_of(self.options)
        _ = self._fields  # raises errors about options when the plan is built

    @property
    def api_version(self) -> str:
        return SAMPLING_VERSION if any(self.options.get(name) is not None for name in SAMPLING) else API_VERSION

    def call(self, request: Request) -> ApiCall:
        body = {"model": self.model, "messages": _messages(request.turns), **self._fields}
        system = request.system
        if request.output is not None:
            if (schema := self._schema(request.output)) is not None:
                body["output_config"] = {
                    **body.get("output_config", {}),
                    "format": {"type": "json_schema", "schema": schema},
                }
            else:
                system = "\n\n".join(filter(None, (system, bodies.schema_as_words(request.output))))
        if system:
            body["system"] = system
        functions = [bodies.declaration(tool, "input_schema") for tool in request.tools]
        if tools := [*bodies.tools_of(self.options), *functions]:
            body["tools"] = tools
        return ApiCall("/v1/messages", bodies.merged(body, bodies.extra_body_of(self.options)))

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        blocks = field_of(body, "content", list, "Anthropic's answer")
        reason = body.get("stop_reason")
        return [
            Generation(
                text="".join(_texts(blocks, "text", "text")),
                model=body.get("model") or self.model,
                **bodies.tokens_in(body),
                finish_reason=FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None,
                tool_calls=tuple(_tool_calls(blocks)),
                reasoning="\n\n".join(filter(None, _texts(blocks, "thinking", "thinking"))) or None,
                refusal=_refusal(body) if reason == "refusal" else None,
                raw=blocks,
            )
        ]

    def _schema(self, output: ReturnFormat) -> Any:
        """Return the schema to send for a format. Cached, since all rows have the same format."""
        known = self.__dict__.get("_known")
        if known is None or known[0] is not output:
            known = self.__dict__["_known"] = (output, _schema_of(output.strict_schema()))
        return known[1]

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """The fields that all requests of this wire share."""
        options, version = self.options, bodies.version_of(self.model)
        fields: dict[str, Any] = {name: options[name] for name in SAMPLING if options.get(name) is not None}
        if fields and version is not None and version >= (4, 7):
            raise InvalidArgumentError(
                f"Model {self.model!r} takes no {', '.join(fields)}, like all Claude models since 4.7. Leave it out, "
                "or set reasoning={'effort': 'low'} for less reasoning."
            )
        given = bodies.max_tokens_of(options)
        thinking, effort, budget = _thinking(self.model, version, options)
        if budget and given is not None and given <= budget:
            raise InvalidArgumentError(
                f"max_output_tokens={given} leaves no room for an answer after {budget} reasoning tokens; raise it, or "
                "lower reasoning=."
            )
        fields["max_tokens"] = given if given is not None else MAX_TOKENS + (budget or 0)
        if stops := bodies.stops_of(options):
            fields["stop_sequences"] = stops
        if thinking:
            fields["thinking"] = thinking
        if effort:
            fields["output_config"] = {"effort": effort}
        return fields


def _thinking(
    model: str, version: tuple[int, int] | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, str | None, int | None]:
    """Return the fields ``thinking`` and ``output_config.effort``, and the maximum number of reasoning tokens."""
    effort, budget, is_shown = bodies.reasoning_of(options)
    shown = {"display": "summarized"} if is_shown else {}
    is_adaptive = version is None or version >= (4, 6)
    if effort == "none":
        return _no_thinking(model, version), None, None
    if budget is not None and is_adaptive and version != (4, 6):
        raise InvalidArgumentError(
            f"Model {model!r} takes no reasoning budget, like all Claude models since 4.7. "
            "Use reasoning={'effort': 'low'}, up to 'max'."
        )
    if effort is not None and not is_adaptive:
        budget = BUDGETS[effort]
    if budget is not None:
        if budget < 1_024:
            raise InvalidArgumentError(f"The reasoning budget of Claude is 1024 tokens or more; got {budget}.")
        return {"type": "enabled", "budget_tokens": budget, **shown}, None, budget
    if effort is None and not is_shown:
        return None, None, None
    if not is_adaptive:
        return {"type": "enabled", "budget_tokens": BUDGETS["low"], **shown}, None, BUDGETS["low"]
    return {"type": "adaptive", **shown}, "low" if effort == "minimal" else effort, None


def _no_thinking(model: str, version: tuple[int, int] | None) -> dict[str, Any] | None:
    if version is not None and version < (5, 0):
        return None  # these models reason only if asked to
    is_new = version is None or version >= (5, 5)
    if "fable" in model or "mythos" in model or ("opus" in model and is_new):
        raise InvalidArgumentError(f"Model {model!r} always reasons; use reasoning={{'effort': 'low'}} for the least.")
    return {"type": "between_tools" if "sonnet" in model and is_new else "disabled"}


# --- requests ---------------------------------------------------------------------------------------------------------


def _messages(turns: tuple[Turn, ...]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        match turn:
            case UserTurn((Text(text),)):
                messages.append({"role": "user", "content": text})
            case UserTurn(parts):
                messages.append({"role": "user", "content": _blocks(parts)})
            case ModelTurn():
                messages.append({"role": "assistant", "content": _model_content(turn)})
            case ToolTurn(results):
                messages.append({"role": "user", "content": [_result(result) for result in results]})
    return messages


def _blocks(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    # The API refuses empty texts.
    return [_block(part) for part in parts if not (isinstance(part, Text) and not part.text)]


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image", "source": _source(part)}
        case Document(mime_type="application/pdf"):
            return {"type": "document", "source": _source(part), "title": part.name}
        case Document() | Audio():
            raise bodies.cannot_read("anthropic", part, "text, images (PNG, JPEG, WebP, GIF) and PDF")


def _source(part: Image | Document) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.mime_type, "data": bodies.base64_of(part)}


def _model_content(turn: ModelTurn) -> Any:
    """Return a turn of the model, with its own blocks unchanged if there are any: reasoning is signed."""
    if turn.raw is not None:
        return turn.raw
    if not turn.tool_calls:
        return turn.text
    text = [{"type": "text", "text": turn.text}] if turn.text else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": bodies.object_of(call.arguments)}
        for call in turn.tool_calls
    ]
    return [*text, *calls]


def _result(result: ToolResult) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": result.call.id, "content": result.content}
    return {**block, "is_error": True} if result.is_error else block


def _schema_of(schema: Any) -> Any:
    """Return a strict schema with the keywords that this API supports. The description holds the others.

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
        elif name in _KEYWORDS or (name == "format" and value in _FORMATS) or (name == "minItems" and value in (0, 1)):
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

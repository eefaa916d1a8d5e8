"""Google: Gemini models by ``generateContent``, and their embeddings.

Reasoning takes a level since Gemini 3 and a token budget before. Only models before Gemini 3 give several answers to
one call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from penstock.ai.conversation import (
    Generation,
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
from penstock.ai.provider import (
    ImageClassification,
    Model,
    ModelTask,
    NDArray,
    Prompting,
    TextClassification,
    TextEmbedding,
    check_options,
)
from penstock.ai.remote.addresses import checked_address, without_end
from penstock.ai.remote.embedder import ApiEmbedder
from penstock.ai.remote.prompter import ApiPrompter
from penstock.ai.remote.server import RemoteProvider
from penstock.ai.remote.wires import bodies
from penstock.ai.remote.wires.wire import ApiCall, Endpoint, field_of
from penstock.errors import InvalidAnswerError, InvalidArgumentError

BASE_URL = "https://generativelanguage.googleapis.com"
LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "xhigh": "HIGH", "max": "HIGH"}
BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
"""Reasoning tokens by effort, for models before Gemini 3, as in Google's OpenAI-compatible API."""

MAX_CANDIDATES = 8
EMBEDDING_DIMENSIONS = {"gemini-embedding-2": 3072, "gemini-embedding-001": 3072}
MAX_EMBEDDING_INPUTS = 100  # of one call
MAX_EMBEDDING_TOKENS = 2048  # of one text; the API would truncate it silently

_FIELDS = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
KNOWN = ("extra_body", "max_output_tokens", "max_tokens", "reasoning", "stop", "tools", *_FIELDS)
UNSUPPORTED = {
    "use_chat_completions": "that is OpenAI's API; for Google's compatible API use provider 'openai' with base_url=",
}
FINISH_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}
FILTERED = (
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
)
_OWN_ID = "penstock-call-"  # of calls without an id of the API
_NO_SIGNATURE = "skip_thought_signature_validator"  # marks a call that another model made


@dataclass(frozen=True)
class GoogleProvider(RemoteProvider):
    """Gemini models. The key comes from ``api_key``, GOOGLE_API_KEY or GEMINI_API_KEY."""

    name: str = "google"
    key_variables: ClassVar[tuple[str, ...]] = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    default_models: ClassVar[Mapping[str, str]] = {"prompt": "gemini-3.8-flash", "embed_text": "gemini-embedding-2"}

    def model(self, task: ModelTask) -> Model:
        match task:
            case Prompting() | TextClassification() | ImageClassification():
                model = task.model or self.default_models["prompt"]
                return ApiPrompter(self.endpoint(), GenerateWire(model, task.options), model, task.settings)
            case TextEmbedding():
                check_options(task, self.name, ("batch_size",))
                model = self.model_name(task)
                size = bodies.batch_size_of(task, MAX_EMBEDDING_INPUTS, MAX_EMBEDDING_INPUTS)
                wire = GoogleEmbeddings(model, task.dimensions, size)
                dimensions = embedding_dimensions(model, task.dimensions)
                return ApiEmbedder(self.endpoint(), wire, model, dimensions, task.settings)
            case _:
                return super().model(task)

    def endpoint(self) -> Endpoint:
        """Return the server."""
        base_url = self.base_url or os.environ.get("GOOGLE_GEMINI_BASE_URL") or BASE_URL
        return Endpoint(
            provider=self.name,
            base_url=without_end(checked_address(base_url), "/v1beta"),
            key=self.key(),
            key_header=("x-goog-api-key", "{}"),
            headers=self.headers,
        )


def _path(model: str, method: str) -> str:
    return f"/v1beta/{model if '/' in model else f'models/{model}'}:{method}"


@dataclass(frozen=True)
class GenerateWire:
    """POST /v1beta/models/{model}:generateContent."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    takes_options: ClassVar[bool] = False

    def __post_init__(self) -> None:
        bodies.check_prompt_options("google", self.model, self.options, KNOWN, UNSUPPORTED)
        bodies.tools_of(self.options)
        bodies.extra_body_of(self.options)
        _ = self._config  # raises errors about options when the plan is built

    @cached_property
    def is_old(self) -> bool:
        """True for models before Gemini 3."""
        version = bodies.version_of(self.model)
        return version is not None and version < (3, 0)

    def call(self, request: Request) -> ApiCall:
        body: dict[str, Any] = {"contents": _contents(request.turns)}
        config, system = dict(self._config), request.system
        tools = bodies.tools_of(self.options)
        if request.tools:
            tools.append(
                {"functionDeclarations": [bodies.declaration(tool, "parametersJsonSchema") for tool in request.tools]}
            )
        if request.output is not None:
            if tools and self.is_old:  # old models take tools or a schema, not both
                system = "\n\n".join(filter(None, (system, bodies.schema_as_words(request.output))))
            else:
                config |= {"responseMimeType": "application/json", "responseJsonSchema": request.output.schema}
        if request.num_answers > 1 and self.is_old:
            config["candidateCount"] = min(request.num_answers, MAX_CANDIDATES)
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if tools:
            body["tools"] = tools
        if config:
            body["generationConfig"] = config
        return ApiCall(_path(self.model, "generateContent"), bodies.merged(body, bodies.extra_body_of(self.options)))

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        model = body.get("modelVersion") or self.model
        tokens = bodies.tokens_in(body)
        feedback = body.get("promptFeedback") or {}
        if not body.get("candidates") and (blocked := feedback.get("blockReason")):
            message = feedback.get("blockReasonMessage")
            refusal = f"Google blocked the prompt: {blocked}" + (f", {message}" if message else "")
            return [Generation("", model, **tokens, finish_reason="content_filter", refusal=refusal)]
        candidates = field_of(body, "candidates", list, "Google's answer")
        if not candidates:
            raise InvalidAnswerError("Google's answer has an empty list of 'candidates' and no reason for it.")
        return [
            _generation(candidate, model, {} if number else tokens)  # the first has the tokens of all
            for number, candidate in enumerate(candidates)
            if isinstance(candidate, Mapping)
        ]

    @cached_property
    def _config(self) -> dict[str, Any]:
        """The fields of ``generationConfig`` that all requests of this wire share."""
        options = self.options
        config = {name: options[ours] for ours, name in _FIELDS.items() if options.get(ours) is not None}
        if (limit := bodies.max_tokens_of(options)) is not None:
            config["maxOutputTokens"] = limit
        if stops := bodies.stops_of(options):
            config["stopSequences"] = stops
        if thinking := self._thinking():
            config["thinkingConfig"] = thinking
        return config

    def _thinking(self) -> dict[str, Any]:
        effort, budget, is_shown = bodies.reasoning_of(self.options)
        thinking: dict[str, Any] = {"includeThoughts": True} if is_shown else {}
        if budget is not None:
            thinking["thinkingBudget"] = budget
        elif effort is not None and self.is_old:
            thinking["thinkingBudget"] = BUDGETS[effort]
        elif effort == "none":
            raise InvalidArgumentError(
                f"Model {self.model!r} always reasons; use reasoning={{'effort': 'minimal'}} or 'low' for the least."
            )
        elif effort is not None:
            thinking["thinkingLevel"] = LEVELS[effort]
        return thinking


# --- requests ---------------------------------------------------------------------------------------------------------


def _contents(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    for turn in turns:
        match turn:
            case UserTurn(parts):
                contents.append({"role": "user", "parts": [_part(part) for part in parts]})
            case ModelTurn():
                contents.append(_model_content(turn))
            case ToolTurn(results):
                contents.append({"role": "user", "parts": [_result(result) for result in results]})
    return contents


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    return {"inlineData": {"mimeType": part.mime_type, "data": bodies.base64_of(part)}}


def _model_content(turn: ModelTurn) -> Any:
    """Return a turn of the model, with its own content unchanged if there is one: reasoning is signed."""
    if turn.raw is not None:
        return turn.raw
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text or not turn.tool_calls else []
    for number, call in enumerate(turn.tool_calls):
        part: dict[str, Any] = {
            "functionCall": {**_id(call), "name": call.name, "args": bodies.object_of(call.arguments)}
        }
        parts.append(part if number else {**part, "thoughtSignature": _NO_SIGNATURE})
    return {"role": "model", "parts": parts}


def _id(call: ToolCall) -> dict[str, str]:
    return {} if call.id.startswith(_OWN_ID) else {"id": call.id}


def _result(result: ToolResult) -> dict[str, Any]:
    response = {"error" if result.is_error else "output": result.content}
    return {"functionResponse": {**_id(result.call), "name": result.call.name, "response": response}}


# --- answers ----------------------------------------------------------------------------------------------------------


def _generation(candidate: Mapping[str, Any], model: str, tokens: Mapping[str, Any]) -> Generation:
    content = candidate.get("content") or {}
    parts = [part for part in content.get("parts") or () if isinstance(part, Mapping)]
    reason = candidate.get("finishReason")
    calls = tuple(
        _tool_call(part["functionCall"], number) for number, part in enumerate(parts) if "functionCall" in part
    )
    finish = "tool_calls" if calls else _finish_reason(reason)
    message = candidate.get("finishMessage")
    refusal = (
        f"Google stopped the answer: {reason}" + (f", {message}" if message else "") if reason in FILTERED else None
    )
    return Generation(
        text="".join(_texts(parts, is_thought=False)),
        model=model,
        **tokens,
        finish_reason=finish,
        tool_calls=calls,
        reasoning="".join(_texts(parts, is_thought=True)) or None,
        refusal=refusal,
        raw={**content, "role": "model"} if parts else None,
    )


def _finish_reason(reason: Any) -> str | None:
    if not isinstance(reason, str):
        return None
    return "content_filter" if reason in FILTERED else FINISH_REASONS.get(reason, reason.lower())


def _texts(parts: Sequence[Mapping[str, Any]], is_thought: bool) -> list[str]:
    return [
        part["text"] for part in parts if isinstance(part.get("text"), str) and bool(part.get("thought")) == is_thought
    ]


def _tool_call(call: Mapping[str, Any], number: int) -> ToolCall:
    name = field_of(call, "name", str, "A function call in Google's answer")
    return ToolCall(call.get("id") or f"{_OWN_ID}{number}", name, json.dumps(call.get("args") or {}))


# --- embeddings -------------------------------------------------------------------------------------------------------


def embedding_dimensions(model: str, dimensions: int | None) -> int:
    """Return the dimensions of a model, which must be known when the plan is built."""
    largest = EMBEDDING_DIMENSIONS.get(model.removeprefix("models/"))
    if dimensions is None and largest is None:
        known = ", ".join(EMBEDDING_DIMENSIONS)
        raise InvalidArgumentError(
            f"The dimensions of {model!r} are not known; give dimensions=..., or use one of {known}."
        )
    if dimensions is not None and not 1 <= dimensions <= (largest or dimensions):
        raise InvalidArgumentError(f"Model {model!r} gives 1 to {largest} dimensions; got dimensions={dimensions}.")
    return dimensions or largest or 0


@dataclass(frozen=True)
class GoogleEmbeddings:
    """POST /v1beta/models/{model}:batchEmbedContents."""

    model: str
    dimensions: int | None
    max_items: int = MAX_EMBEDDING_INPUTS
    max_tokens: int | None = None
    max_input_tokens: int | None = MAX_EMBEDDING_TOKENS

    def call(self, texts: Sequence[str]) -> ApiCall:
        name = self.model if "/" in self.model else f"models/{self.model}"
        shortened = {} if self.dimensions is None else {"outputDimensionality": self.dimensions}
        requests = [{"model": name, "content": {"parts": [{"text": text}]}, **shortened} for text in texts]
        return ApiCall(_path(self.model, "batchEmbedContents"), {"requests": requests})

    def read(self, body: Mapping[str, Any]) -> NDArray:
        found = field_of(body, "embeddings", list, "Google's answer")
        vectors = [field_of(vector, "values", list, "An embedding in Google's answer") for vector in found]
        if len({len(vector) for vector in vectors}) > 1:
            raise InvalidAnswerError("Google's answer has 'embeddings' of different lengths.")
        return np.array(vectors, np.float32).reshape(len(vectors), -1)

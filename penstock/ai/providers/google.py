"""Google: Gemini models by ``generateContent``, and their embeddings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.ai.client.api_call import ApiCall
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
from penstock.ai.lenient_json import field_of
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
from penstock.ai.providers import wire
from penstock.ai.providers.remote_embedder import ApiEmbedder
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.ai.providers.remote_provider import RemoteProvider
from penstock.ai.providers.wire import EmbeddingWire, PromptWire
from penstock.errors import InvalidAnswerError

# The nearest levels, for efforts that the API does not have.
LEVELS = {"none": "MINIMAL", "xhigh": "HIGH", "max": "HIGH"}
EMBEDDING_DIMENSIONS = {"gemini-embedding-2": 3072, "gemini-embedding-001": 3072}
MAX_EMBEDDING_INPUTS = 100  # texts of one call

_FIELDS = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
REASONING = ("effort", "max_tokens", "summary")
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
_OWN_ID = "penstock-call-"  # prefix of ids for calls to which the API gave none
_NO_SIGNATURE = "skip_thought_signature_validator"  # marks a call that another model made


@dataclass(frozen=True)
class GoogleProvider(RemoteProvider):
    """Gemini models. The key comes from ``api_key``, GOOGLE_API_KEY or GEMINI_API_KEY."""

    name: str = "google"
    key_variables: ClassVar[tuple[str, ...]] = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    url_variable: ClassVar[str | None] = "GOOGLE_GEMINI_BASE_URL"
    default_url: ClassVar[str] = "https://generativelanguage.googleapis.com"
    key_header: ClassVar[tuple[str, str]] = ("x-goog-api-key", "{}")
    version_path: ClassVar[str] = "/v1beta"
    default_models: ClassVar[Mapping[str, str]] = {"prompt": "gemini-3.8-flash", "embed_text": "gemini-embedding-2"}

    def model(self, task: ModelTask) -> Model:
        match task:
            case Prompting() | TextClassification() | ImageClassification():
                model = task.model or self.default_models["prompt"]
                return ApiPrompter(self.endpoint(), GenerateWire.of(task, self.name, model), model, task.settings)
            case TextEmbedding():
                check_options(task, self.name, ("batch_size",))
                model = self.model_name(task)
                size = wire.batch_size_of(task, MAX_EMBEDDING_INPUTS, MAX_EMBEDDING_INPUTS)
                dimensions = task.dimensions or EMBEDDING_DIMENSIONS.get(model.removeprefix("models/"))
                embeddings = GoogleEmbeddings(model, task.dimensions, size)
                return ApiEmbedder(self.endpoint(), embeddings, model, dimensions, task.settings)
            case _:
                return super().model(task)


def _path(model: str, method: str) -> str:
    return f"/v1beta/{model if '/' in model else f'models/{model}'}:{method}"


class GenerateWire(PromptWire):
    """POST /v1beta/models/{model}:generateContent. One call gives one answer."""

    options = row_options = ("extra_body", "max_output_tokens", "max_tokens", "reasoning", "stop", "tools", *_FIELDS)

    @classmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        config: dict[str, Any] = {name: options[ours] for ours, name in _FIELDS.items() if ours in options}
        if (limit := wire.max_tokens_of(options)) is not None:
            config["maxOutputTokens"] = limit
        if stops := wire.stops_of(options):
            config["stopSequences"] = stops
        reasoning = wire.reasoning_of(options, REASONING)
        thinking: dict[str, Any] = {"includeThoughts": True} if reasoning.get("summary") else {}
        if "max_tokens" in reasoning:
            thinking["thinkingBudget"] = reasoning["max_tokens"]
        if (effort := reasoning.get("effort")) is not None:
            thinking["thinkingLevel"] = LEVELS.get(effort, effort.upper())
        if thinking:
            config["thinkingConfig"] = thinking
        tools = wire.tools_of(options)
        return {**({"generationConfig": config} if config else {}), **({"tools": tools} if tools else {})}

    def body_of_row(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return wire.merged(self.body, self.fields("a request", self.model, options))

    @property
    def path(self) -> str:
        return _path(self.model, "generateContent")

    def add(self, body: dict[str, Any], request: Request) -> None:
        body["contents"] = _contents(request.turns)
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            functions = [wire.declaration(tool, "parametersJsonSchema") for tool in request.tools]
            body["tools"] = [*body.get("tools", ()), {"functionDeclarations": functions}]
        if request.output is not None:
            schema = {"responseMimeType": "application/json", "responseJsonSchema": request.output.schema}
            body["generationConfig"] = {**body.get("generationConfig", {}), **schema}

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        model = body.get("modelVersion") or self.model
        feedback = body.get("promptFeedback") or {}
        if not body.get("candidates") and (blocked := feedback.get("blockReason")):
            message = feedback.get("blockReasonMessage")
            refusal = f"Google blocked the prompt: {blocked}" + (f", {message}" if message else "")
            return [Generation("", model, finish_reason="content_filter", refusal=refusal)]
        candidates = field_of(body, "candidates", list, "Google's answer")
        if not candidates:
            raise InvalidAnswerError("Google's answer has an empty list of 'candidates' and no reason for it.")
        return [_generation(candidate, model) for candidate in candidates if isinstance(candidate, Mapping)]


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
    return {"inlineData": {"mimeType": part.mime_type, "data": wire.base64_of(part)}}


def _model_content(turn: ModelTurn) -> Any:
    """Return a turn of the model. Its own content, if any, stays unchanged, because reasoning is signed."""
    if turn.raw is not None:
        return turn.raw
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text or not turn.tool_calls else []
    for number, call in enumerate(turn.tool_calls):
        part: dict[str, Any] = {
            "functionCall": {**_id(call), "name": call.name, "args": wire.object_of(call.arguments)}
        }
        parts.append(part if number else {**part, "thoughtSignature": _NO_SIGNATURE})
    return {"role": "model", "parts": parts}


def _id(call: ToolCall) -> dict[str, str]:
    return {} if call.id.startswith(_OWN_ID) else {"id": call.id}


def _result(result: ToolResult) -> dict[str, Any]:
    response = {"error" if result.is_error else "output": result.content}
    return {"functionResponse": {**_id(result.call), "name": result.call.name, "response": response}}


# --- answers ----------------------------------------------------------------------------------------------------------


def _generation(candidate: Mapping[str, Any], model: str) -> Generation:
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


class GoogleEmbeddings(EmbeddingWire):
    """POST /v1beta/models/{model}:batchEmbedContents."""

    max_input_tokens = 2048  # the API would truncate longer texts silently

    def call(self, texts: Sequence[str]) -> ApiCall:
        name = self.model if "/" in self.model else f"models/{self.model}"
        shortened = {} if self.dimensions is None else {"outputDimensionality": self.dimensions}
        requests = [{"model": name, "content": {"parts": [{"text": text}]}, **shortened} for text in texts]
        return ApiCall(_path(self.model, "batchEmbedContents"), {"requests": requests})

    def read(self, body: Mapping[str, Any]) -> list[NDArray]:
        found = field_of(body, "embeddings", list, "Google's answer")
        vectors = (field_of(vector, "values", list, "An embedding in Google's answer") for vector in found)
        return [np.asarray(vector, np.float32) for vector in vectors]

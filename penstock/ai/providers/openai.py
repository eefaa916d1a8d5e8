"""OpenAI, and servers with its API: LM Studio, Ollama, vLLM and others."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from penstock.ai.client.addresses import checked_address, shown
from penstock.ai.client.api_call import ApiCall, Endpoint
from penstock.ai.lenient_json import field_of, field_or_none
from penstock.ai.provider import (
    Deciding,
    ImageClassification,
    Model,
    ModelTask,
    NDArray,
    Prompting,
    TextClassification,
    TextEmbedding,
    check_options,
)
from penstock.ai.providers.chat_completions import ChatWire
from penstock.ai.providers.openai_batches import OpenAIBatchService
from penstock.ai.providers.remote_embedder import ApiEmbedder
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.ai.providers.remote_provider import RemoteProvider
from penstock.ai.providers.responses import ResponsesWire
from penstock.ai.providers.wire import EmbeddingWire, batch_size_of, extra_body_of
from penstock.errors import InvalidAnswerError

DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
CALL_PATHS = ("/chat/completions", "/completions", "/responses", "/embeddings")
ONLY_CHAT = "If it has no Responses API, as llama.cpp, TGI and older vLLM, set use_chat_completions=True."
MAX_ITEMS = 2048
ITEMS_A_CALL = 256
"""Default number of texts in a call. More would save little, and wait longer for the slowest."""


@dataclass(frozen=True)
class OpenAIProvider(RemoteProvider):
    """OpenAI, or any server with its API at ``base_url``: OpenRouter, vLLM, LiteLLM, Together ..."""

    use_chat_completions: bool = False
    name: str = "openai"
    key_variables: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    url_variable: ClassVar[str | None] = "OPENAI_BASE_URL"
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    if_unreachable: ClassVar[str] = ""
    default_models: ClassVar[Mapping[str, str]] = {
        "prompt": "gpt-5-mini",
        "decide": "gpt-6-luna",
        "embed_text": "text-embedding-3-small",
    }
    has_batch_api: ClassVar[bool] = True
    decision_wire: ClassVar[str] = "openai"

    def model(self, task: ModelTask) -> Model:
        match task:
            case Prompting() | TextClassification() | ImageClassification():
                return self._prompter(task)
            case TextEmbedding():
                return self._embedder(task)
            case Deciding():
                from penstock.ai.decisions.remote_decider import remote_decider

                batches = OpenAIBatchService()
                return remote_decider(task, self.model_name(task), self.endpoint(), self.decision_wire, batches)
            case _:
                return super().model(task)

    def endpoint(self) -> Endpoint:
        endpoint = super().endpoint()
        address, not_found = endpoint.base_url, ""
        path = urlsplit(address).path.rstrip("/")
        if call := next((each for each in CALL_PATHS if path.endswith(each)), None):
            not_found = f"base_url={shown(address)!r} names one call: leave out {call!r}, which Penstock adds."
        elif re.search(r"/v\d", path) is None:
            not_found = f"base_url={shown(address)!r} may lack /v1, which most servers need."
        return replace(endpoint, if_unreachable=self.if_unreachable, if_not_found=not_found)

    def _prompter(self, task: ModelTask) -> ApiPrompter:
        name = task.model or self.default_models.get("prompt") or self.model_name(task)
        is_chat = task.options.get("use_chat_completions", self.use_chat_completions)
        wire = (ChatWire if is_chat else ResponsesWire).of(task, self.name, name)
        endpoint = self.endpoint()
        if not is_chat and not (urlsplit(endpoint.base_url).hostname or "").endswith("api.openai.com"):
            endpoint = replace(endpoint, if_not_found=f"{ONLY_CHAT} {endpoint.if_not_found}".rstrip())
        return ApiPrompter(endpoint, wire, name, task.settings, OpenAIBatchService())

    def _embedder(self, task: TextEmbedding) -> ApiEmbedder:
        check_options(task, self.name, ("batch_size", "extra_body", "user"))
        name = self.model_name(task)
        user = {"user": task.options["user"]} if "user" in task.options else {}
        size = batch_size_of(task, ITEMS_A_CALL, MAX_ITEMS)
        wire = OpenAIEmbeddings(name, task.dimensions, size, {**user, **extra_body_of(task.options)})
        dimensions = task.dimensions or DIMENSIONS.get(name)
        return ApiEmbedder(self.endpoint(), wire, name, dimensions, task.settings, OpenAIBatchService())


@dataclass(frozen=True)
class OwnServerProvider(OpenAIProvider):
    """A server of one's own with OpenAI's API, which needs no key.

    It has no batch API, and decides by log-probabilities.
    """

    use_chat_completions: bool = True
    key_variables: ClassVar[tuple[str, ...]] = ()
    url_variable: ClassVar[str | None] = None
    has_batch_api: ClassVar[bool] = False
    decision_wire: ClassVar[str] = "logprobs"


@dataclass(frozen=True)
class LmStudioProvider(OwnServerProvider):
    """LM Studio's server on this machine."""

    name: str = "lm_studio"
    if_unreachable: ClassVar[str] = (
        "Start the server of LM Studio (Developer tab, or `lms server start`), or give base_url=."
    )
    default_models: ClassVar[Mapping[str, str]] = {"embed_text": "text-embedding-nomic-embed-text-v1.5"}
    default_url: ClassVar[str] = "http://localhost:1234/v1"


@dataclass(frozen=True)
class OllamaProvider(OwnServerProvider):
    """Ollama on this machine, or at OLLAMA_HOST."""

    name: str = "ollama"
    if_unreachable: ClassVar[str] = "Start it with `ollama serve`, or give base_url=."
    default_models: ClassVar[Mapping[str, str]] = {"embed_text": "nomic-embed-text"}

    def address(self) -> str:
        host = os.environ.get("OLLAMA_HOST") or "localhost:11434"
        host = host if "://" in host else f"http://{host}"
        return checked_address(self.base_url or f"{host.rstrip('/')}/v1")


@dataclass(frozen=True)
class OpenAIEmbeddings(EmbeddingWire):
    """``POST /embeddings``. Vectors are sent as base64: a third of the bytes of decimal numbers, and fast to read."""

    extra_body: Mapping[str, Any]
    max_tokens = 300_000
    max_input_tokens = 8191

    def call(self, texts: Sequence[str]) -> ApiCall:
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "base64"}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return ApiCall("/embeddings", body | dict(self.extra_body))

    def read(self, body: Mapping[str, Any]) -> list[NDArray]:
        items = field_of(body, "data", list)
        numbers = [field_or_none(item, "index") for item in items]
        if len(set(numbers)) > 1:  # servers that do not number vectors send them in order
            if set(numbers) != set(range(len(items))):
                raise InvalidAnswerError(
                    f"the answer numbers its {len(items)} vectors in a way that does not identify their texts"
                )
            items = sorted(items, key=itemgetter("index"))
        return [_vector(field_of(item, "embedding", (str, list))) for item in items]


def _vector(given: str | list[float]) -> NDArray:
    try:
        if isinstance(given, str):
            return np.frombuffer(base64.b64decode(given, validate=True), "<f4")
        vector = np.asarray(given)
    except ValueError as exc:
        raise InvalidAnswerError(f"the answer has an 'embedding' that cannot be read: {exc}") from exc
    if vector.ndim != 1 or vector.dtype.kind not in "iuf":
        raise InvalidAnswerError("the answer has an 'embedding' that is not a list of numbers")
    with np.errstate(over="ignore"):  # infinity is the error of its row
        return vector.astype(np.float32)

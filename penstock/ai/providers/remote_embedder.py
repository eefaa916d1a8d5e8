"""Embeddings of texts from a model behind an HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from penstock.ai.cached_model import VECTORS
from penstock.ai.client.api_call import Calls, Endpoint
from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.retried_calls import RetriedCalls, Retries
from penstock.ai.client.sent_calls import SentCalls
from penstock.ai.provider import DEFAULT_SETTINGS, CallSettings, Embedder, NDArray
from penstock.ai.providers.remote_model import RemoteModel
from penstock.ai.providers.wire import EmbeddingWire
from penstock.cache.keys import key_of
from penstock.cache.memo import Memo
from penstock.cost.budget import Billing
from penstock.cost.usage import Usage, estimated_tokens
from penstock.errors import InvalidAnswerError

if TYPE_CHECKING:
    from penstock.ai.client.batch.batch_service import BatchService

Answer = TypeVar("Answer")


class TextVectors:
    """Cached vectors of one model, by text."""

    def __init__(self, memo: Memo, identity: Mapping[str, Any], billing: Billing | None) -> None:
        self._memo, self._billing = memo, billing
        self._prefix = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS) + b"\0"
        self.close = memo.close

    def key(self, text: str) -> bytes:
        return key_of(self._prefix + text.encode("utf-8", "surrogatepass"))

    def look_up(self, texts: Sequence[str]) -> dict[str, NDArray]:
        """Return the cached vectors by text, and count them as cached calls."""
        keys = {text: self.key(text) for text in texts}
        stored = self._memo.get(list(keys.values()))
        found = {text: stored[key] for text, key in keys.items() if key in stored}
        if found and self._billing is not None:
            self._billing.count_cached_inputs([estimated_tokens(text) for text in texts if text in found])
        return found

    def put(self, text: str, vector: NDArray) -> None:
        self._memo.put(self.key(text), vector)


class ApiEmbedder(RemoteModel, Embedder):
    """Embeds texts by a remote model. ``PackedEmbeddings`` first looks up ``cached``, then makes batches."""

    cached: TextVectors | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        wire: EmbeddingWire,
        model: str,
        dimensions: int | None = None,
        settings: CallSettings = DEFAULT_SETTINGS,
        service: BatchService | None = None,
    ) -> None:
        super().__init__(endpoint, model, settings, service)
        self._wire = wire
        self._calls: Calls | None = None
        # In a provider's batch each text is a request of its own, so that a refused text does not need another batch.
        self.max_items = 1 if settings.batch is not None else wire.max_items
        self.max_tokens, self.max_input_tokens = wire.max_tokens, wire.max_input_tokens
        self.dimensions = dimensions or probed_dimensions(endpoint, model, settings, wire)

    def __penstock_key__(self) -> Any:
        return self._endpoint.provider, self._endpoint.base_url, self._wire, self.dimensions

    def load(self) -> None:
        memo = Memo.open(VECTORS, self.cache)
        probe = self._wire.call(["Hello"])
        probe.read = self._read_one
        self._calls = self._open_calls(probe, memo)
        if self._billing is not None:
            self._billing.max_inputs = self.max_items
        if memo is not None:
            call = self._wire.call([])
            identity = {
                "base_url": self.base_url, "dimensions": self.dimensions, "path": call.path, "body": call.body,
            }  # fmt: skip
            self.cached = TextVectors(memo, identity, self._billing)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()
        if self.cached is not None:
            await asyncio.to_thread(self.cached.close)

    async def embed(self, inputs: Sequence[str]) -> list[NDArray]:
        """Return a vector for each text. A single vector has the length ``dimensions``; of several, some may not."""
        if self._settings.batch is not None:
            return await asyncio.gather(*(self._embed_one(text) for text in inputs))
        vectors: list[NDArray] = await self._ask(inputs, lambda body, _: self._read(body, len(inputs)))
        return vectors

    async def _embed_one(self, text: str) -> NDArray:
        vector: NDArray = await self._ask(
            [text], self._read_one, None if self.cached is None else self.cached.key(text)
        )
        return vector

    async def _ask(
        self, texts: Sequence[str], read: Callable[[Any, Usage | None], Any], key: bytes | None = None
    ) -> Any:
        assert self._calls is not None, "load() was not called"
        call = self._wire.call(texts)
        call.inputs, call.key, call.read = list(map(estimated_tokens, texts)), key, read
        call.tokens = sum(call.inputs)
        return (await self._calls.ask(call)).value

    def _read(self, body: Mapping[str, Any], num_texts: int) -> list[NDArray]:
        return checked_count(self._wire.read(body), num_texts, self.dimensions)

    def _read_one(self, body: Mapping[str, Any], _: Usage | None) -> NDArray:
        return self._read(body, 1)[0]


def checked_count(vectors: list[NDArray], num_texts: int, dimensions: int | None = None) -> list[NDArray]:
    """Check the number of vectors, and the length of one of them."""
    lengths = {len(vector) for vector in vectors} or {0}
    is_usable = any(lengths) if dimensions is None else dimensions in lengths
    if len(vectors) != num_texts or not is_usable:
        expected = num_texts if dimensions is None else f"{num_texts} of {dimensions}"
        found = " and ".join(map(str, sorted(lengths)))
        message = (
            f"{num_texts} texts were sent; {len(vectors)} vectors of {found} numbers came back instead of {expected}"
        )
        if len(vectors) == num_texts > 1 and len(lengths) == 1 and any(lengths):
            message += f"; if the model's vectors are that long, set dimensions={found}"
        raise InvalidAnswerError(message)
    return vectors


_probed: dict[tuple[str, str], int] = {}


def probed_dimensions(endpoint: Endpoint, model: str, settings: CallSettings, wire: EmbeddingWire) -> int:
    """Return the dimensions of a model by asking for one vector, once in a process.

    The type of the column is part of the plan, so they must be known before a query runs.
    """

    async def ask() -> int:
        client = ApiClient(endpoint, model, settings)
        call = wire.call(["dimensions"])
        call.read = lambda body, _: checked_count(wire.read(body), 1)
        try:
            answered = await RetriedCalls(SentCalls(client), Retries(client)).ask(call)
            return len(answered.value[0])
        finally:
            await client.close()

    key = endpoint.base_url, model
    if key not in _probed:
        with ThreadPoolExecutor(1) as thread:  # the caller may be inside an event loop, as in a notebook
            _probed[key] = thread.submit(asyncio.run, ask()).result()
    return _probed[key]

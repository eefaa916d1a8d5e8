"""Vectors of texts from a model behind an HTTP API."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.ai.provider import DEFAULT_SETTINGS, CallSettings, Embedder, NDArray
from penstock.ai.remembering import VectorMemory, configured_ledger
from penstock.ai.remote.clients import made_client, opened_asker
from penstock.ai.remote.dimensions import counted_vectors, kept_dimensions, probed
from penstock.ai.remote.http import ApiClient, estimated_tokens
from penstock.ai.remote.wires.wire import ApiCall, Endpoint
from penstock.cache.keys import KEY_NBYTES
from penstock.cost.usage import Usage, usage_in

if TYPE_CHECKING:
    from penstock.ai.remote.batch.asker import BatchAsker
    from penstock.ai.remote.batch.service import BatchService

PaidVector = tuple[NDArray, Usage | None]
"""A vector, and what it took where that is known."""


class VectorAnswers:
    """Vectors of single texts."""

    def __init__(self, read: Callable[[Mapping[str, Any]], NDArray], memory: VectorMemory | None) -> None:
        self._read, self._memory = read, memory

    def read(self, body: Mapping[str, Any]) -> PaidVector:
        return self._read(body), usage_in(body)

    def keep(self, key: bytes, answer: PaidVector) -> None:
        if self._memory is not None:
            self._memory.put(key, answer[0])

    def recall(self, keys: Sequence[bytes]) -> dict[bytes, PaidVector]:
        kept = self._memory.get(keys) if self._memory is not None else {}
        return {key: (vector, None) for key, vector in kept.items()}


class EmbeddingWire(Protocol):
    """One embeddings API. Picklable, and made once for all rows."""

    @property
    def max_items(self) -> int: ...

    @property
    def max_tokens(self) -> int | None:
        """Those of all the texts of a call together."""
        ...

    @property
    def max_input_tokens(self) -> int | None:
        """Those of one text."""
        ...

    def call(self, texts: Sequence[str]) -> ApiCall: ...

    def read(self, body: Mapping[str, Any]) -> NDArray:
        """Return the vectors of a body in the order of the texts, shape ``(n, d)``."""
        ...


class ApiEmbedder(Embedder):
    """Embeds texts by a remote model; ``embedding.py`` packs them, and asks ``memory`` before."""

    memory: VectorMemory | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        wire: EmbeddingWire,
        model: str,
        dimensions: int | None = None,
        settings: CallSettings = DEFAULT_SETTINGS,
        batches: BatchService | None = None,
    ) -> None:
        self._endpoint, self._wire, self.model_name = endpoint, wire, model
        self._client = made_client(endpoint, model, settings)
        self._settings, self._batches, self.cache = settings, batches, settings.cache
        self._asker: BatchAsker[PaidVector] | None = None
        self.max_items, self.max_tokens, self.max_input_tokens = wire.max_items, wire.max_tokens, wire.max_input_tokens
        if settings.batch is not None:
            self.max_items = 1
        if dimensions is None:
            dimensions = kept_dimensions(
                configured_ledger(settings.cache),
                {"provider": endpoint.provider, "base_url": endpoint.base_url, "model": model},
                lambda: probed((endpoint.base_url, model), lambda: ApiClient(endpoint, model, settings), wire),
            )
        self.dimensions = dimensions

    def __penstock_key__(self) -> Any:
        return self._endpoint.provider, self._endpoint.base_url, self._wire, self.dimensions

    def load(self) -> None:
        self._client.open()
        if self._client.billing is not None:
            self._client.billing.max_inputs = self.max_items
        if (ledger := configured_ledger(self._settings.cache)) is not None:
            call = self._wire.call([])
            self.memory = VectorMemory(
                ledger, base_url=self._endpoint.base_url, dimensions=self.dimensions, path=call.path, body=call.body
            )
        self._asker = opened_asker(self._batches, self._client, self._settings, VectorAnswers(self._one, self.memory))

    def check_price(self) -> None:
        """Refuse to work within a budget where nobody knows what a call costs."""
        self._client.check_price()

    def note_kept(self, texts: Sequence[str]) -> None:
        """Take note of texts whose vectors were remembered."""
        if self._client.billing is not None:
            self._client.billing.count_cached_inputs([estimated_tokens(text) for text in texts])

    async def close(self) -> None:
        if self._asker is not None:
            await self._asker.close()
        await self._client.close()
        if self.memory is not None:
            await asyncio.to_thread(self.memory.close)

    async def embed(self, inputs: Sequence[str]) -> NDArray:
        if self._asker is not None:
            return np.stack(await asyncio.gather(*(self._asked(self._asker, text) for text in inputs)))

        def read(body: Mapping[str, Any]) -> NDArray:
            return counted_vectors(self._wire.read(body), len(inputs), self.dimensions)

        parts = list(map(estimated_tokens, inputs))
        vectors, _ = await self._client.ask(self._wire.call(inputs), read, sum(parts), parts)
        return vectors

    async def _asked(self, asker: BatchAsker[PaidVector], text: str) -> NDArray:
        """Return the vector of one text, by a batch in which it is a request of its own.

        So a text that is refused fails alone, at the cost of no further batch, and each is known by itself afterwards.
        """
        key = secrets.token_bytes(KEY_NBYTES) if self.memory is None else self.memory.key(text)
        call, billing = self._wire.call([text]), self._client.billing
        if billing is None:
            return (await asker.ask(key, call))[0]
        began, tokens = time.monotonic(), estimated_tokens(text)
        charge = await billing.reserve(call.body, tokens, [tokens], asker.hurry)
        try:
            vector, usage = await asker.ask(key, call)
            charge.answered(usage, time.monotonic() - began)
            return vector
        finally:
            billing.settle(charge)

    def _one(self, body: Mapping[str, Any]) -> NDArray:
        vector: NDArray = counted_vectors(self._wire.read(body), 1, self.dimensions)[0]
        return vector

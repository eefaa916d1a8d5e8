"""The interface between the feed and an inference engine."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from penstock.ai.conversation import Generation, Request


class InferenceEngine(Protocol):
    """An engine that answers many requests at once and batches them by itself. Used on one event loop."""

    async def start(self) -> None:
        """Load the model. Raise ProviderUnusableError, and release the device, if that is impossible."""

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        """Return the answers to a request. Cancelling the call aborts the request.

        Raise WorkerDiedError if the engine died, for every request that it was working on. Any other exception is the
        error of the request.
        """

    async def close(self) -> None:
        """Release the device. Also called after the engine died."""


class EngineSpec(Hashable, Protocol):
    """Picklable data that describes an engine. Steps of a pipeline with equal specs share one engine."""

    @property
    def name(self) -> str:
        """The name of the model, for messages."""

    @property
    def num_replicas(self) -> int:
        """The number of copies of the engine. Each has its own devices and its own cache of prefixes."""

    def make(self, replica: int) -> InferenceEngine: ...

    def alone(self) -> EngineSpec:
        """Return the spec of a single replica, which may use all devices that it sees."""

    def identity(self) -> Mapping[str, Any]:
        """Return everything that determines the answers besides the requests, for JSON."""

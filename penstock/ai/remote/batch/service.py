"""The interface of a provider's batch API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.ai.remote.batch.client import BatchClient
from penstock.errors import ProviderError


@dataclass(frozen=True, slots=True)
class BatchCapacity:
    """The limits of one batch."""

    max_requests: int
    max_nbytes: int

    def lowered(self, max_requests: int | None) -> BatchCapacity:
        """Return the capacity with at most so many requests."""
        return self if max_requests is None else replace(self, max_requests=min(self.max_requests, max_requests))


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch: its id, path, and body as JSON."""

    custom_id: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of a batch. ``problem`` is the reason why the provider refused it."""

    id: str
    is_ended: bool
    files: tuple[str, ...] = ()  # with the results
    input_file: str | None = None
    problem: ProviderError | None = None
    is_too_much: bool = False  # the account has reached its limit: the provider may accept the batch later


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one request: the body of its answer, or an error."""

    custom_id: str
    body: Any = None
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was about to be submitted: its number of requests, and the time."""

    num_requests: int
    time: float


Take = Callable[[BatchResult], None]


class BatchService(Protocol):
    """A batch API. Picklable; sends all requests through the given client."""

    @property
    def capacity(self) -> BatchCapacity: ...

    async def create(self, client: BatchClient, token: str, requests: Sequence[BatchRequest]) -> str:
        """Submit a batch once and return its id. After ProviderUnavailableError it may have been created or not."""
        ...

    async def find(self, client: BatchClient, token: str, intent: Intent, known: Collection[str]) -> list[str]:
        """Return the ids of batches that may have this token; only their results can tell. Skip ``known`` ids."""
        ...

    async def state(self, client: BatchClient, batch_id: str) -> BatchState: ...

    async def results(self, client: BatchClient, state: BatchState, take: Take) -> None:
        """Call ``take`` with each result of a batch that has ended, with some perhaps twice."""
        ...

    async def cancel(self, client: BatchClient, batch_id: str) -> None: ...

    async def clean_up(self, client: BatchClient, state: BatchState) -> None:
        """Remove what the provider stores for a batch whose results have been read."""
        ...

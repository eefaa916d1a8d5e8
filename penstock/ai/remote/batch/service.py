"""What a provider's batch API must do, and what is said of a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.ai.remote.batch.client import BatchClient
from penstock.ai.remote.batch.decisions import BatchLimits
from penstock.errors import ProviderError


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch: what it is known by, its path, and its body as JSON."""

    custom_id: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchState:
    """How a batch stands. ``problem`` says why the provider would not work on it; ``lines`` which requests are at
    fault, from 0, where it tells."""

    id: str
    is_ended: bool
    share_done: float | None = None
    files: tuple[str, ...] = ()  # that hold its results
    input_file: str | None = None
    problem: ProviderError | None = None
    is_too_much: bool = False  # the account has too much under way: the same batch may be taken later
    lines: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of one request: the body of its answer, or an error."""

    custom_id: str
    body: Any = None
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was about to be submitted: how many requests it has, and when that was."""

    num_requests: int
    time: float


Take = Callable[[BatchResult], None]


class BatchService(Protocol):
    """A batch API. Picklable; everything it does goes through the client it is given."""

    @property
    def limits(self) -> BatchLimits: ...

    async def create(self, client: BatchClient, token: str, requests: Sequence[BatchRequest]) -> str:
        """Submit a batch once and return its id. ProviderUnavailableError leaves open whether it was created."""
        ...

    async def find(self, client: BatchClient, token: str, intent: Intent, known: Collection[str]) -> list[str]:
        """Return the ids of the batches that may be the one of a token, which only their results may show.

        ``known`` are ids of others.
        """
        ...

    async def state(self, client: BatchClient, batch_id: str) -> BatchState: ...

    async def results(self, client: BatchClient, state: BatchState, take: Take) -> None:
        """Give all results of a batch that has ended to ``take``; some may be given twice."""
        ...

    async def cancel(self, client: BatchClient, batch_id: str) -> None: ...

    async def clean_up(self, client: BatchClient, state: BatchState) -> None:
        """Remove what was stored for a batch whose results have been read."""
        ...

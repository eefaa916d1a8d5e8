"""The settings of a server, as data that is sent to its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.testing.answer_times import Latency
from penstock.testing.apis.model_api import ModelRequest
from penstock.testing.faults import Fault

AnswerFunction = Callable[[ModelRequest], "str | dict[str, Any] | list[Any] | Fault"]


@dataclass(frozen=True)
class Limits:
    """Rate limits; requests above them get 429. ``burst_s`` is the size of a burst in seconds."""

    requests_per_second: float | None = None
    tokens_per_minute: float | None = None
    max_concurrency: int | None = None
    burst_s: float = 1.0
    has_headers: bool = True  # report the remaining quota, and the wait after a refusal


@dataclass(frozen=True)
class EmbeddingLimits:
    """Limits of an embedding request; requests above them get 400, as with OpenAI."""

    max_items: int = 2048
    max_input_tokens: int = 8192
    max_total_tokens: int = 300_000


@dataclass(frozen=True)
class BatchTiming:
    """The seconds that a batch spends in each state."""

    validating_s: float = 0.02
    processing_s: float = 0.05
    finalizing_s: float = 0.02


@dataclass(frozen=True)
class Script:
    latency: Latency | float = 0.0
    faults: Sequence[Fault] = ()
    answer: AnswerFunction | None = None
    limits: Limits = field(default_factory=Limits)
    api_key: str | None = None
    models: Sequence[str] | None = None
    dimensions: int | None = None  # of embeddings; None: as many as the model has
    embedding_limits: EmbeddingLimits = field(default_factory=EmbeddingLimits)
    batches: BatchTiming = field(default_factory=BatchTiming)
    seed: int = 0
    keep_requests: int = 100_000

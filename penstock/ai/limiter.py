"""How many requests may be under way, and how fast they may follow: one limiter for each provider, base URL and model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "refused", "unavailable", "other"]
"""``refused`` is a 429; ``unavailable`` 5xx, a time-out or a dropped connection; ``other`` says nothing of the load."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What the user allows at most; None leaves it to measurement."""

    max_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class LimiterKey:
    provider: str
    base_url: str
    model: str


class Permit:
    """Leave to send one request. Whoever got it settles it, exactly once, whatever became of the request."""

    def settle(
        self,
        outcome: Outcome,
        *,
        used_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Say what became of the request. ``headers`` are the answer's, with lower-case names."""
        raise NotImplementedError


class Limiter:
    """Gives permits. Safe to be used from several event loops on several threads."""

    def __init__(self, caps: Caps = Caps()) -> None:
        raise NotImplementedError

    async def admit(self, tokens: int = 0) -> Permit:
        """Wait until a request may be sent. ``tokens`` is what its input is estimated to take."""
        raise NotImplementedError


def limiter_for(key: LimiterKey, caps: Caps = Caps()) -> Limiter:
    """Return the limiter of a model, which this process keeps; what it learned holds for the next query too."""
    raise NotImplementedError

"""Find out whether a server works when calls fail and it answers no others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.ai.client.limits.limiter import Rank
from penstock.errors import FatalError, OutageError, ProviderError

Answer = TypeVar("Answer")
Attempt = Callable[[Rank], Awaitable[Answer]]
"""Sends a request once."""


class ServerCheck:
    """The check of one server, on one event loop. Calls take turns at it, so that one probe serves all.

    ``probe`` sends a small request. The smallest request that was answered, with ``probe_tokens``, takes its place. A
    client without a probe raises failures as they are.
    """

    def __init__(self, address: str) -> None:
        self.probe: Attempt[Any] | None = None
        self.probe_tokens = math.inf
        self._turn = asyncio.Lock()
        self._address = address
        self._outage = ""

    async def confirm(
        self,
        error: ProviderError,
        has_answered: Callable[[], bool],
        repeat: Callable[[Attempt[Any]], Awaitable[Any]],
    ) -> None:
        """Return if the server has answered meanwhile or answers the probe; otherwise raise OutageError.

        ``error`` is the failure that led to the check. ``repeat`` sends the probe, with retries.
        """
        assert self.probe is not None
        async with self._turn:
            if not self._outage and not has_answered():
                try:
                    await repeat(self.probe)
                except FatalError:
                    raise
                except ProviderError as exc:
                    self._outage = self._outage_after(exc)
        if self._outage:
            raise OutageError(f"{error}\n{self._outage}") from error

    def _outage_after(self, error: ProviderError) -> str:
        """Return the error that says what is known, and what to do, after the probe failed."""
        if self.probe_tokens == math.inf:
            return (
                f"The server at {self._address} has answered no call so far, not even a short test ({error}). Check "
                "that it works. If it is still loading, run again when it answers, or give a larger max_retries=."
            )
        return (
            f"The server at {self._address} fails on every call, even on one that it answered before "
            f"({error}). Run again when it works."
        )

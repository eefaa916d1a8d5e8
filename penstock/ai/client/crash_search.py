"""Find the call that crashes its server.

A crash cuts off all calls in flight, and any of them may have caused it. They are repeated. A call that is cut off
together with others for the second time is a suspect: Penstock sends the suspects one at a time, and nothing else
meanwhile, so a crash shows its cause. An answer clears a suspect.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from penstock.ai.client.limits.limiter import Rank

MOMENT_S, MAX_MOMENT_S = 0.05, 1.0
"""Connections lost within this time count as lost together; the longer time is for a busy event loop."""

MIN_SHARE = 0.25
"""It is a crash if this share of the calls in flight is lost together: a server may have several workers."""


@dataclass
class _Loss:
    """A loss of several connections together."""

    at: float = -math.inf
    newest: int = 0  # the last request sent before the loss
    num_in_flight: int = 0
    num_lost: int = 0


class CrashSearch:
    """The requests in flight at one server, on one event loop, and the suspects of its last crashes."""

    def __init__(self) -> None:
        self._num_sent = self._num_in_flight = 0
        self._num_others = 0  # requests in flight that are no suspects
        self._num_suspects = 0
        self._loss = _Loss()
        self._turn = asyncio.Lock()
        self._is_quiet, self._has_ended = asyncio.Event(), asyncio.Event()

    def holds(self, rank: Rank) -> bool:
        """Return whether a request must wait for the end of a search."""
        return rank in ("first", "retry") and self._num_suspects > 0

    async def wait(self) -> None:
        """Wait for the end of the search."""
        await self._has_ended.wait()

    def sent(self, rank: Rank) -> int:
        """Count a request in flight and return its number."""
        self._num_sent += 1
        self._num_in_flight += 1
        self._num_others += rank != "suspect"
        return self._num_sent

    def settled(self, rank: Rank) -> None:
        """Count a request as no longer in flight."""
        self._num_in_flight -= 1
        self._num_others -= rank != "suspect"
        if not self._num_others:
            self._is_quiet.set()

    async def num_lost(self, number: int) -> int:
        """Record a lost connection. Return the number of requests that the crash cut off; 1 if there was no crash."""
        now = time.monotonic()
        if number > self._loss.newest or now - self._loss.at > MAX_MOMENT_S:
            self._loss = _Loss(now, self._num_sent, self._num_in_flight)
        loss = self._loss
        loss.num_lost += 1
        await asyncio.sleep(MOMENT_S)
        return loss.num_lost if loss.num_lost >= MIN_SHARE * loss.num_in_flight else 1

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until a suspect may be sent, and let nothing else be sent within the block."""
        self._num_suspects += 1
        self._has_ended.clear()
        try:
            async with self._turn:
                while self._num_others:
                    self._is_quiet.clear()
                    await self._is_quiet.wait()
                yield
        finally:
            self._num_suspects -= 1
            if not self._num_suspects:
                self._has_ended.set()

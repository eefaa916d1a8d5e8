"""Find the call that crashes its server.

A crash cuts off all calls in flight, and any of them may have caused it. Penstock sends nothing else until it has found
the cause. It repeats an eighth of the suspects at once. If the server crashes again, it repeats an eighth of the calls
that this crash cut off, and so on until one call is alone. An answer clears a suspect.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
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
        self._loss = _Loss()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # the smallest groups first
        self._numbers = itertools.count()
        self._num_in_turn = 0
        self._group_size: float = math.inf
        self._has_ended = asyncio.Event()

    def holds(self, rank: Rank) -> bool:
        """Return whether a request must wait for the end of a search."""
        return rank in ("first", "retry") and bool(self._waiting or self._num_in_turn)

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
        if self._waiting:
            self._give_turns()

    async def num_lost(self, number: int) -> int:
        """Record a lost connection. Return the number of requests that the crash cut off; 1 if there was no crash."""
        now = time.monotonic()
        if number > self._loss.newest or now - self._loss.at > MAX_MOMENT_S:
            self._loss = _Loss(now, self._num_sent, self._num_in_flight)
        loss = self._loss
        loss.num_lost += 1
        await asyncio.sleep(MOMENT_S)
        return loss.num_lost if loss.num_lost >= MIN_SHARE * loss.num_in_flight else 1

    async def take_turn(self, group_size: int) -> None:
        """Wait until a suspect may be sent with at most ``group_size`` in flight. ``end_turn`` must follow."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (group_size, next(self._numbers), turn))
        self._has_ended.clear()
        self._give_turns()
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._give_turns()
            else:
                self.end_turn()
            raise

    def end_turn(self) -> None:
        self._num_in_turn -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        while self._waiting:
            group_size, _, turn = self._waiting[0]
            if not turn.cancelled():
                self._group_size = min(group_size, self._group_size) if self._num_in_turn else group_size
                if self._num_others or self._num_in_turn >= self._group_size:
                    return
                self._num_in_turn += 1
                turn.set_result(None)
            heapq.heappop(self._waiting)
        if not self._num_in_turn:
            self._has_ended.set()


class Turn:
    """The turn of one suspect to be sent."""

    def __init__(self, search: CrashSearch) -> None:
        self._search = search
        self._group_size: int | None = None

    async def take(self, group_size: int) -> None:
        """Wait until the suspect may be sent in a group of this size, unless it has this turn."""
        if group_size != self._group_size:
            self.end()
            await self._search.take_turn(group_size)
            self._group_size = group_size

    def end(self) -> None:
        if self._group_size is not None:
            self._group_size = None
            self._search.end_turn()

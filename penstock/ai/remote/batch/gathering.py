"""Calls that gather until it is time for a batch of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from penstock.ai.remote.batch.calls import WaitingCall
from penstock.ai.remote.batch.decisions import LEAST_LULL_S, MOST_POLL_FACTOR, BatchLimits, is_full, lull_s, num_fitting


class Gathering:
    """Says when the next batch is due and what is in it. The time is passed in, in seconds of any clock."""

    def __init__(self, limits: BatchLimits, poll_interval_s: float) -> None:
        self._limits = limits
        self._poll_interval_s = poll_interval_s
        self._calls: list[WaitingCall] = []
        self._nbytes = 0
        self._last_arrival: float | None = None
        self._longest_gap_s = 0.0
        self._held_until = -math.inf
        self._is_hurried = False

    def note_arrival(self, now: float) -> None:
        """Take note that a call has come, and how long none had."""
        if self._last_arrival is not None:
            self._longest_gap_s = max(self._longest_gap_s, now - self._last_arrival)
        self._last_arrival = now

    def note_end(self, now: float) -> None:
        """Take note that a batch has ended: its answers may lead to other calls, and it has made room."""
        self._last_arrival = now
        self._held_until = -math.inf

    def hurry(self) -> None:
        """Take note that those who would come next wait for a batch to end: what is here is due."""
        self._is_hurried = True

    def add(self, calls: Iterable[WaitingCall]) -> None:
        for call in calls:
            self._calls.append(call)
            self._nbytes += call.nbytes

    def wait_s(self, now: float) -> float:
        """Return how long it is until the next batch is due: nothing or less if it is."""
        if not self._calls:
            return math.inf
        held_s = self._held_until - now
        if is_full(len(self._calls), self._nbytes, self._limits):
            return held_s
        quiet_s = math.inf if self._last_arrival is None else now - self._last_arrival
        lull = LEAST_LULL_S if self._is_hurried else lull_s(self._poll_interval_s, self._longest_gap_s)
        return max(held_s, lull - quiet_s)

    def take(self) -> list[WaitingCall]:
        """Return the calls of the next batch. Those that nobody waits for any more are left out."""
        self._is_hurried = False
        wanted = [call for call in self._calls if not call.future.done()]
        num = num_fitting((call.nbytes for call in wanted), self._limits)
        self._calls = wanted[num:]
        self._nbytes = sum(call.nbytes for call in self._calls)
        return wanted[:num]

    def take_less(self, num_requests: int) -> None:
        """Make batches of no more than half the requests of one that was too large."""
        self._limits = self._limits.lowered(max(1, num_requests // 2))

    def hold_back(self, now: float, has_others: bool) -> None:
        """Submit nothing for a while, as the account has too much under way: until one of the others ends, if any."""
        self._held_until = now + self._poll_interval_s * (MOST_POLL_FACTOR if has_others else 1)

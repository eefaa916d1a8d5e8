"""Calls that wait to be submitted, and the decision when to submit them and how many."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.ai.remote.batch.service import BatchCapacity

NBYTES_AROUND = 256  # of a request besides its body: ids, addresses, brackets
QUIET_SHARE = 1 / 30  # of the poll interval: a second by default
MIN_QUIET_S, MAX_QUIET_S = 0.05, 60.0
QUIET_FACTOR = 4
MAX_POLL_FACTOR = 10


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A call that waits for its answer. ``read`` converts the body of the answer."""

    key: bytes
    path: str
    body: bytes
    future: asyncio.Future[Any]
    read: Callable[[Any], Any]
    next_attempt: int = 0
    num_failures: int = 0

    @property
    def nbytes(self) -> int:
        return len(self.body) + NBYTES_AROUND

    def answer(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # the caller may be gone: no warning that the error was never retrieved


class BatchQueue:
    """Calls that wait to be submitted. Pure: the time is passed in, in seconds of any clock.

    A batch is due when it is full, or when no call has arrived for a while (``quiet_s``).
    """

    def __init__(self, capacity: BatchCapacity, poll_interval_s: float) -> None:
        self._capacity = capacity
        self._poll_interval_s = poll_interval_s
        self._calls: list[WaitingCall] = []
        self._nbytes = 0
        self._last_arrival: float | None = None
        self._longest_gap_s = 0.0
        self._held_until = -math.inf
        self._is_urgent = False

    def note_arrival(self, now: float) -> None:
        """Record that a call has arrived."""
        if self._last_arrival is not None:
            self._longest_gap_s = max(self._longest_gap_s, now - self._last_arrival)
        self._last_arrival = now

    def note_end(self, now: float) -> None:
        """Record that a batch has ended: its answers may lead to other calls, and the provider has room again."""
        self._last_arrival = now
        self._held_until = -math.inf

    def submit_soon(self) -> None:
        """Do not wait for further calls: they wait for the end of a batch."""
        self._is_urgent = True

    def add(self, calls: Iterable[WaitingCall]) -> None:
        for call in calls:
            self._calls.append(call)
            self._nbytes += call.nbytes

    def wait_s(self, now: float) -> float:
        """Return the time until the next batch is due, 0 or less if it is due."""
        if not self._calls:
            return math.inf
        held_s = self._held_until - now
        if len(self._calls) >= self._capacity.max_requests or self._nbytes >= self._capacity.max_nbytes:
            return held_s
        elapsed_s = math.inf if self._last_arrival is None else now - self._last_arrival
        wanted_s = MIN_QUIET_S if self._is_urgent else quiet_s(self._poll_interval_s, self._longest_gap_s)
        return max(held_s, wanted_s - elapsed_s)

    def take(self) -> list[WaitingCall]:
        """Remove and return the calls of the next batch. Calls that were cancelled are dropped."""
        self._is_urgent = False
        wanted = [call for call in self._calls if not call.future.done()]
        num = num_fitting((call.nbytes for call in wanted), self._capacity)
        self._calls = wanted[num:]
        self._nbytes = sum(call.nbytes for call in self._calls)
        return wanted[:num]

    def shrink(self, num_requests: int) -> None:
        """Limit batches to half the size of a batch that was too large."""
        self._capacity = self._capacity.lowered(max(1, num_requests // 2))

    def hold_back(self, now: float, has_others: bool) -> None:
        """Submit nothing for a while, as the account has reached its limit: until another batch ends, if any runs."""
        self._held_until = now + self._poll_interval_s * (MAX_POLL_FACTOR if has_others else 1)


def num_fitting(sizes: Iterable[int], capacity: BatchCapacity) -> int:
    """Return the number of requests, given their bytes, that fit into one batch: at least one.

    >>> num_fitting([50, 40, 30], BatchCapacity(max_requests=10, max_nbytes=100))
    2
    """
    num, nbytes = 0, 0
    for size in sizes:
        nbytes += size
        if num and (num >= capacity.max_requests or nbytes > capacity.max_nbytes):
            break
        num += 1
    return num


def quiet_s(poll_interval_s: float, longest_gap_s: float) -> float:
    """Return the time without arrivals after which a batch is submitted.

    It grows with the gaps between arrivals: rows that take seconds to prepare must not be submitted one by one.

    >>> [round(quiet_s(30, gap_s)) for gap_s in (0, 2, 1000)]
    [1, 8, 60]
    """
    return min(max(poll_interval_s * QUIET_SHARE, QUIET_FACTOR * longest_gap_s, MIN_QUIET_S), MAX_QUIET_S)

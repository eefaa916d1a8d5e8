"""Cohorts of requests: what the latency is with so many in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_COHORT = 6


class Cohort:
    """The mean latency of the next requests that are sent with ``low`` to ``high`` in flight.

    It is complete when four of five are answered; the others count with their age, so stragglers hold nothing up.
    """

    __slots__ = (
        *("_high", "_low", "_num", "_num_answered", "_sent_at", "_shortest_s"),
        *("is_complete", "is_even", "latency_s", "level", "room"),
    )

    def __init__(self, low: float, high: float = math.inf, size: float = 0) -> None:
        self._low, self._high = low, high
        self.room = int(size or min(max(12, low / 3), 128))  # for more requests
        self._num = self._num_answered = 0
        self._sent_at = 0.0  # the sum over the requests that are not answered
        self._shortest_s = math.inf
        self.is_even = True  # whether latencies differ by less than two times
        self.is_complete = False
        self.level = self.latency_s = 0.0  # sums, until the cohort is complete

    def join(self, now: float, level: int) -> Cohort | None:
        """Return the cohort if a request sent at ``level`` belongs to it."""
        if not self.room or not self._low <= level <= self._high:
            return None
        self.room -= 1
        self._num += 1
        self._sent_at += now
        self.level += level
        return self

    def leave(self, now: float, flight: Flight) -> None:
        """Take a request out that was not answered. Others take its place if few are left."""
        if self.is_complete:
            return
        self._num -= 1
        self.room += self._num < MIN_COHORT
        self._sent_at -= flight.at
        self.level -= flight.level
        self._check(now)

    def answer(self, now: float, flight: Flight) -> None:
        if self.is_complete:
            return
        seconds = now - flight.at
        self._num_answered += 1
        self.latency_s += seconds
        self._sent_at -= flight.at
        self._shortest_s = min(seconds, self._shortest_s)
        self.is_even = self.is_even and seconds <= 2 * self._shortest_s
        self._check(now)

    def _check(self, now: float) -> None:
        if not self.room and self._num_answered >= 0.8 * self._num:
            self.is_complete = True
            in_flight_s = (self._num - self._num_answered) * now - self._sent_at
            self.latency_s = max(self.latency_s + in_flight_s, 1e-9) / self._num
            self.level /= self._num

    @property
    def throughput(self) -> float:
        return self.level / self.latency_s


@dataclass(slots=True, eq=False)
class Flight:
    """A request in flight, with the state when it was sent."""

    at: float
    seq: int
    level: int  # the number of concurrent requests with this one
    num_refused: int
    cohort: Cohort | None

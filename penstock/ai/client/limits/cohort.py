"""Cohorts of requests: the latency at a given number in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_COHORT = 6
UNEVEN = 3
"""The factor by which a cohort grows when latencies vary, because their mean then needs more answers."""


class Cohort:
    """The mean latency of the next requests that are sent with ``low`` to ``high`` in flight.

    It is complete when four of five calls are answered. The others count with their age, so nothing waits for
    stragglers.
    """

    __slots__ = (
        *("_high", "_low", "_num", "_num_answered", "_sent_at", "_shortest_s", "_size"),
        *("is_complete", "is_even", "latency_s", "level", "room"),
    )

    def __init__(self, low: float, high: float, size: float) -> None:
        self._low, self._high = low, high
        self._size = self.room = int(min(size, 128))  # room for more requests
        self._num = self._num_answered = 0
        self._sent_at = 0.0  # the sum over the requests that are not answered
        self._shortest_s = math.inf
        self.is_even = True  # whether latencies differ by less than three times
        self.is_complete = False
        self.level = self.latency_s = 0.0  # sums, until the cohort is complete

    def joins(self, now: float, level: int) -> bool:
        """Return whether a request sent at ``level`` belongs to the cohort."""
        if not self.room or not self._low <= level <= self._high:
            return False
        self.room -= 1
        self._num += 1
        self._sent_at += now
        self.level += level
        return True

    def settle(self, now: float, flight: Flight, *, is_answer: bool) -> None:
        """Record the end of a request. If it has no answer and few requests are left, others take its place."""
        if self.is_complete:
            return
        self._sent_at -= flight.at
        if is_answer:
            seconds = now - flight.at
            self._num_answered += 1
            self.latency_s += seconds
            self._shortest_s = min(seconds, self._shortest_s)
            if self.is_even and seconds > 3 * self._shortest_s:
                self.is_even = False
                self.room += UNEVEN * self._size
        else:
            self._num -= 1
            self.level -= flight.level
            self.room += self._num < MIN_COHORT
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

"""The number of concurrent requests: as many as the server takes, and no more than make it faster.

By Little's law, throughput is the number in flight divided by the latency. So two cohorts of requests, sent with few
and with more in flight, show whether more requests gain anything: if the latency stays, throughput grows with them; if
the latency grows as they do, they only wait in the server's queue.
"""

from __future__ import annotations

import math

from penstock.ai.remote.limits.alarm import Alarm
from penstock.ai.remote.limits.cohort import Cohort, Flight
from penstock.ai.remote.limits.slots import Slots

START = 64
MIN_GAIN = 0.4
"""More requests are worth it if throughput grows by this share of their growth."""

SAME_THROUGHPUT = 0.8
"""The limit falls on while throughput is at least this share of the best; measurements vary by a tenth."""

SAME_LATENCY = 0.8
"""If the latency stays above this share although the limit has fallen, there is no queue."""

HEADROOM = 1.3
"""The limit over the smallest number of requests that keep a queueing server busy."""

FAST, SLOW = 1.7, 1.5
"""The growth of the limit with a round of answers: at first, and from the place that was found."""

WAIT_ROUNDS, UNEVEN_WAIT_ROUNDS, MAX_PATIENCE = 32, 8, 4
"""The limit is raised again after so many rounds of answers, fewer if latencies vary so that it may be wrong; and after
twice as many each time that gains nothing."""

MAX_LATE = 0.2
"""The share of time-outs that may be chance."""


class Concurrency:
    """A limit that grows with each round of answers while throughput grows with it.

    When it does not, the limit falls by halves until throughput does, too: ``HEADROOM`` above that is the place to be,
    and from there the limit tries more now and then. Time-outs halve it. Slots of the server take its place.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.in_flight = 0
        self.slots = Slots()
        self._num_refused = 0
        self._hold_until = 0.0
        self._time_outs = Alarm()
        self._cut_seq = 0  # the last request before the last time-outs
        self._growth = FAST
        self._num_to_wait, self._patience = 0, 1
        self._best = 0.0  # throughput
        self._is_falling, self._is_first, self._is_repeated = False, True, False
        # The first requests show two levels on their way up to the limit.
        start = self._limit = float(min(START, ceiling))
        self._low, self._high = Cohort(start / 4, start / 2, max(2, start / 8)), Cohort(0.75 * start)

    @property
    def limit(self) -> int:
        return int(min(self.slots.limit if self.slots.is_known else self._limit, self.ceiling))

    def full_until(self, now: float) -> float:
        """Return when to ask again for a full limit; ``inf`` means when a request is settled."""
        if not self.slots.is_known or self.in_flight > self.limit or self.limit >= self.ceiling:
            return math.inf
        full_until = self.slots.full_until(now)
        if self.slots.is_over(self._limit):
            self.slots = Slots()
        return full_until

    def set_ceiling(self, ceiling: int) -> None:
        """Change the ceiling. A higher one is reached as answers come."""
        self.ceiling = ceiling
        self._limit = min(self._limit, ceiling)

    def hold(self, until: float) -> None:
        """Do not grow before ``until``."""
        self._hold_until = max(self._hold_until, until)

    def send(self, now: float, seq: int) -> Flight:
        """Count a request."""
        self.in_flight += 1
        cohort = self._high.join(now, self.in_flight) if self._high.room else None
        if cohort is None and self._low.room:
            cohort = self._low.join(now, self.in_flight)
        return Flight(now, seq, self.in_flight, self._num_refused, cohort)

    def accept(self, now: float, flight: Flight) -> None:
        """Take an answer."""
        if flight.cohort is not None:
            flight.cohort.answer(now, flight)
        self.slots.accept(now - flight.at, flight.level)
        if self.slots.is_known or now < self._hold_until:
            return
        if self._low.is_complete and (self._is_falling or self._high.is_complete):
            self._compare()
        elif self._num_to_wait and 2 * flight.level >= self._limit:
            self._num_to_wait -= self._num_to_wait > 1 or self._low.is_complete  # else there is nothing to compare with
            if not self._num_to_wait:
                self._limit = min(SLOW * self._limit + 1, self.ceiling)

    def refuse(self, now: float, flight: Flight, last_seq: int) -> bool:
        """Take a refusal, when ``last_seq`` requests were sent. Return False if slots do not explain it."""
        self._num_refused += 1
        return self.slots.refuse(now, flight, self._num_refused - 1, self.limit, self.in_flight, last_seq)

    def ignore_refusals(self) -> None:
        """Forget the slots: refusals are about time, and limit the rate."""
        self.slots = Slots()
        self._patience = 0
        self._settle(self.ceiling)

    def time_out(self, seq: int, last_seq: int) -> None:
        """Take the time-out of request ``seq``, when ``last_seq`` were sent."""
        if seq > self._cut_seq and self._time_outs.hear(seq, MAX_LATE):
            self._cut_seq, self._best, self._patience = last_seq, 0.0, 0
            half, self.slots = self.limit / 2, Slots()
            self._fall(half)

    def _compare(self) -> None:
        """Decide by the throughput of the two cohorts."""
        low, high = self._low, self._high
        if self._is_falling:
            self._best = max(self._best, low.throughput)
            if low.throughput >= SAME_THROUGHPUT * self._best and self._limit > 1:
                self._fall(low.level / 2)
            elif high.is_complete and low.latency_s > SAME_LATENCY * high.latency_s:
                self._grow(high)  # it was a mistake: there is no queue
            else:
                self._settle(HEADROOM * self._best * low.latency_s + 1)
        elif not self._has_gained(low, high):
            self._best = max(low.throughput, high.throughput)
            if self._is_first or self._is_repeated:  # the first burst met an empty server, and tells little
                self._best, self._patience = 0.0, 0
            self._fall(low.level / 2)
        elif self._is_first and not high.is_even:  # a queue, or answers that vary: the next ones tell
            self._low, self._high = high, Cohort(0.75 * self._limit)
            self._is_first, self._is_repeated = False, True
        else:
            self._grow(high)

    def _grow(self, proven: Cohort) -> None:
        """Raise the limit: throughput grows up to a cohort."""
        self._low, self._high = proven, Cohort(1.3 * proven.level)
        self._patience = 1
        self._is_first = self._is_repeated = self._is_falling = False
        self._limit = min(self._growth * max(proven.level, self._limit), self.ceiling)

    @staticmethod
    def _has_gained(low: Cohort, high: Cohort) -> bool:
        """Return whether throughput has grown with the number of requests, or stayed at about the same number."""
        growth = high.level / low.level - 1
        if growth < 0.2:
            return high.latency_s <= 1.25 * low.latency_s
        return high.throughput >= (1 + MIN_GAIN * growth) * low.throughput

    def _fall(self, limit: float) -> None:
        self._limit = max(round(limit), 1)
        self._low, self._is_falling = Cohort(0.75 * self._limit, self._limit, max(16, self._limit / 2)), True

    def _settle(self, limit: float) -> None:
        """Stay at ``limit``, and find out in a while whether more requests gain something by now."""
        self._limit = max(min(round(limit), self.ceiling), 1)
        rounds = WAIT_ROUNDS if self._low.is_even else UNEVEN_WAIT_ROUNDS
        self._num_to_wait = self._limit * (self._patience * rounds or 1)
        self._patience = min(2 * self._patience or 1, MAX_PATIENCE)
        self._growth, self._is_first, self._is_repeated = SLOW, False, False
        size = min(max(32, self._limit / 2), 256)
        self._low, self._high = Cohort(0.75 * self._limit, self._limit, size), Cohort(1.25 * self._limit + 1, size=size)
        self._is_falling = False

"""The number of concurrent requests: as many as the server takes, and no more than make it faster.

By Little's law, throughput is the number in flight divided by the latency. So two cohorts of requests, sent with few
and with more in flight, show whether more requests gain anything: if the latency stays, throughput grows with them; if
the latency grows as they do, they only wait in the server's queue.
"""

from __future__ import annotations

import math

from penstock.ai.client.limits.alarm import Alarm
from penstock.ai.client.limits.cohort import Cohort, Flight
from penstock.ai.client.limits.slots import Slots

MIN_GAIN = 0.25
"""More requests pay off if throughput grows by at least this share of their growth."""

SAME_THROUGHPUT = 0.85
"""The limit keeps falling while throughput is at least this share of the best; measurements vary by a tenth."""

SAME_LATENCY = 0.8
"""If the latency stays above this share although the limit has fallen, there is no queue."""

HEADROOM = 1.5
"""The limit, as a multiple of the fewest requests that keep a queueing server busy."""

FAST, SLOW = 2.0, 1.5
"""The growth of the limit: at first, and after it has settled."""

WAIT_ROUNDS, UNEVEN_WAIT_ROUNDS, MAX_PATIENCE = 32, 16, 4
"""After this many rounds of answers the limit rises again; after fewer if latencies vary, so that the limit may be
wrong. The wait doubles each time that more requests gain nothing."""

MAX_LATE = 0.2
"""The share of time-outs that may be chance."""


class Concurrency:
    """A limit that grows with each round of answers while throughput grows with it.

    When throughput stops growing, the limit falls by halves until throughput falls as well. It settles at ``HEADROOM``
    times that, and tries more now and then. Time-outs halve it. If the server has slots, they take the place of this
    limit.
    """

    def __init__(self, ceiling: int, start: int) -> None:
        self.ceiling = ceiling
        self.in_flight = 0
        self.slots = Slots()
        self._num_refused = 0
        self._hold_until = 0.0
        self._is_held = self._is_second_look = False
        self._time_outs = Alarm()
        self._cut_seq = 0  # the last request before the last time-outs
        self._best = 0.0  # throughput
        self._is_falling = False
        start = min(start, ceiling)
        self._limit, self._growth = float(start), FAST
        self._num_to_wait, self._patience = 0, 1  # the first answers raise the limit, for a comparison
        self._low = Cohort(start / 2, start, start)
        self._high: Cohort | None = None  # with a raised limit

    @property
    def limit(self) -> int:
        return int(min(self.slots.limit if self.slots.is_known else self._limit, self.ceiling))

    def full_until(self, now: float) -> float:
        """Return the time to ask a full limit again; ``inf`` means: as soon as a request is settled."""
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
        """Do not grow before ``until``. Then measure again."""
        self._hold_until = max(self._hold_until, until)

    def send(self, now: float, seq: int) -> Flight:
        """Count a request."""
        self.in_flight += 1
        cohort = self._high if self._high is not None and self._high.room else self._low
        joined = cohort.room and cohort.joins(now, self.in_flight)
        return Flight(now, seq, self.in_flight, self._num_refused, cohort if joined else None)

    def settle(self, now: float, flight: Flight, *, is_answer: bool) -> None:
        """Count the end of a request."""
        self.in_flight -= 1
        if flight.cohort is not None:
            flight.cohort.settle(now, flight, is_answer=is_answer)

    def accept(self, now: float, flight: Flight) -> None:
        """Record an answer."""
        self.slots.accept(now - flight.at, flight.level)
        if self.slots.is_known:
            return
        was_held, self._is_held = self._is_held, now < self._hold_until
        if self._is_held:
            return
        if was_held and self._high is not None and not self._is_falling:
            self._high = self._raised_cohort()
        if self._is_falling:
            if self._low.is_complete:
                self._fall_or_settle(self._low, self._high)
        elif self._high is not None:
            if self._high.is_complete:
                self._grow_or_fall(self._low, self._high)
        elif 2 * flight.level >= self._limit:
            self._num_to_wait -= 1
            if self._num_to_wait <= 0 and self._low.is_complete and self._limit < self.ceiling:
                self._raise(self._limit)

    def refuse(self, now: float, flight: Flight, last_seq: int) -> bool:
        """Record a refusal after ``last_seq`` requests. Return False if slots do not explain it."""
        self._num_refused += 1
        return self.slots.refuse(now, flight, self._num_refused - 1, self.limit, self.in_flight, last_seq)

    def ignore_refusals(self) -> None:
        """Forget the slots: refusals are about time, and limit the rate."""
        self.slots = Slots()
        self._settle(self.ceiling)

    def time_out(self, seq: int, last_seq: int) -> None:
        """Record the time-out of request ``seq`` after ``last_seq`` requests."""
        if seq > self._cut_seq and self._time_outs.hear(seq, MAX_LATE):
            self._cut_seq, self._best, self._patience = last_seq, 0.0, 1
            half, self.slots = self.limit / 2, Slots()
            self._fall(half)

    def _grow_or_fall(self, low: Cohort, high: Cohort) -> None:
        """Decide by the throughput with a raised limit.

        Look twice before the first fall: new connections, and code that runs for the first time, look like a queue.
        """
        if high.throughput >= (1 + MIN_GAIN * (high.level / low.level - 1)) * low.throughput:
            self._grow(high)
        elif self._growth == FAST and not self._is_second_look:
            self._is_second_look, self._high = True, self._raised_cohort()
        else:
            self._best = max(low.throughput, high.throughput)
            self._fall(low.level / 2)

    def _fall_or_settle(self, low: Cohort, high: Cohort | None) -> None:
        """Decide by the throughput with a limit that has fallen."""
        self._best = max(self._best, low.throughput)
        if low.throughput >= SAME_THROUGHPUT * self._best and self._limit > 1:
            self._fall(low.level / 2)
        elif high is not None and high.is_complete and low.latency_s > SAME_LATENCY * high.latency_s:
            self._grow(high)  # it was a mistake: there is no queue
        else:
            self._settle(HEADROOM * self._best * low.latency_s + 1)

    def _grow(self, proven: Cohort) -> None:
        """Raise the limit: throughput grows up to a cohort."""
        self._patience = 1
        proven_limit = max(proven.level, self._limit)
        if proven_limit >= self.ceiling:
            self._settle(self.ceiling)
        else:
            self._low, self._is_falling = proven, False
            self._raise(proven_limit)

    def _raise(self, proven_limit: float) -> None:
        """Try more requests. Only requests sent when nearly all are in flight show how long the queue becomes."""
        self._limit = min(math.ceil(self._growth * proven_limit), self.ceiling)
        self._is_second_look, self._high = False, self._raised_cohort()

    def _raised_cohort(self) -> Cohort:
        size = max(6, 0.15 * self._limit) if self._growth == FAST else max(16, 0.3 * self._limit)
        return Cohort(0.85 * self._limit, math.inf, size)

    def _fall(self, limit: float) -> None:
        self._limit = max(round(limit), 1)
        self._low, self._is_falling = Cohort(0.75 * self._limit, self._limit, max(8, self._limit / 2)), True

    def _settle(self, limit: float) -> None:
        """Stay at ``limit``, and try more requests again after a while."""
        self._limit = max(min(round(limit), self.ceiling), 1)
        rounds = WAIT_ROUNDS if self._low.is_even else UNEVEN_WAIT_ROUNDS
        self._num_to_wait = self._limit * self._patience * rounds
        self._patience = min(2 * self._patience, MAX_PATIENCE)
        self._growth, self._is_falling = SLOW, False
        self._low, self._high = Cohort(0.75 * self._limit, self._limit, max(32, self._limit / 2)), None

"""The number of concurrent requests: as many as the server takes, and no more than make it faster.

By Little's law, throughput is the number in flight divided by the latency. So two cohorts of requests, sent with few
and with more in flight, show whether more requests gain anything: if the latency stays, throughput grows with them; if
the latency grows as they do, they only wait in the server's queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.ai.remote.limits.alarm import Alarm

START = 64
MIN_GAIN = 0.4
"""More requests are worth it if throughput grows by this share of their growth."""

SAME_THROUGHPUT = 0.8
"""The limit falls on while throughput is at least this share of the best; measurements vary by a tenth."""

SAME_LATENCY = 0.8
"""If the latency stays above this share although the limit has fallen, there is no queue."""

HEADROOM = 1.2
"""The limit over the smallest number of requests that keep a queueing server busy."""

MIN_COHORT = 6
FAST, SLOW = 1.7, 1.5
"""The growth of the limit with a round of answers: at first, and from the place that was found."""

WAIT_ROUNDS, UNEVEN_WAIT_ROUNDS, MAX_PATIENCE = 32, 8, 8
"""The limit is raised again after so many rounds of answers, fewer if latencies vary so that it may be wrong; and after
twice as many each time that gains nothing."""

NOISE_BEFORE, NOISE_AFTER = 0.2, 0.03
"""The share of refusals that may be chance, before a limit of the server is known and after."""

SLOTS_LOW, SLOTS_HIGH = 0.7, 1.4
"""A server that counts requests in flight refuses at the same number. Other refusals are about time."""

MIN_PROBE_GAP_S, MAX_PROBE_GAP_S = 0.05, 5.0


class Cohort:
    """The mean latency of the next requests that are sent with ``low`` to ``high`` in flight.

    It is complete when four of five are answered; the others count with their age, so stragglers hold nothing up.
    """

    __slots__ = ("_high", "_low", "_num", "_num_answered", "_room", "_sent_at", "_shortest_s", "is_complete", "is_even")
    __slots__ += ("latency_s", "level")

    def __init__(self, low: float, high: float = math.inf, size: float = 0) -> None:
        self._low, self._high = low, high
        self._room = int(size or min(max(12, low / 3), 128))  # for more requests
        self._num = self._num_answered = 0
        self._sent_at = 0.0  # the sum over the requests that are not answered
        self._shortest_s = math.inf
        self.is_even = True  # whether latencies differ by less than two times
        self.is_complete = False
        self.level = self.latency_s = 0.0  # sums, until the cohort is complete

    def join(self, now: float, level: int) -> Cohort | None:
        """Return the cohort if a request sent at ``level`` belongs to it."""
        if not self._room or not self._low <= level <= self._high:
            return None
        self._room -= 1
        self._num += 1
        self._sent_at += now
        self.level += level
        return self

    def leave(self, now: float, flight: Flight) -> None:
        """Take a request out that was not answered. Others take its place if few are left."""
        if self.is_complete:
            return
        self._num -= 1
        self._room += self._num < MIN_COHORT
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
        if not self._room and self._num_answered >= 0.8 * self._num:
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


class Concurrency:
    """A limit that doubles with each round of answers while throughput grows with it.

    When it does not, the limit falls by halves until throughput does, too: ``HEADROOM`` above that is the place to be,
    and from there the limit grows slowly. Time-outs halve the limit. Refusals lower it to the requests that were
    accepted (slots of the server); from there single requests probe for more, without waiting for answers, because
    refusals come at once.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.in_flight = 0
        self._hold_until = 0.0
        self._refusals, self._time_outs = Alarm(), Alarm()
        self._num_refused = 0
        self._refusal_s = 0.0
        self._cut_seq = 0  # the last request before the last cut
        self._peak = float(START)  # the limit before the first refusal
        self.cut_at = -math.inf
        self._slots = self._most_slots = 0.0  # accepted at once, by the last refusals and at most
        self._probe_at = math.inf
        self._probe_gap_s = MIN_PROBE_GAP_S
        self._num_probes = 1
        # The first requests show two levels on their way up to the limit.
        limit = self.limit = float(min(START, ceiling))
        self._growth = FAST
        self._num_to_wait, self._patience = 0, 1
        self._low, self._high = Cohort(limit / 4, limit / 2, max(2, limit / 8)), Cohort(0.75 * limit)
        self._best = 0.0  # throughput
        self._is_falling, self._is_first, self._is_repeated = False, True, False

    def set_ceiling(self, ceiling: int) -> None:
        """Change the ceiling. A higher one is reached as answers come."""
        self.ceiling = ceiling
        self.limit = min(self.limit, ceiling)

    def hold(self, until: float) -> None:
        """Do not grow before ``until``."""
        self._hold_until = max(self._hold_until, until)

    def send(self, now: float, seq: int) -> Flight:
        """Count a request."""
        self.in_flight += 1
        cohort = self._high.join(now, self.in_flight) or self._low.join(now, self.in_flight)
        return Flight(now, seq, self.in_flight, self._num_refused, cohort)

    def full_until(self, now: float) -> float:
        """Return when to ask again for a full limit; ``inf`` means when a request is settled."""
        if not self._slots or self.limit >= self.ceiling:
            return math.inf
        if now < self._probe_at:
            return self._probe_at
        self.limit = min(self.limit + self._num_probes, self.ceiling)
        self._num_probes *= 2
        self._probe_at = now + self._min_probe_gap_s
        return now

    @property
    def has_no_slots(self) -> bool:
        """True if a server that refused requests has accepted far more in the meantime."""
        return bool(self._slots) and self.limit > SLOTS_HIGH * self._slots + 1

    def accept(self, now: float, flight: Flight) -> None:
        """Take an answer."""
        if flight.cohort is not None:
            flight.cohort.answer(now, flight)
        if self._slots or now < self._hold_until:
            return
        if self._low.is_complete and (self._is_falling or self._high.is_complete):
            self._compare()
        elif self._num_to_wait and 2 * flight.level >= self.limit:
            self._num_to_wait -= 1
            if not self._num_to_wait:
                self.limit = min(SLOW * self.limit + 1, self.ceiling)

    def refuse(self, now: float, flight: Flight, last_seq: int) -> bool:
        """Take a refusal, when ``last_seq`` requests were sent.

        Return False if the number of concurrent requests does not explain it. Requests sent before a cut that turn out
        to be refused only correct it.
        """
        refused_since = self._num_refused - flight.num_refused
        self._num_refused += 1
        self._refusal_s += 0.2 * (now - flight.at - self._refusal_s)
        if flight.seq > self._cut_seq:
            if self._slots and flight.level > self._slots:
                self._probe_gap_s = min(2 * self._probe_gap_s, MAX_PROBE_GAP_S)
                self._set_slots(now, self._slots)
                return True
            if not self._refusals.hear(flight.seq, NOISE_AFTER if self._slots else NOISE_BEFORE):
                return True
            self._cut_seq, self.cut_at = last_seq, now
            self._peak = self._peak if self._slots else max(self._peak, self.limit)
            self._most_slots = max(self._most_slots, self._slots)
        accepted = max(self.in_flight, flight.level - 1 - refused_since)
        self._set_slots(now, min(self.limit, accepted))
        return accepted > 0 and self.limit >= SLOTS_LOW * self._most_slots

    def _set_slots(self, now: float, slots: float) -> None:
        self.limit = self._slots = max(slots, 1.0)
        self._probe_at, self._num_probes = now + max(self._probe_gap_s, self._min_probe_gap_s), 1

    @property
    def _min_probe_gap_s(self) -> float:
        return max(MIN_PROBE_GAP_S, 2.2 * self._refusal_s)

    def ignore_refusals(self) -> None:
        """Forget the slots: refusals are about time."""
        self._slots = self._most_slots = 0.0
        self._patience = 0
        self._settle(self.ceiling)

    def time_out(self, seq: int, last_seq: int) -> None:
        """Take the time-out of request ``seq``, when ``last_seq`` were sent."""
        if seq > self._cut_seq and self._time_outs.hear(seq, NOISE_BEFORE):
            self._cut_seq, self._best, self._patience = last_seq, 0.0, 0
            self._fall(self.limit / 2)

    def _compare(self) -> None:
        """Decide by the throughput of the two cohorts."""
        low, high = self._low, self._high
        if self._is_falling:
            self._best = max(self._best, low.throughput)
            if low.throughput >= SAME_THROUGHPUT * self._best and self.limit > 1:
                self._fall(low.level / 2)
            elif high.is_complete and low.latency_s > SAME_LATENCY * high.latency_s:
                self._grow(high)  # it was a mistake: there is no queue
            else:
                self._settle(HEADROOM * self._best * low.latency_s + 1)
        elif not self._has_gained(low, high):
            # The first burst met an empty server: its throughput says nothing.
            self._best = 0.0 if self._is_first or self._is_repeated else max(low.throughput, high.throughput)
            self._fall(low.level / 2)
        elif self._is_first and not high.is_even:  # a queue, or answers that vary: the next ones tell
            self._low, self._high = high, Cohort(0.75 * self.limit)
            self._is_first, self._is_repeated = False, True
        else:
            self._grow(high)

    def _grow(self, proven: Cohort) -> None:
        """Raise the limit: throughput grows up to a cohort."""
        self._low, self._high = proven, Cohort(1.3 * proven.level)
        self._most_slots, self._patience = proven.level, 1
        self._is_first = self._is_repeated = self._is_falling = False
        self.limit = min(self._growth * max(proven.level, self.limit), self.ceiling)

    @staticmethod
    def _has_gained(low: Cohort, high: Cohort) -> bool:
        """Return whether throughput has grown with the number of requests, or stayed at about the same number."""
        growth = high.level / low.level - 1
        if growth < 0.2:
            return high.latency_s <= 1.25 * low.latency_s
        return high.throughput >= (1 + MIN_GAIN * growth) * low.throughput

    def _fall(self, limit: float) -> None:
        self.limit = max(round(limit), 1)
        self._low, self._is_falling = Cohort(0.75 * self.limit, self.limit, max(16, self.limit / 2)), True

    def _settle(self, limit: float) -> None:
        """Stay at ``limit``, and find out in a while whether more requests gain something by now."""
        self.limit = max(min(round(limit), self.ceiling), 1)
        rounds = WAIT_ROUNDS if self._low.is_even else UNEVEN_WAIT_ROUNDS
        self._num_to_wait = self.limit * (self._patience * rounds or 1)
        self._patience = min(2 * self._patience or 1, MAX_PATIENCE)
        self._growth, self._is_first, self._is_repeated = SLOW, False, False
        size = min(max(32, self.limit / 2), 256)
        self._low, self._high = Cohort(0.75 * self.limit, self.limit, size), Cohort(1.25 * self.limit + 1, size=size)
        self._is_falling = False

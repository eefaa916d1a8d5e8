"""The slots of a server: the number of requests that it accepts at once, learned from its refusals."""

from __future__ import annotations

import math

from penstock.ai.client.limits.alarm import Alarm
from penstock.ai.client.limits.cohort import Flight

NOISE_BEFORE, NOISE_AFTER = 0.2, 0.03
"""The share of refusals that may be chance, before slots are known and after."""

SLOTS_LOW, SLOTS_HIGH, FEW = 0.6, 1.4, 4
"""A server with slots refuses at about the same number in flight. Refusals at other numbers are about time, unless the
number is so small that other clients explain it."""

MIN_PROBE_GAP_S, MAX_PROBE_GAP_S = 0.06, 5.0
PROBE_S = 0.005
"""Requests sent within this time of a raised limit are its probe."""

LEFT_FREE, MOST_UNUSED = 0.1, 0.03
"""The share of slots that is left to others after a refused probe, and the most that this may cost over time."""

STEP_ANSWERS, MAX_STEP_S = 8, 0.6
"""The client takes back a slot that it left free after this many answers."""

MIN_STEPS, MAX_STEPS = 5, 8
"""The time from when the limit is restored to the next probe for more."""


class Slots:
    """A limit on the number of concurrent requests; it is infinite until refusals show one.

    Refusals lower it to the requests that were accepted, less a tenth that is left to other clients for a moment. It
    takes these back one by one, then single requests probe for more, without waiting for answers: refusals come at
    once, and a request that is not refused was accepted. So clients that share a server approach equal shares, because
    a client with more slots leaves more. A limit of 0 means that others hold all slots, or an outage; then requests
    probe ever more rarely.
    """

    def __init__(self) -> None:
        self.limit = math.inf
        self.is_known = False
        self.cut_at = -math.inf
        self._cut_seq = 0  # the last request before the last cut
        self._alarm = Alarm()
        self._found = math.inf  # slots, by the last refusals
        self._most = 0.0  # requests that were certainly accepted at once
        self._refusal_s = self._latency_s = 0.0
        self._probe_at = math.inf
        self._probed_at, self._num_sure = -math.inf, 0.0  # the last probe, and the limit before it
        self._num_probes = 1
        self._probe_gap_s = MIN_PROBE_GAP_S

    @property
    def is_refuted(self) -> bool:
        """True if a server that refused requests has accepted far more in the meantime."""
        is_far = self.limit > SLOTS_HIGH * self._found + 1 and self._num_sure > self._found + FEW
        return is_far and self._found > FEW

    def is_over(self, limit: float) -> bool:
        """Return whether other clients that held nearly all slots are gone: the server accepts ``limit`` requests
        again."""
        return self._found <= FEW and self.limit >= limit

    def accept(self, seconds: float, level: int) -> None:
        """Record an answer to a request sent with ``level`` in flight."""
        self._latency_s += 0.1 * (seconds - self._latency_s) if self._latency_s else seconds
        if not self.is_known and self._most < level:
            self._most += 1

    def full_until(self, now: float) -> float:
        """Return when to ask again for a full limit; ``inf`` means when a request is settled."""
        if self._probe_at == math.inf:  # the time for which slots stay free begins
            self._probe_at = now + self._gap_s()
        if now < self._probe_at:
            return self._probe_at
        self._num_sure, self._probed_at = self.limit, now
        if self.limit < self._found:
            self.limit += 1
            self._probe_at = now + self._gap_s()
        else:
            self.limit += self._num_probes
            self._num_probes *= 2
            self._probe_at = now + self._min_gap_s
        return now

    def refuse(self, now: float, flight: Flight, num_refused: int, limit: float, num_in_flight: int, seq: int) -> bool:
        """Record a refusal after ``seq`` requests; ``num_refused`` of these were refused before.

        Return False if slots do not explain it. Refusals of requests sent before a cut only correct the cut.
        """
        is_probe = flight.level > self._num_sure and flight.at < self._probed_at + PROBE_S
        self._refusal_s += 0.2 * (now - flight.at - self._refusal_s)
        found = max(num_in_flight, flight.level - 1 - (num_refused - flight.num_refused))
        if flight.seq <= self._cut_seq:
            self._found = min(found, self._found)
            self.limit = min(self.limit, self._found)
        elif is_probe or self._alarm.hear(flight.seq, NOISE_AFTER if self.is_known else NOISE_BEFORE):
            self._cut_seq, self.cut_at = seq, now
            self._cut(min(limit, found), is_probe=is_probe)
        else:
            return True
        self._probe_at, self._num_probes = (math.inf if num_in_flight > self.limit else now + self._gap_s()), 1
        return self._found >= SLOTS_LOW * self._most or self._most <= 2 * FEW

    def _cut(self, found: float, *, is_probe: bool) -> None:
        if self.is_known:
            self._most = max(self._found, (1 - LEFT_FREE) * self._most if is_probe else self._most)
            self._probe_gap_s *= 0.25 if found > self._found else 2
        self._found, self.is_known = found, True
        self.limit = found - self._num_left if is_probe else found

    @property
    def _num_left(self) -> int:
        """The number of slots to leave free after a refused probe."""
        return math.ceil(LEFT_FREE * self._found) if self._found > 1 else 0

    def _gap_s(self) -> float:
        """Return the time to the next step back, or to the next probe: soon after a gain, then ever more rarely."""
        found, num_left = max(self._found, 1), self._num_left
        step_s = min(max(self._min_gap_s, STEP_ANSWERS * (self._latency_s or math.inf) / found), MAX_STEP_S)
        if self.limit < self._found:
            return step_s
        steps = num_left * (num_left + 1) / (2 * MOST_UNUSED * found) - num_left
        longest_s = min(max(steps, MIN_STEPS), MAX_STEPS) * step_s
        self._probe_gap_s = max(min(self._probe_gap_s, longest_s), self._min_gap_s)
        return self._probe_gap_s

    @property
    def _min_gap_s(self) -> float:
        return min(max(MIN_PROBE_GAP_S, 2.2 * self._refusal_s), MAX_PROBE_GAP_S)

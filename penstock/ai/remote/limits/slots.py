"""The slots of a server: the number of requests that it accepts at once, learned from its refusals."""

from __future__ import annotations

import math

from penstock.ai.remote.limits.alarm import Alarm
from penstock.ai.remote.limits.cohort import Flight

NOISE_BEFORE, NOISE_AFTER = 0.2, 0.03
"""The share of refusals that may be chance, before slots are known and after."""

SLOTS_LOW, SLOTS_HIGH = 0.7, 1.4
"""A server that counts requests in flight refuses at the same number. Other refusals are about time."""

MIN_PROBE_GAP_S, MAX_PROBE_GAP_S = 0.05, 5.0


class Slots:
    """A limit on the number of concurrent requests; it is infinite until refusals show one.

    Refusals lower it to the requests that were accepted. Then single requests probe for more, ever more rarely, without
    waiting for answers: refusals come at once, and a request that is not refused was accepted.
    """

    def __init__(self) -> None:
        self.limit = math.inf
        self.is_known = False
        self.cut_at = -math.inf
        self._cut_seq = 0  # the last request before the last cut
        self._alarm = Alarm()
        self._found = math.inf  # slots, by the last refusals
        self._most = 0.0  # requests that were certainly accepted at once
        self._refusal_s = 0.0
        self._probe_at = math.inf
        self._probe_gap_s = MIN_PROBE_GAP_S
        self._num_probes = 1

    @property
    def is_refuted(self) -> bool:
        """True if a server that refused requests has accepted far more in the meantime."""
        return self.limit > SLOTS_HIGH * self._found + 1

    def prove(self, num_accepted: float) -> None:
        """Note that so many requests were accepted at once."""
        self._most = num_accepted

    def full_until(self, now: float) -> float:
        """Return when to ask again for a full limit; ``inf`` means when a request is settled."""
        if now < self._probe_at:
            return self._probe_at
        self.limit += self._num_probes
        self._num_probes *= 2
        self._probe_at = now + self._min_probe_gap_s
        return now

    def refuse(self, now: float, flight: Flight, num_refused: int, limit: float, num_in_flight: int, seq: int) -> bool:
        """Take a refusal, when ``seq`` requests were sent and ``num_refused`` were refused before.

        Return False if slots do not explain it. Requests sent before a cut that turn out to be refused only correct it.
        """
        self._refusal_s += 0.2 * (now - flight.at - self._refusal_s)
        if flight.seq > self._cut_seq:
            if flight.level > self._found:
                self._probe_gap_s = min(2 * self._probe_gap_s, MAX_PROBE_GAP_S)
                self._set(now, self._found)
                return True
            if not self._alarm.hear(flight.seq, NOISE_AFTER if self.is_known else NOISE_BEFORE):
                return True
            self._cut_seq, self.cut_at = seq, now
            self._most = max(self._most, self._found) if self.is_known else self._most
        accepted = max(num_in_flight, flight.level - 1 - (num_refused - flight.num_refused))
        self._set(now, max(min(limit, accepted), 1))
        return accepted > 0 and self.limit >= SLOTS_LOW * self._most

    def _set(self, now: float, slots: float) -> None:
        self.limit, self._found, self.is_known = slots, slots, True
        self._probe_at, self._num_probes = now + max(self._probe_gap_s, self._min_probe_gap_s), 1

    @property
    def _min_probe_gap_s(self) -> float:
        return max(MIN_PROBE_GAP_S, 2.2 * self._refusal_s)

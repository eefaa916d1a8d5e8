"""How many requests may be under way at once: almost doubling at first; later cut by refusals, and growing slowly."""

from __future__ import annotations

import math

START = 64
ROUND_S = 0.5
STEP, LATER_STEP, LATER = 0.65, 0.3, 192
"""How much an answer adds at first, and from when there may be ``LATER`` under way. Doubling would run far past what a
limited server takes, and few clients have the cores to keep more than that busy where answers are quick."""

FIRST_GROWTH = 0.02
HOLD_AFTER_CUT_S = 0.5
NUM_WITNESSES = 3


class Concurrency:
    """A limit that almost doubles with every round of answers, until refusals show that their number is what counts.

    Every answer counts for itself, so a round needs no end and stragglers hold nothing up; and only requests that came
    near the limit raise it. A refusal is blamed on the number under way if none was accepted lately while as many
    were; after some of those, each in a burst of its own, the limit is set below it. All others are left to the pace.
    """

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = ceiling
        self.limit = float(min(start, ceiling))
        self.in_flight = 0
        self._is_doubling = True
        self._target = self.limit  # where time has brought the limit; each answer goes one step towards it
        self._growth = FIRST_GROWTH
        self._grown_at = 0.0
        self._hold_until = 0.0
        self._round_at: float | None = None
        self._round_limit = self.limit
        self._num_witnesses = 0  # refusals in a row for one verdict: positive for the number, negative for the pace
        self._witnessed = 0  # how many were under way at the last refusal for which that was blamed
        self._num_taken = 0  # since then and at that level, sent and not refused
        self._heard_seq = 0
        self._highest = self._highest_before = 0  # most under way when one was accepted: this second, the one before
        self._highest_since = 0.0

    @property
    def _step(self) -> float:
        return STEP if self.limit < LATER else LATER_STEP

    def set_ceiling(self, ceiling: int) -> None:
        """Allow no more than ``ceiling`` from now on."""
        self.ceiling = ceiling
        self._round_at = None
        self.limit = min(max(self.limit, START) if self._is_doubling else self.limit, ceiling)

    def rescale(self, factor: float) -> None:
        """Be left with as much of what was learned, as others who call the server came or went."""
        if not self._is_doubling:
            self.limit = self._target = max(1.0, self.limit * factor)

    def hold(self, until: float) -> None:
        """Do not grow before ``until``."""
        self._hold_until = max(self._hold_until, until)

    def send(self) -> int:
        """Count a request that is sent, and return how many are under way with it."""
        self.in_flight += 1
        if self.in_flight >= self._witnessed:
            self._num_taken += 1
        return self.in_flight

    def full_until(self, now: float) -> float:
        """Say, of a limit that is full, when it may be asked again: ``inf`` means once a request is settled.

        Refusals come at once, answers may take long. So where nothing was ever refused, half a second in which the
        answers did not raise the limit raises it as a round of them would; whoever waits at it then has room.
        """
        if self._heard_seq or self.limit >= self.ceiling:
            return math.inf
        if self._round_at is None or self.limit >= (1 + self._step) * self._round_limit:
            self._round_at, self._round_limit = now, self.limit
        ready_at = max(self._round_at + ROUND_S, self._hold_until)
        if now < ready_at:
            return ready_at
        self.limit = min((1 + self._step) * self._round_limit, self.ceiling)
        self._round_at, self._round_limit = now, self.limit
        return now

    def accept(self, now: float, level: int) -> None:
        """Take an answer to a request that was the ``level``-th under way when it was sent."""
        if now - self._highest_since > 1.0:
            self._highest_before, self._highest, self._highest_since = self._highest, 0, now
        if level > self._highest:
            self._highest = level
        if self.limit >= self.ceiling or 2 * level < self.limit or now < self._hold_until:
            return
        if self._is_doubling:
            self.limit = min(self.limit + self._step, self.ceiling)
        elif level >= int(self.limit) - 1:
            self._grow(now)

    def refuse(self, now: float, level: int, seq: int, last_seq: int) -> bool:
        """Take a refusal of request ``seq`` of ``last_seq``; return whether it is blamed on the number under way."""
        if level >= self._witnessed and seq > self._heard_seq:
            self._num_taken -= 1
        is_suspect = level > max(self._highest, self._highest_before) > 0
        if seq <= self._heard_seq:
            return is_suspect and not self._is_doubling
        self._heard_seq = last_seq
        if is_suspect:
            # A witness stands if all that was sent since at its level was refused, but for what is yet to be answered.
            is_refuted = self._num_taken > 3 + last_seq - seq
            self._num_witnesses = 1 if is_refuted else max(self._num_witnesses, 0) + 1
            self._witnessed, self._num_taken = level, 0
        else:
            self._num_witnesses = min(self._num_witnesses, 0) - 1
        if self._num_witnesses <= -NUM_WITNESSES:
            self._is_doubling = True
        elif is_suspect and (self._num_witnesses >= NUM_WITNESSES or not self._is_doubling):
            self._cut(now, level)
        return is_suspect and not self._is_doubling

    def _cut(self, now: float, level: int) -> None:
        self._is_doubling = False
        self.limit = self._target = max(1.0, min(self.limit, level - 1))
        self._growth, self._grown_at = FIRST_GROWTH, now + HOLD_AFTER_CUT_S
        self.hold(self._grown_at)

    def _grow(self, now: float) -> None:
        elapsed, self._grown_at = max(0.0, now - self._grown_at), now
        self._target = min(self._target * (1 + self._growth * elapsed), 2 * self.limit, self.ceiling)
        self._growth = min(self._growth * 2 ** min(elapsed, 10.0), 1.0)
        self.limit = min(self.limit + 1, self._target)

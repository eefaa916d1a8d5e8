"""The number of concurrent requests: it grows with every round of answers up to a ceiling."""

from __future__ import annotations

import math

START = 64
ROUND_S = 0.5
STEP, LATER_STEP, LATER = 0.65, 0.3, 192
"""Growth for each answer, and the smaller growth from ``LATER`` concurrent requests on. Doubling would exceed the limit
of a server by far, and few clients have the cores to keep more than that busy when answers are quick."""


class Concurrency:
    """A limit that grows by ``STEP`` for each answer to a request that was sent near the limit.

    A round needs no end, so slow answers do not delay growth. Refusals do not lower the limit: they lower the rate.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = float(min(START, ceiling))
        self.in_flight = 0
        self.is_refused = False  # whether a request was ever refused
        self._hold_until = 0.0
        self._round_at: float | None = None
        self._round_limit = self.limit

    def set_ceiling(self, ceiling: int) -> None:
        """Change the ceiling. A higher one is reached as answers come."""
        self.ceiling = ceiling
        self.limit = min(self.limit, ceiling)

    def hold(self, until: float) -> None:
        """Do not grow before ``until``."""
        self._hold_until = max(self._hold_until, until)

    def full_until(self, now: float) -> float:
        """Return when to ask again for a full limit; ``inf`` means when a request is settled.

        Refusals come at once, but answers may take long. While no request was refused, half a second without growth
        counts as a round of answers.
        """
        if self.is_refused or self.limit >= self.ceiling:
            return math.inf
        growth = 1 + (STEP if self.limit < LATER else LATER_STEP)
        if self._round_at is None or self.limit >= growth * self._round_limit:
            self._round_at, self._round_limit = now, self.limit
        ready_at = max(self._round_at + ROUND_S, self._hold_until)
        if now < ready_at:
            return ready_at
        self.limit = min(growth * self._round_limit, self.ceiling)
        self._round_at, self._round_limit = now, self.limit
        return now

    def accept(self, now: float, level: int) -> None:
        """Take an answer to a request that was the ``level``-th concurrent one when it was sent."""
        if 2 * level >= self.limit and now >= self._hold_until:
            self.limit = min(self.limit + (STEP if self.limit < LATER else LATER_STEP), self.ceiling)

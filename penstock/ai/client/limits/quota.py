"""Quotas: the user's caps on requests and tokens, and what the server's headers leave."""

from __future__ import annotations

from penstock.ai.client.limits.rate_headers import RateWindow

SLACK_S = 0.03
LONGEST_BLIND_WAIT_S = 60.0
"""The longest time to trust headers that say that nothing is left; then one request asks again."""


class Meter:
    """A cap in units a second, spent evenly. A request may be sent when the cap covers all earlier requests."""

    __slots__ = ("paid_at", "per_s")

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self.paid_at = 0.0

    def spend(self, now: float, units: float) -> None:
        self.paid_at = max(self.paid_at, now - SLACK_S) + units / self.per_s

    def correct(self, units: float) -> None:
        """Correct the units of a request that was sent."""
        self.paid_at += units / self.per_s


class Quota:
    """The quota that headers leave until its reset. The first half may be spent at once, the rest evenly.

    A quota that is renewed at the reset is used up without refusals. With a token bucket, which fills steadily,
    spending settles at the speed of the filling, with the bucket half full.
    """

    __slots__ = ("_floor", "_known_at", "_left", "_next_at", "_until")

    def __init__(self) -> None:
        self._left = self._floor = 0.0
        self._until = self._known_at = self._next_at = 0.0

    def update(self, now: float, window: RateWindow, sent_at: float, spent_since: float) -> None:
        """Take the quota as of a request sent at ``sent_at``; ``spent_since`` was spent after it."""
        if sent_at < self._known_at:
            return
        self._known_at = sent_at
        self._left = max(0.0, window.remaining - spent_since)
        self._floor = (window.limit if window.limit is not None else 2 * self._left) / 2
        self._until = min(sent_at + window.reset_s, now + LONGEST_BLIND_WAIT_S)

    def ready_at(self, now: float, units: float) -> float:
        if now >= self._until or self._left - units >= self._floor:
            return now
        if self._left < units:
            return self._until
        return min(self._next_at, self._until)

    def spend(self, now: float, units: float) -> None:
        if now >= self._until:
            return
        if 0 < self._left <= self._floor:
            self._next_at = max(self._next_at, now - SLACK_S) + (self._until - now) * units / self._left
        self._left = max(0.0, self._left - units)

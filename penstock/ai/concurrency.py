"""How many requests may be under way at once: additive growth, multiplicative cuts, and doubling at the start."""

from __future__ import annotations

START = 64
FIRST_GROWTH = 0.02


class Concurrency:
    """A limit that doubles with every round of answers until the first refusal; then it is cut, and grows slowly.

    Every answer counts for itself, so a round needs no end and stragglers hold nothing up. Only requests that filled the
    limit speak about it: where pacing or the caller keeps fewer under way, neither answers nor refusals move it.
    """

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = ceiling
        self.limit = float(min(start, ceiling))
        self.in_flight = 0
        self._is_doubling = True
        self._first_burst_seq = 0
        self._cut_seq = 0
        self._growth = FIRST_GROWTH
        self._grown_at = 0.0
        self._hold_until = 0.0

    @property
    def has_room(self) -> bool:
        return self.in_flight < int(self.limit)

    def set_ceiling(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.limit = min(self.limit, ceiling)

    def hold(self, until: float) -> None:
        self._hold_until = max(self._hold_until, until)

    def accept(self, now: float, level: int) -> None:
        """Take an answer to a request that was the ``level``-th under way when it was sent."""
        if self.limit >= self.ceiling or 2 * level < self.limit or now < self._hold_until:
            return
        if self._is_doubling:
            self.limit = min(self.limit + 1, self.ceiling)
        elif level >= int(self.limit) - 1:
            self._grow(now)

    def _grow(self, now: float) -> None:
        elapsed, self._grown_at = min(now - self._grown_at, 0.5), now
        self.limit = min(self.limit * (1 + self._growth * elapsed), self.ceiling)
        self._growth = min(self._growth * 2**elapsed, 1.0)

    def refuse(self, now: float, level: int, seq: int, last_seq: int) -> None:
        if seq <= self._first_burst_seq:
            self.limit = max(1.0, min(self.limit, level - 1))
        if seq <= self._cut_seq:
            return
        if level < 0.8 * self.limit:
            self._is_doubling = True  # fewer than allowed and still refused: it is the pace, not the number
            return
        if self._is_doubling:
            self._is_doubling = False
            self._first_burst_seq = last_seq
            self.limit = max(1.0, min(self.limit, level - 1))
        else:
            self.limit = max(1.0, 0.95 * min(self.limit, level))
        self._cut_seq = last_seq
        self._growth, self._grown_at = FIRST_GROWTH, now
        self.hold(now + 0.5)

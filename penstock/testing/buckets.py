"""Token buckets, as the limits of APIs work."""

from __future__ import annotations


class Bucket:
    """Fills by ``rate`` a second up to ``capacity``. The clock is the caller's.

    >>> bucket = Bucket(rate=10, capacity=2, now=0.0)
    >>> [bucket.wait_s(1, 0.0) or bucket.take(1) for _ in range(3)]
    [None, None, 0.1]
    """

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate, self.capacity = rate, max(capacity, 1.0)
        self.level = self.capacity
        self._updated = now

    def wait_s(self, amount: float, now: float) -> float:
        """Return after how many seconds so much may be taken; 0 means now. More than it can hold needs a full one."""
        self.level = min(self.capacity, self.level + (now - self._updated) * self.rate)
        self._updated = now
        return max(0.0, (min(amount, self.capacity) - self.level) / self.rate)

    def take(self, amount: float) -> None:
        """Take it, into debt if need be."""
        self.level -= amount

    @property
    def reset_s(self) -> float:
        """In how many seconds it is full again."""
        return max(0.0, (self.capacity - self.level) / self.rate)

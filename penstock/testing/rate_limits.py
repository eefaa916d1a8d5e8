"""The rate limits of a server: token buckets, and the headers that report them."""

from __future__ import annotations

from penstock.testing.apis.model_api import Vendor
from penstock.testing.script import Limits

RETRY_CONCURRENCY_S = 0.1


class TokenBucket:
    """A bucket that fills by ``rate`` a second up to ``capacity``. The caller passes the time.

    >>> bucket = TokenBucket(rate=10, capacity=2, now=0.0)
    >>> [bucket.wait_s(1, 0.0) or bucket.take(1) for _ in range(3)]
    [None, None, 0.1]
    """

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate, self.capacity = rate, max(capacity, 1.0)
        self.level = self.capacity
        self._updated = now

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until the amount is available. An amount above the capacity needs a full bucket."""
        self.level = min(self.capacity, self.level + (now - self._updated) * self.rate)
        self._updated = now
        return max(0.0, (min(amount, self.capacity) - self.level) / self.rate)

    def take(self, amount: float) -> None:
        """Take the amount; the level may become negative."""
        self.level -= amount

    @property
    def reset_s(self) -> float:
        """Seconds until the bucket is full."""
        return max(0.0, (self.capacity - self.level) / self.rate)


class RateLimits:
    """Admit requests by the limits of a script. The caller passes the time."""

    def __init__(self, limits: Limits, now: float) -> None:
        tokens = limits.tokens_per_minute
        rates = {"requests": limits.requests_per_second, "tokens": None if tokens is None else tokens / 60}
        self._limits = limits
        self._buckets = {
            kind: TokenBucket(rate, rate * limits.burst_s, now) for kind, rate in rates.items() if rate is not None
        }
        self.is_unlimited = limits == Limits()

    def admit(self, tokens: int, in_flight: int, now: float) -> float:
        """Charge a request and return 0, or return the seconds to wait before sending it again."""
        if self._limits.max_concurrency is not None and in_flight > self._limits.max_concurrency:
            return RETRY_CONCURRENCY_S
        amounts = {"requests": 1, "tokens": tokens}
        wait_s = max((bucket.wait_s(amounts[kind], now) for kind, bucket in self._buckets.items()), default=0.0)
        if not wait_s:
            for kind, bucket in self._buckets.items():
                bucket.take(amounts[kind])
        return wait_s

    def charge_tokens(self, tokens: int) -> None:
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(tokens)

    def headers(self, vendor: Vendor) -> dict[str, str]:
        """Return the headers that report the limits, per minute as the APIs do."""
        headers: dict[str, str] = {}
        for kind, bucket in self._buckets.items() if self._limits.has_headers else ():
            remaining = max(0, int(bucket.level))
            headers |= vendor.limit_headers(kind, round(bucket.rate * 60), remaining, bucket.reset_s)
        return headers

    def refusal_headers(self, vendor: Vendor, wait_s: float) -> dict[str, str]:
        return self.headers(vendor) | vendor.retry_headers(wait_s) if self._limits.has_headers else {}

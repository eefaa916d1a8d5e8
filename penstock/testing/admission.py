"""Whether a server takes a request, by its limits, and what it says about them."""

from __future__ import annotations

from penstock.testing.apis.exchange import Vendor
from penstock.testing.buckets import Bucket
from penstock.testing.script import Limits


class Admission:
    """The buckets of a server. The clock is the caller's."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._requests = self._bucket(limits.requests_per_second, limits.burst_s, now)
        tokens = limits.tokens_per_minute
        self._tokens = self._bucket(None if tokens is None else tokens / 60, limits.burst_s, now)
        self.is_open = limits == Limits()

    def wait_s(self, tokens: int, in_flight: int, now: float) -> float:
        """Return 0 and count the request in, or say when to come back."""
        if self._limits.max_concurrency is not None and in_flight > self._limits.max_concurrency:
            return 0.1
        waits = [
            bucket.wait_s(amount, now)
            for bucket, amount in ((self._requests, 1), (self._tokens, tokens))
            if bucket is not None
        ]
        if not (wait := max(waits, default=0.0)):
            if self._requests is not None:
                self._requests.take(1)
            self.charge(tokens)
        return wait

    def charge(self, tokens: int) -> None:
        """Count tokens that were used."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    def headers(self, vendor: Vendor) -> dict[str, str]:
        """Return what answers say about the limits."""
        if not self._limits.has_headers:
            return {}
        told: dict[str, str] = {}
        for kind, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:  # by the minute, as the APIs say it
                remaining = max(0, int(bucket.level))
                told |= vendor.limit_headers(kind, round(bucket.rate * 60), remaining, bucket.reset_s)
        return told

    def refusal_headers(self, vendor: Vendor, wait_s: float) -> dict[str, str]:
        return self.headers(vendor) | vendor.retry_headers(wait_s) if self._limits.has_headers else {}

    @staticmethod
    def _bucket(rate: float | None, burst_s: float, now: float) -> Bucket | None:
        return None if rate is None else Bucket(rate, rate * burst_s, now)

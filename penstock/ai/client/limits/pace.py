"""Decide when a request may be sent, without clock, thread or event loop.

``Pace`` combines the limits on the requests to a model: how many may run at once (concurrency.py), the rate that the
server accepts (send_rate.py), the user's caps and the quotas in headers (quota.py), and ``Retry-After``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from penstock.ai.client.limits.caps import NO_CAPS, Caps
from penstock.ai.client.limits.cohort import Flight
from penstock.ai.client.limits.concurrency import Concurrency
from penstock.ai.client.limits.quota import Meter, Quota
from penstock.ai.client.limits.rate_headers import NO_HINTS, Hints
from penstock.ai.client.limits.send_rate import SendRate
from penstock.cost.usage import UsageEstimate

Unit = Literal["requests", "tokens"]
Outcome = Literal["ok", "refused", "late", "unavailable", "other"]
"""``refused``: 429, 503, 529; ``late``: a time-out; ``unavailable``: other 5xx, a lost connection; ``other``: unrelated
to the load."""

MAX_WAIT_S = 600.0
"""The longest wait that a server may ask for. If it asks for more, requests fail, and the next one tries again."""
PAUSE_AFTER_5XX_S = 1.0
HOLD_PER_RETRY_AFTER = 10
"""After a ``Retry-After``, the rate does not grow for this many times the wait, so that it rarely causes another
one."""


@dataclass(slots=True, eq=False)
class Sent:
    """A request under way, with the state when it was sent."""

    at: float
    seq: int
    flight: Flight
    tokens: int
    reserved: int
    reserved_before: int


class Pace:
    """The state of the limits of one model. The caller passes the time, which never goes back."""

    def __init__(self, caps: Caps = NO_CAPS, ceiling: int = 1024, start: int = 64) -> None:
        self._concurrency = Concurrency(min(ceiling, caps.max_concurrency or ceiling), start)
        self._rate = SendRate()
        self._estimate = UsageEstimate()
        self._quotas: dict[Unit, Quota] = {}
        per_minute: dict[Unit, float | None] = {"requests": caps.requests_per_minute, "tokens": caps.tokens_per_minute}
        self._meters = {unit: Meter(cap / 60) for unit, cap in per_minute.items() if cap is not None}
        self.counts_tokens = "tokens" in self._meters  # else nothing depends on them
        self._is_shut = False
        self.blocked_until = -math.inf
        self.accepted_at = -math.inf
        self._seq = 0
        self._under_way: dict[int, None] = {}  # by number, in the order of sending
        self.newest_answered = 0
        self._reserved_total = 0
        self.num_refused = self.num_late = self.num_answered = 0

    def limit_requests(self, max_concurrency: int) -> None:
        """Allow at most this many concurrent requests from now on."""
        self._concurrency.set_ceiling(max_concurrency)

    def hold_growth(self, until: float) -> None:
        """Do not allow more concurrent requests before ``until``."""
        self._concurrency.hold(until)

    def try_send(self, now: float, tokens: int = 0) -> Sent | float:
        """Send a request now, or return when to ask again; ``inf`` means when another request is settled."""
        concurrency = self._concurrency
        if concurrency.in_flight >= concurrency.limit:
            if (full_until := concurrency.full_until(now)) > now:
                return full_until
            if concurrency.slots.is_refuted:
                self._pace_requests(now, now, self._seq, since=concurrency.slots.cut_at)
        if self._is_shut and concurrency.in_flight:
            return math.inf  # the request in flight finds out for all
        reserved = self._estimate.estimate(tokens) if self.counts_tokens else tokens
        wait_until = self._ready_at(now, reserved)
        if wait_until > now:
            return wait_until
        self._seq += 1
        self._under_way[self._seq] = None
        self._rate.send(now)
        flight = concurrency.send(now, self._seq)
        sent = Sent(now, self._seq, flight, tokens, reserved, self._reserved_total)
        self._reserved_total += reserved
        if self._meters or self._quotas:
            self._spend(now, reserved)
        return sent

    def _ready_at(self, now: float, reserved: int) -> float:
        ready = max(self.blocked_until, self._rate.ready_at(now))
        for meter in self._meters.values():
            ready = max(ready, meter.paid_at)
        for unit, quota in self._quotas.items():
            ready = max(ready, quota.ready_at(now, 1 if unit == "requests" else reserved))
        return ready

    def _spend(self, now: float, reserved: int) -> None:
        for unit, meter in self._meters.items():
            meter.spend(now, 1 if unit == "requests" else reserved)
        for unit, quota in self._quotas.items():
            quota.spend(now, 1 if unit == "requests" else reserved)

    def settle(
        self, now: float, sent: Sent, outcome: Outcome, used_tokens: int | None = None, hints: Hints = NO_HINTS
    ) -> None:
        """Record the outcome of a request."""
        del self._under_way[sent.seq]
        self._concurrency.settle(now, sent.flight, is_answer=outcome == "ok")
        if hints is not NO_HINTS:
            self._take_hints(now, sent, outcome, hints)
        if self._is_shut and outcome == "refused":
            self.num_refused += 1  # not a matter of rate
        elif outcome == "ok":
            self.accepted_at, self._is_shut = now, False
            self.num_answered += 1
            self.newest_answered = max(self.newest_answered, sent.seq)
            self._concurrency.accept(now, sent.flight)
            self._rate.accept(now, sent.seq)
        elif outcome == "refused":
            self.num_refused += 1
            self._refuse(now, sent)
        elif outcome == "late":
            self.num_late += 1
            self._concurrency.time_out(sent.seq, self._seq)
        elif outcome == "unavailable":
            self._concurrency.hold(now + PAUSE_AFTER_5XX_S)
            self._rate.hold(now + PAUSE_AFTER_5XX_S)
        if self.counts_tokens and (outcome == "refused" or used_tokens is not None):
            self._settle_tokens(sent, 0 if outcome == "refused" else used_tokens or 0, is_actual=outcome == "ok")

    def _refuse(self, now: float, sent: Sent) -> None:
        self._rate.uncount(sent.at)
        if self._rate.rate is not None:
            self._rate.refuse(now, sent.at, sent.seq, self._seq)
        elif not self._concurrency.refuse(now, sent.flight, self._seq):
            self._pace_requests(now, sent.at, sent.seq)

    def _pace_requests(self, now: float, sent_at: float, seq: int, since: float = -math.inf) -> None:
        """Limit the rate from now on, and not the number of concurrent requests."""
        self._concurrency.ignore_refusals()
        self._rate.refuse(now, sent_at, seq, self._seq, since)

    def _settle_tokens(self, sent: Sent, used: int, *, is_actual: bool) -> None:
        if is_actual:
            self._estimate.learn(sent.tokens, used)
        if "tokens" in self._meters:
            self._meters["tokens"].correct(used - sent.reserved)

    def _take_hints(self, now: float, sent: Sent, outcome: Outcome, hints: Hints) -> None:
        if outcome in ("refused", "unavailable") and (hints.wait_s(outcome) or 0.0) > MAX_WAIT_S:
            self._is_shut = True
            return
        if hints.retry_after_s is not None and outcome in ("refused", "unavailable"):
            self.blocked_until = max(self.blocked_until, now + hints.retry_after_s)
            self._rate.hold(now + HOLD_PER_RETRY_AFTER * hints.retry_after_s)
        if hints.requests is not None:
            spent_since = self._seq - sent.seq
            self._quotas.setdefault("requests", Quota()).update(now, hints.requests, sent.at, spent_since)
        if hints.tokens is not None:
            self.counts_tokens = True
            spent_since = self._reserved_total - sent.reserved_before - sent.reserved
            self._quotas.setdefault("tokens", Quota()).update(now, hints.tokens, sent.at, spent_since)

    @property
    def limit(self) -> int:
        return self._concurrency.limit

    @property
    def ceiling(self) -> int:
        return self._concurrency.ceiling

    @property
    def is_full(self) -> bool:
        """True if the next request must wait until another is settled, or for a time that ``try_send`` has returned."""
        return self._concurrency.in_flight >= self._concurrency.limit

    def rate_limit(self, now: float) -> str:
        """Return the rate that the next request waits for, in words; empty if it waits for a free place."""
        if self.is_full:
            return ""
        limits = [(meter.paid_at, f"{60 * meter.per_s:,.0f} {unit} per minute") for unit, meter in self._meters.items()]
        for unit, quota in self._quotas.items():
            if (ready_at := quota.ready_at(now, 1)) > now:
                limits.append((ready_at, f"the provider's quota of {unit}"))
        if self._rate.rate is not None:
            limits.append((self._rate.next_at, "the rate that the provider accepts"))
        return max(limits, default=(now, ""))[1]

    @property
    def in_flight(self) -> int:
        return self._concurrency.in_flight

    @property
    def num_sent(self) -> int:
        return self._seq

    @property
    def oldest_in_flight(self) -> int:
        """The number of the request that has been in flight longest; 0 without requests in flight."""
        return next(iter(self._under_way), 0)

    @property
    def rate(self) -> float | None:
        """Requests a second, learned from refusals; None if the server never refused."""
        return self._rate.rate

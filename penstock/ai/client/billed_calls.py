"""Billing: pay for each attempt of a call from the budget, or only count it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.ai.client.api_call import Answered, ApiCall, Calls
from penstock.cost.budget import Billing

REPEATED = ("retry", "suspect")
AWAITED = ("suspect", "probe")
"""Ranks of calls that are sent alone, while all others wait."""


class BilledCalls:
    """Reserves the cost of each attempt, and settles it.

    ``on_wait`` is called if a call must wait for money; ``max_at_once`` returns how many calls the limiter allows.
    """

    def __init__(
        self,
        calls: Calls,
        billing: Billing,
        max_at_once: Callable[[], int | None] = lambda: None,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self._calls, self._billing = calls, billing
        self._max_at_once, self._on_wait = max_at_once, on_wait
        self.close = calls.close

    async def ask(self, call: ApiCall) -> Answered:
        if call.rank in REPEATED:
            self._billing.count_retried()
        is_urgent = call.rank in AWAITED
        charge = await self._billing.reserve(call.body, call.tokens, call.inputs, self._on_wait, is_urgent=is_urgent)
        call.observer = charge
        try:
            answered = await self._calls.ask(call)
            charge.has_answer(answered.latency_s)
            return answered
        finally:
            if self._billing.is_sample:
                charge.max_at_once = self._max_at_once()
            self._billing.settle(charge)


class CountedCalls:
    """Counts answers where there is no budget, in a tenth of the time of billing them."""

    def __init__(self, calls: Calls, billing: Billing) -> None:
        self._calls, self._billing = calls, billing
        self.close = calls.close

    def ask(self, call: ApiCall) -> Awaitable[Answered]:
        if call.rank in REPEATED:
            self._billing.count_retried()
        call.observer = self._billing
        return self._calls.ask(call)

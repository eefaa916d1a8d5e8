"""Billing: pay for each attempt of a call from the budget, or only count it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.ai.client.api_call import Answered, ApiCall, Calls
from penstock.cost.budget import Billing

REPEATED = ("retry", "suspect")


class BilledCalls:
    """Reserves the cost of each attempt, and settles it.

    ``on_wait`` is called if a call must wait for money.
    """

    def __init__(
        self,
        calls: Calls,
        billing: Billing,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self._calls, self._billing, self._on_wait = calls, billing, on_wait
        self.close = calls.close

    async def ask(self, call: ApiCall) -> Answered:
        if call.rank in REPEATED:
            self._billing.count_retried()
        charge = await self._billing.reserve(call.body, call.tokens, call.inputs, self._on_wait)
        call.observer = charge
        try:
            answered = await self._calls.ask(call)
            charge.has_answer()
            return answered
        finally:
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

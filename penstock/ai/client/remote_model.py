"""Calls to a remote model: sent by a client or in batches, and billed if the query counts its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.limits.limiter import Rank
from penstock.ai.provider import CallSettings, Model
from penstock.ai.wire import ApiCall, Endpoint
from penstock.cache.memo import Memo
from penstock.cost.accounts import current_account, is_sampling
from penstock.cost.budget import Billing, Charge
from penstock.cost.prices import BATCH_SHARE, Price, price_of, unknown_price
from penstock.cost.usage import Usage, usage_in

if TYPE_CHECKING:
    from penstock.ai.client.batch.batch_calls import BatchCalls
    from penstock.ai.client.batch.batch_service import BatchService

Answer = TypeVar("Answer")
Read = Callable[[Any], Answer]


class Calls(Protocol):
    """Makes calls. A client, a batch queue, and wrappers around them that bill calls or cache their answers."""

    def ask(self, call: ApiCall, read: Read[Any]) -> Awaitable[tuple[Any, float | None]]:
        """Return ``read(body)`` for the body of the answer, and the latency in seconds, None for a cached answer."""

    async def close(self) -> None: ...


class BilledCalls:
    """Calls of a client. Reserves the cost of each attempt and settles it."""

    def __init__(self, client: ApiClient, billing: Billing) -> None:
        self._client, self._billing = client, billing
        self.close = client.close

    def ask(self, call: ApiCall, read: Read[Answer]) -> Coroutine[Any, Any, tuple[Answer, float]]:
        attempt = partial(self.ask_once, call, read)
        return self._client.retry(attempt, on_retry=self._billing.count_retried, tokens=call.tokens)

    async def ask_once(self, call: ApiCall, read: Read[Answer], rank: Rank = "first") -> tuple[Answer, float]:
        charge = await self._billing.reserve(call.body, call.tokens, call.inputs)
        try:
            answer, latency_s = await self._client.ask_once(call, _charged(read, charge), rank, charge)
            charge.latency_s = latency_s
            return answer, latency_s
        finally:
            if self._billing.is_sample:
                charge.max_at_once = self._client.max_at_once
            self._billing.settle(charge)


class CountedCalls:
    """Calls of a client without a budget. Counting the answers takes a tenth of the time of billing them."""

    def __init__(self, client: ApiClient, billing: Billing) -> None:
        self._client, self._billing = client, billing
        self.close = client.close

    def ask(self, call: ApiCall, read: Read[Answer]) -> Coroutine[Any, Any, tuple[Answer, float]]:
        attempt = partial(self.ask_once, call, read)
        return self._client.retry(attempt, on_retry=self._billing.count_retried, tokens=call.tokens)

    def ask_once(
        self, call: ApiCall, read: Read[Answer], rank: Rank = "first"
    ) -> Coroutine[Any, Any, tuple[Answer, float]]:
        def read_and_count(body: Any) -> Answer:
            self._billing.count_answer(usage_in(body) or Usage(call.tokens, 0))
            return read(body)

        return self._client.ask_once(call, read_and_count, rank)


class BilledBatchCalls:
    """Calls in batches. Reserves the cost of a call before it is queued."""

    def __init__(self, calls: BatchCalls[Any], billing: Billing) -> None:
        self._calls, self._billing = calls, billing
        self.close = calls.close

    async def ask(self, call: ApiCall, read: Read[Answer]) -> tuple[Answer, float]:
        charge = await self._billing.reserve(call.body, call.tokens, call.inputs, self._calls.submit_soon)
        try:
            answer, latency_s = await self._calls.ask(call, _charged(read, charge))
            if charge.usage is None:  # the answer was in the ledger
                charge.answered(None, latency_s)
            charge.latency_s = latency_s
            return answer, latency_s
        finally:
            self._billing.settle(charge)


def _charged(read: Read[Answer], charge: Charge) -> Read[Answer]:
    def read_and_charge(body: Any) -> Answer:
        charge.answered(usage_in(body), 0.0)
        return read(body)

    return read_and_charge


class RemoteModel(Model):
    """A model behind an HTTP API. Picklable; ``service`` is the provider's batch API."""

    base_url: str
    model_name: str

    def __init__(
        self, endpoint: Endpoint, model: str, settings: CallSettings, service: BatchService | None = None
    ) -> None:
        self._endpoint, self._settings, self._service = endpoint, settings, service
        self.base_url, self.model_name, self.cache = endpoint.base_url, model, settings.cache
        self._billing: Billing | None = None

    @property
    def billed_as(self) -> tuple[str, str]:
        return self._endpoint.provider, self.model_name

    def check_price(self) -> None:
        """Refuse a model without a known price."""
        if self._price is None:
            raise unknown_price(self._endpoint.provider, self.model_name)

    @property
    def _price(self) -> Price | None:
        price = self._settings.price or price_of(self._endpoint.provider, self.model_name)
        if price is None or self._settings.batch is None or is_sampling():
            return price
        return {kind: BATCH_SHARE * dollars for kind, dollars in price.items()}

    def _open_calls(self, read: Read[Any], memo: Memo | None, probe: ApiCall) -> Calls:
        """Open billing and return the calls.

        ``read`` and ``memo`` are for answers of batches of earlier runs. ``probe`` is a small call that the server must
        answer if it works.
        """
        endpoint, settings = self._endpoint, self._settings
        is_for_batch = settings.batch is not None and is_sampling()  # a sample cannot wait for a batch
        if (account := current_account()) is not None:
            caps = astuple(settings.caps)
            self._billing = Billing(account, *self.billed_as, self._price, caps, is_for_batch)
        if settings.batch is None or self._service is None or is_sampling():
            calls: ApiClient | BilledCalls | CountedCalls
            calls = client = ApiClient(endpoint, self.model_name, settings)
            if self._billing is not None:
                calls = (BilledCalls if self._billing.is_exact else CountedCalls)(client, self._billing)
            client.check.probe = partial(calls.ask_once, probe, read)
            return calls
        from penstock.ai.client.batch.batch_calls import BatchCalls
        from penstock.ai.client.batch.batch_service import BatchClient

        batches = BatchCalls(
            self._service, BatchClient(endpoint, self.model_name, settings), settings.batch, read, memo
        )
        return batches if self._billing is None else BilledBatchCalls(batches, self._billing)

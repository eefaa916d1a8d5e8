"""Remote models: price, batch API, and the layers of their calls."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from penstock.ai.client.api_call import ApiCall, Calls, Endpoint
from penstock.ai.client.billed_calls import BilledCalls, CountedCalls
from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.retried_calls import RetriedCalls, Retries
from penstock.ai.client.sent_calls import SentCalls
from penstock.ai.provider import CallSettings, Model
from penstock.cache.memo import Memo
from penstock.cost.accounts import current_account, is_sampling
from penstock.cost.budget import Billing
from penstock.cost.prices import BATCH_SHARE, Price, price_of, unknown_price

if TYPE_CHECKING:
    from penstock.ai.client.batch.batch_service import BatchService


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

    @property
    def is_batched(self) -> bool:
        """True if calls go through the provider's batch API. A sample cannot wait for a batch."""
        return self._settings.batch is not None and self._service is not None and not is_sampling()

    def _open_calls(self, probe: ApiCall, memo: Memo | None) -> Calls:
        """Open billing and return the layers of calls, without the cache.

        ``probe`` is a small call that the server must answer if it works. Its ``read`` also reads the answers to
        batches of earlier runs, which ``memo`` stores.
        """
        endpoint, settings = self._endpoint, self._settings
        if (account := current_account()) is not None:
            caps, is_for_batch = astuple(settings.caps), settings.batch is not None and is_sampling()
            self._billing = Billing(account, *self.billed_as, self._price, caps, is_for_batch)
        if self.is_batched:
            return self._open_batches(probe, memo)
        billing = self._billing
        client = ApiClient(endpoint, self.model_name, settings)
        calls: Calls = SentCalls(client)
        if billing is not None and billing.is_exact:
            calls = BilledCalls(calls, billing, lambda: client.max_at_once)
        elif billing is not None:
            calls = CountedCalls(calls, billing)
        return RetriedCalls(calls, Retries(client), probe)

    def _open_batches(self, probe: ApiCall, memo: Memo | None) -> Calls:
        from penstock.ai.client.batch.batch_calls import BatchCalls
        from penstock.ai.client.batch.batch_service import BatchClient

        assert self._service is not None
        assert self._settings.batch is not None
        client = BatchClient(self._endpoint, self.model_name, self._settings)
        batches = BatchCalls(self._service, client, self._settings.batch, probe.read, memo)
        if self._billing is None:
            return batches
        return BilledCalls(batches, self._billing, on_wait=batches.submit_soon)

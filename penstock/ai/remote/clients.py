"""How the calls of a model are made, as its settings have it: one by one, or by the provider's batch API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.ai.provider import CallSettings
from penstock.ai.remembering import configured_ledger
from penstock.ai.remote.http import ApiClient
from penstock.ai.remote.wires.wire import Endpoint
from penstock.cost.accounts import is_sampling

if TYPE_CHECKING:
    from penstock.ai.remote.batch.asker import Answers, BatchAsker
    from penstock.ai.remote.batch.service import BatchService


def made_client(endpoint: Endpoint, model: str, settings: CallSettings) -> ApiClient:
    """Return the client that calls need as the settings have them made."""
    if settings.batch is None:
        return ApiClient(endpoint, model, settings)
    from penstock.ai.remote.batch.client import BatchClient

    return BatchClient(endpoint, model, settings)


def opened_asker(
    service: BatchService | None, client: ApiClient, settings: CallSettings, answers: Answers[Any]
) -> BatchAsker[Any] | None:
    """Return what asks by batches, None where calls are made one by one, as those of a sample are."""
    if settings.batch is None or service is None or is_sampling():
        return None
    from penstock.ai.remote.batch.asker import BatchAsker
    from penstock.ai.remote.batch.client import BatchClient
    from penstock.ai.remote.batch.records import Records

    assert isinstance(client, BatchClient)
    ledger = configured_ledger(settings.cache)
    return BatchAsker(service, client, settings.batch, answers, None if ledger is None else Records(ledger))

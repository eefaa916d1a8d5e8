"""Anthropic's Message Batches API: requests in the body, results at a URL of the batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import orjson

from penstock.ai.client.batch.batch_service import (
    BatchCapacity,
    BatchClient,
    BatchRequest,
    BatchResult,
    BatchState,
    Intent,
    Take,
)
from penstock.ai.client.server_errors import status_meant
from penstock.ai.lenient_json import count_of, field_of, field_or_none
from penstock.errors import ProviderUnavailableError

CAPACITY = BatchCapacity(max_requests=100_000, max_nbytes=250_000_000)
"""The API accepts 100,000 requests and 256 MB, including ids and brackets around each body."""

SKEW_S, LATE_S = 600.0, 3600.0
"""The most by which the time of a batch may differ from the time when it was about to be submitted: clocks differ, and
submitting takes time."""


class AnthropicBatchService:
    """The Message Batches API."""

    capacity = CAPACITY
    path = "/v1/messages/batches"

    async def create(
        self, client: BatchClient, token: str, requests: Sequence[BatchRequest], uploaded: list[str]
    ) -> str:
        items = (b'{"custom_id":%s,"params":%s}' % (orjson.dumps(each.custom_id), each.body) for each in requests)
        data = b'{"requests":[%s]}' % b",".join(items)
        created = await client.json("POST", self.path, data, is_safe=False)
        return str(field_of(created, "id", str, "the batch"))

    async def find(self, client: BatchClient, token: str, intent: Intent, known: Collection[str]) -> list[str]:
        """Return the batches of that time with the same number of requests. Only their results contain the token."""
        found: list[str] = []
        async for batch in client.listed(self.path, "after_id"):
            created = _created(batch)
            if created is not None and created < intent.time - SKEW_S:
                break
            batch_id = field_of(batch, "id", str, "a batch")
            counts = field_or_none(batch, "request_counts")
            num_requests = sum(count_of(counts, name) or 0 for name in counts or ())
            is_of_that_time = created is not None and created <= intent.time + LATE_S
            if is_of_that_time and num_requests == intent.num_requests and batch_id not in known:
                found.append(batch_id)
        return found

    async def state(self, client: BatchClient, batch_id: str) -> BatchState:
        batch = await client.json("GET", f"{self.path}/{batch_id}")
        return BatchState(batch_id, field_of(batch, "processing_status", str, "the batch") == "ended")

    async def results(self, client: BatchClient, state: BatchState, take: Take) -> None:
        def take_line(line: Any) -> None:
            take(result_of(client, field_of(line, "custom_id", str, "a line"), line.get("result")))

        # Not from results_url: the key must go only to the server that the user named.
        await client.read_results(f"{self.path}/{state.id}/results", take_line)


def result_of(client: BatchClient, custom_id: str, result: Any) -> BatchResult:
    """Return the result of one request, which is ``succeeded``, ``errored``, ``canceled`` or ``expired``."""
    kind = field_or_none(result, "type")
    message = field_or_none(result, "message")
    if kind == "succeeded" and isinstance(message, dict):
        return BatchResult(custom_id, message)
    if kind == "errored":
        body = field_or_none(result, "error")
        return BatchResult(custom_id, error=client.error_of(status_meant(field_or_none(body, "error") or body), body))
    return BatchResult(
        custom_id, error=ProviderUnavailableError(f"{client.name}: the request has no answer ({kind or 'no result'})")
    )


def _created(batch: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(field_or_none(batch, "created_at"))).timestamp()
    except ValueError:
        return None

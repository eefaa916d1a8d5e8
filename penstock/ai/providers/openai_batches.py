"""OpenAI's Batch API: an uploaded file of requests becomes a file of answers and a file of errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from penstock.errors import ProviderError, ProviderUnavailableError

CAPACITY = BatchCapacity(max_requests=50_000, max_nbytes=195_000_000)
"""The API accepts 50,000 requests and 200 MB, including ids around each body. A request for embeddings holds one text,
since a batch may also hold 50,000 texts at most."""

ENDS = ("completed", "failed", "expired", "cancelled")
TOO_MUCH = ("token_limit_exceeded", "rate_limit_exceeded", "too_many_batches")
TOKEN = "penstock"  # name of the token in the metadata of a batch
HOUR_S = 3600.0


class OpenAIBatchService:
    """Files and Batches of OpenAI's API."""

    capacity = CAPACITY
    path = "/batches"

    async def create(
        self, client: BatchClient, token: str, requests: Sequence[BatchRequest], uploaded: list[str]
    ) -> str:
        endpoint = f"/v1{requests[0].path}"
        content = b"".join(_line(request, endpoint) for request in requests)
        file = await client.upload("/files", {"purpose": "batch"}, f"penstock-{token}.jsonl", content)
        del content
        file_id = field_of(file, "id", str, "the answer to an upload")
        uploaded.append(f"/files/{file_id}")
        body = {
            "input_file_id": file_id,
            "endpoint": endpoint,
            "completion_window": "24h",
            "metadata": {TOKEN: token},
        }
        created = await client.json("POST", self.path, body, is_safe=False)
        return str(field_of(created, "id", str, "the batch"))

    async def find(self, client: BatchClient, token: str, intent: Intent, known: Collection[str]) -> list[str]:
        """Look for the token in the list of batches, newest first."""
        async for batch in client.listed(self.path, "after"):
            if field_or_none(field_or_none(batch, "metadata"), TOKEN) == token:
                return [field_of(batch, "id", str, "a batch")]
            if (count_of(batch, "created_at") or intent.time) < intent.time - HOUR_S:
                break
        return []

    async def state(self, client: BatchClient, batch_id: str) -> BatchState:
        batch = await client.json("GET", f"{self.path}/{batch_id}")
        status = field_of(batch, "status", str, "the batch")
        errors = field_or_none(batch.get("errors"), "data") or []
        return BatchState(
            batch_id,
            is_ended=status in ENDS,
            result_files=_files(batch, "output_file_id", "error_file_id"),
            input_files=_files(batch, "input_file_id"),
            problem=_problem(client, batch_id, errors) if status == "failed" else None,
            is_too_much=any(field_or_none(error, "code") in TOO_MUCH for error in errors),
        )

    async def results(self, client: BatchClient, state: BatchState, take: Take) -> None:
        def take_line(line: Any) -> None:
            take(result_of(client, field_of(line, "custom_id", str, "a line"), line))

        for path in state.result_files:
            await client.read_results(f"{path}/content", take_line)


def _files(batch: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    return tuple(f"/files/{file_id}" for name in names if isinstance(file_id := batch.get(name), str))


def _line(request: BatchRequest, endpoint: str) -> bytes:
    """Return the line of a request; its body is JSON already."""
    return b'{"custom_id":%s,"method":"POST","url":%s,"body":%s}\n' % (
        orjson.dumps(request.custom_id),
        orjson.dumps(endpoint),
        request.body,
    )


def result_of(client: BatchClient, custom_id: str, line: Mapping[str, Any]) -> BatchResult:
    """Return the result in a line of a file of results."""
    response, error = line.get("response"), line.get("error")
    if response is None:  # expired and cancelled requests have an error instead
        code, message = field_or_none(error, "code"), field_or_none(error, "message")
        return BatchResult(
            custom_id, error=ProviderUnavailableError(f"{client.name}: {message or code or 'no answer'}")
        )
    status, body = count_of(response, "status_code"), field_or_none(response, "body")
    if status is not None and 200 <= status < 300 and isinstance(body, dict) and not body.get("error"):
        return BatchResult(custom_id, body)
    if not status or status < 400:
        status = status_meant(field_or_none(body, "error"))
    return BatchResult(custom_id, error=client.error_of(status, body))


def _problem(client: BatchClient, batch_id: str, errors: Sequence[Any]) -> ProviderError:
    first = errors[0] if errors else {"message": "no reason given"}
    code = field_or_none(first, "code")
    error = client.error_of(429 if code in ("insufficient_quota", "billing_hard_limit_reached") else 400, first)
    return type(error)(f"{error}\n(batch {batch_id}, {code or 'failed'})")

"""Anthropic's message batches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from penstock.testing.apis.batch_progress import BatchHost, BatchLine, BatchProgress
from penstock.testing.apis.model_api import BadRequestError, field, new_id
from penstock.testing.apis.openai_files import page
from penstock.testing.faults import BatchFails, BatchLoses, Fault


class AnthropicBatchStore:
    """The batches by their ids. ``url`` completes a path."""

    def __init__(self, host: BatchHost, url: Callable[[str], str]) -> None:
        self._host, self._url = host, url
        self._batches: dict[str, AnthropicBatch] = {}

    def action(
        self, method: str, path: str, body: Callable[[], dict[str, Any]]
    ) -> Callable[[], dict[str, Any] | bytes] | None:
        """Return the function that answers a request for batches, None for other requests."""
        match method, path.strip("/").split("/"):
            case "POST", ["messages", "batches"]:
                return lambda: self._create(body())
            case "GET", ["messages", "batches"]:
                return lambda: page([batch.as_json() for batch in reversed(self._batches.values())])
            case "GET", ["messages", "batches", batch_id]:
                return lambda: self._get(batch_id).as_json()
            case "GET", ["messages", "batches", batch_id, "results"]:
                return lambda: self._get(batch_id).results()
            case "POST", ["messages", "batches", batch_id, "cancel"]:
                return lambda: self._get(batch_id).cancel()
        return None

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        requests = field(body, "requests", list)
        ids = [request.get("custom_id") for request in requests]
        if not ids or None in ids or len(set(ids)) < len(ids):
            raise BadRequestError("requests: at least one is required, each with a custom_id of its own.")
        fault = self._host.batch_fault("/messages/batches")
        if isinstance(fault, BatchFails):
            raise BadRequestError(fault.message)
        lines = [BatchLine(request["custom_id"], "/messages", field(request, "params", dict)) for request in requests]
        batch = AnthropicBatch(lines, self._host, fault, self._url)
        self._batches[batch.id] = batch
        return batch.as_json()

    def _get(self, batch_id: str) -> AnthropicBatch:
        if batch_id not in self._batches:
            raise BadRequestError(f"No message batch with id {batch_id}.", 404)
        return self._batches[batch_id]


class AnthropicBatch:
    """One batch: ``in_progress``, after a cancellation ``canceling``, and then ``ended``."""

    def __init__(self, lines: list[BatchLine], host: BatchHost, fault: Fault | None, url: Callable[[str], str]) -> None:
        self.id = new_id("msgbatch_")
        self._url = url(f"/v1/messages/batches/{self.id}/results")
        self._host, self._fault = host, fault
        self._status = "in_progress"
        self._created = datetime.now(UTC)
        self._cancelled: datetime | None = None
        self._ended: datetime | None = None
        self._progress = BatchProgress(lines, host, fault)
        self._progress.start(self._end)

    def as_json(self) -> dict[str, Any]:
        progress = self._progress
        counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        if self._ended is None:
            counts["processing"] = len(progress.lines)  # the other counts stay zero until the end
        else:
            counts["succeeded"] = len(progress.results) - progress.num_failed
            counts["errored"] = progress.num_failed
            counts["canceled" if self._cancelled else "expired"] = len(progress.lines) - len(progress.results)
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": self._status,
            "request_counts": counts,
            "created_at": _iso(self._created),
            "expires_at": _iso(self._created + timedelta(hours=24)),
            "ended_at": _iso(self._ended),
            "cancel_initiated_at": _iso(self._cancelled),
            "archived_at": None,
            "results_url": self._url if self._ended else None,
        }

    def results(self) -> bytes:
        if self._ended is None:
            raise BadRequestError(f"Batch {self.id} has not ended, and has no results yet.", 404)
        unanswered = {"type": "canceled" if self._cancelled else "expired"}
        results = [{"custom_id": key, "result": _result(*value)} for key, value in self._progress.results.items()]
        if not isinstance(self._fault, BatchLoses):
            results += [{"custom_id": line.custom_id, "result": unanswered} for line in self._progress.unanswered]
        return b"".join(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in results)

    def cancel(self) -> dict[str, Any]:
        if self._ended is None and self._cancelled is None:
            self._progress.stop()
            self._status, self._cancelled = "canceling", datetime.now(UTC)
            self._host.later(self._host.timing.finalizing_s, self._end)
        return self.as_json()

    def _end(self) -> None:
        self._status, self._ended = "ended", datetime.now(UTC)


def _result(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": "succeeded", "message": body} if status == 200 else {"type": "errored", "error": body}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")

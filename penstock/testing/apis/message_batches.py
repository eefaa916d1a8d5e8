"""Anthropic's message batches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from penstock.testing.apis.batch_work import BatchHost, BatchWork, Line
from penstock.testing.apis.exchange import BadRequestError, field, new_id
from penstock.testing.faults import BatchExpires, BatchFails, BatchLoses


class MessageBatches:
    """Every batch by its id. ``url`` gives the address of a path on this server."""

    def __init__(self, host: BatchHost, url: Callable[[str], str]) -> None:
        self._host, self._url = host, url
        self._batches: dict[str, MessageBatch] = {}

    def action(
        self, method: str, path: str, body: Callable[[], dict[str, Any]]
    ) -> Callable[[], dict[str, Any] | bytes] | None:
        """Return what a request for message batches does, None if there is no such thing."""
        match method, path.strip("/").split("/"):
            case "POST", ["messages", "batches"]:
                return lambda: self._created(body())
            case "GET", ["messages", "batches"]:
                return self._listed
            case "GET", ["messages", "batches", batch_id]:
                return lambda: self._get(batch_id).shown()
            case "GET", ["messages", "batches", batch_id, "results"]:
                return lambda: self._get(batch_id).results()
            case "POST", ["messages", "batches", batch_id, "cancel"]:
                return lambda: self._get(batch_id).cancelled()
        return None

    def _created(self, body: dict[str, Any]) -> dict[str, Any]:
        requests = field(body, "requests", list)
        ids = [request.get("custom_id") for request in requests]
        if not ids or None in ids or len(set(ids)) < len(ids):
            raise BadRequestError("requests: at least one is required, each with a custom_id of its own.")
        fault = self._host.batch_fault("/messages/batches")
        if isinstance(fault, BatchFails):
            raise BadRequestError(fault.message)
        lines = [Line(request["custom_id"], "/messages", field(request, "params", dict)) for request in requests]
        done = fault.done if isinstance(fault, BatchExpires | BatchLoses) else None
        batch = MessageBatch(lines, self._host, done, isinstance(fault, BatchLoses), self._url)
        self._batches[batch.id] = batch
        return batch.shown()

    def _get(self, batch_id: str) -> MessageBatch:
        if batch_id not in self._batches:
            raise BadRequestError(f"No message batch with id {batch_id}.", 404)
        return self._batches[batch_id]

    def _listed(self) -> dict[str, Any]:
        shown = [batch.shown() for batch in reversed(self._batches.values())]
        ids = [item["id"] for item in shown] or [None]
        return {"data": shown, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


class MessageBatch:
    """One batch: ``in_progress``, perhaps ``canceling``, at last ``ended``."""

    def __init__(
        self, lines: list[Line], host: BatchHost, done: float | None, is_lossy: bool, url: Callable[[str], str]
    ) -> None:
        self._is_lossy = is_lossy
        self.id = new_id("msgbatch_")
        self._url = url(f"/v1/messages/batches/{self.id}/results")
        self._host = host
        self._status = "in_progress"
        self._created = datetime.now(UTC)
        self._cancelled: datetime | None = None
        self._ended: datetime | None = None
        self._work = BatchWork(lines, host, None if done is None else int(len(lines) * done))
        self._work.start(self._end)

    def shown(self) -> dict[str, Any]:
        work = self._work
        num_undone = len(work.lines) - len(work.results)
        counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        if self._ended is not None:  # counts stay zero until the end
            counts["succeeded"] = len(work.results) - work.num_failed
            counts["errored"] = work.num_failed
            counts["canceled" if self._cancelled else "expired"] = num_undone
        else:
            counts["processing"] = len(work.lines)
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": self._status,
            "request_counts": counts,
            "created_at": _written(self._created),
            "expires_at": _written(self._created + timedelta(hours=24)),
            "ended_at": _written(self._ended),
            "cancel_initiated_at": _written(self._cancelled),
            "archived_at": None,
            "results_url": self._url if self._ended else None,
        }

    def results(self) -> bytes:
        if self._ended is None:
            raise BadRequestError(f"Batch {self.id} has not ended, and has no results yet.", 404)
        undone = "canceled" if self._cancelled else "expired"
        results = [{"custom_id": key, "result": _result(*value)} for key, value in self._work.results.items()]
        if not self._is_lossy:
            results += [{"custom_id": line.custom_id, "result": {"type": undone}} for line in self._work.undone]
        return b"".join(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in results)

    def cancelled(self) -> dict[str, Any]:
        if self._ended is None and self._cancelled is None:
            self._work.stop()
            self._status, self._cancelled = "canceling", datetime.now(UTC)
            self._host.later(self._host.timing.finalizing_s, self._end)
        return self.shown()

    def _end(self) -> None:
        self._status, self._ended = "ended", datetime.now(UTC)


def _result(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": "succeeded", "message": body} if status == 200 else {"type": "errored", "error": body}


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")

"""OpenAI's batches: an uploaded file of requests becomes a file of answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import orjson

from penstock.testing.apis.batch_work import BatchHost, BatchWork, Line
from penstock.testing.apis.exchange import BadRequestError, field, new_id
from penstock.testing.apis.files import Files, listing
from penstock.testing.faults import BatchExpires, BatchFails, BatchLoses

ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings")
MOST_REQUESTS = 50_000
DAY_S = 24 * 60 * 60
UNDONE = {
    "expired": "This request could not be executed before the completion window expired.",
    "cancelled": "This request could not be executed because the batch was cancelled.",
}


class Batches:
    """Every batch by its id."""

    def __init__(self, files: Files, host: BatchHost) -> None:
        self._files, self._host = files, host
        self._batches: dict[str, Batch] = {}

    def action(self, method: str, path: str, body: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]] | None:
        """Return what a request for batches does, None if there is no such thing."""
        match method, path.strip("/").split("/"):
            case "POST", ["batches"]:
                return lambda: self._created(body())
            case "GET", ["batches"]:
                return lambda: listing([batch.shown() for batch in reversed(self._batches.values())])
            case "GET", ["batches", batch_id]:
                return lambda: self._get(batch_id).shown()
            case "POST", ["batches", batch_id, "cancel"]:
                return lambda: self._get(batch_id).cancelled()
        return None

    def _created(self, body: dict[str, Any]) -> dict[str, Any]:
        if field(body, "endpoint", str) not in ENDPOINTS:
            raise BadRequestError(f"Invalid value: '{body['endpoint']}'. Supported values are: {', '.join(ENDPOINTS)}.")
        if field(body, "completion_window", str) != "24h":
            raise BadRequestError(f"Invalid value: '{body['completion_window']}'. Supported values are: '24h'.")
        content = self._files.get(field(body, "input_file_id", str)).content
        batch = Batch(body, content, self._files, self._host)
        self._batches[batch.id] = batch
        return batch.shown()

    def _get(self, batch_id: str) -> Batch:
        if batch_id not in self._batches:
            raise BadRequestError(f"No batch found with id '{batch_id}'.", 404)
        return self._batches[batch_id]


class Batch:
    """One batch, on its way from ``validating`` to an end."""

    def __init__(self, body: dict[str, Any], content: bytes, files: Files, host: BatchHost) -> None:
        self.id = new_id("batch_")
        self._body, self._content, self._files, self._host = body, content, files, host
        self._fault = host.batch_fault("/batches")
        self._status = "validating"
        self._times: dict[str, int] = {"created_at": int(time.time())}
        self._errors: list[dict[str, Any]] = []
        self._output_ids: dict[str, str] = {}
        self._work = BatchWork([], host)
        host.later(host.timing.validating_s, self._validated)

    def shown(self) -> dict[str, Any]:
        work = self._work
        states = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self._body["endpoint"],
            "errors": {"object": "list", "data": self._errors} if self._errors else None,
            "input_file_id": self._body["input_file_id"],
            "completion_window": "24h",
            "status": self._status,
            "output_file_id": self._output_ids.get("output"),
            "error_file_id": self._output_ids.get("error"),
            "created_at": self._times["created_at"],
            "expires_at": self._times["created_at"] + DAY_S,
            **{f"{state}_at": self._times.get(f"{state}_at") for state in states},
            "request_counts": {
                "total": len(work.lines),
                "completed": len(work.results) - work.num_failed,
                "failed": work.num_failed,
            },
            "metadata": self._body.get("metadata"),
        }

    def cancelled(self) -> dict[str, Any]:
        if self._status not in ("validating", "in_progress", "finalizing", "cancelling"):
            raise BadRequestError(f"Cannot cancel a batch with status '{self._status}'.", 409)
        self._work.stop()
        self._enter("cancelling")
        self._host.later(self._host.timing.finalizing_s, lambda: self._finished("cancelled"))
        return self.shown()

    def _enter(self, status: str) -> None:
        self._status = status
        self._times.setdefault(f"{status}_at", int(time.time()))

    def _validated(self) -> None:
        if self._status != "validating":
            return
        lines: list[Line] = []
        if isinstance(self._fault, BatchFails):
            self._errors = [{"code": self._fault.code, "message": self._fault.message, "line": 1, "param": None}]
        else:
            lines, self._errors = checked_lines(self._content, self._body["endpoint"])
        if self._errors:
            self._enter("failed")
            return
        expires = isinstance(self._fault, BatchExpires)
        num_most = int(len(lines) * self._fault.done) if isinstance(self._fault, BatchExpires | BatchLoses) else None
        self._work = BatchWork(lines, self._host, num_most)
        self._enter("in_progress")
        self._work.start(lambda: self._worked("expired" if expires else "completed"))

    def _worked(self, end: str) -> None:
        self._enter("finalizing")
        self._host.later(self._host.timing.finalizing_s, lambda: self._finished(end))

    def _finished(self, end: str) -> None:
        """Write the files. A batch that was cancelled on the way is finished by its cancellation."""
        if self._status not in ("finalizing", "cancelling") or (self._status == "cancelling" and end != "cancelled"):
            return
        done, failed = self._written()
        failed += [
            _line(line.custom_id, error={"code": f"batch_{end}", "message": UNDONE[end]})
            for line in (self._work.undone if end in UNDONE else ())
        ]
        for kind, lines in (("output", done), ("error", failed)):
            if lines:
                name = f"{self.id}_{kind}.jsonl"
                self._output_ids[kind] = self._files.add(name, "batch_output", b"".join(lines)).id
        self._enter(end)

    def _written(self) -> tuple[list[bytes], list[bytes]]:
        """Return the lines of answers and those of errors; answers are in no order, as OpenAI has it."""
        done: list[bytes] = []
        failed: list[bytes] = []
        for custom_id, (status, body) in self._work.results.items():
            response = {"status_code": status, "request_id": new_id("req_"), "body": body}
            (failed if status >= 400 else done).append(_line(custom_id, response))
        Random(len(done)).shuffle(done)
        return done, failed


def _line(custom_id: str, response: dict[str, Any] | None = None, error: dict[str, Any] | None = None) -> bytes:
    line = {"id": new_id("batch_req_"), "custom_id": custom_id, "response": response, "error": error}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def checked_lines(content: bytes, endpoint: str) -> tuple[list[Line], list[dict[str, Any]]]:
    """Return the requests of an input file, and what is wrong with it."""
    errors = [
        {"code": code, "message": message, "line": number, "param": None}
        for code, message, number in _complaints(content, endpoint)
    ]
    if errors:
        return [], errors
    parsed = [orjson.loads(line) for line in content.splitlines() if line.strip()]
    return [Line(item["custom_id"], item["url"], item["body"]) for item in parsed], []


def _complaints(content: bytes, endpoint: str) -> Iterator[tuple[str, str, int | None]]:
    lines = [line for line in content.splitlines() if line.strip()]
    if not lines:
        yield "empty_file", "The input file is empty.", None
    if len(lines) > MOST_REQUESTS:
        yield "too_many_tasks", f"The batch has {len(lines)} requests; at most {MOST_REQUESTS} are allowed.", None
    seen: set[str] = set()
    models: set[Any] = set()
    for number, text in enumerate(lines, start=1):
        try:
            line = orjson.loads(text)
            custom_id, method, url, body = line["custom_id"], line["method"], line["url"], line["body"]
            models.add(body.get("model"))
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            yield "invalid_json_line", "This line is not parseable as valid JSON, or lacks a required field.", number
            continue
        if custom_id in seen:
            yield "duplicate_custom_id", f"The custom_id '{custom_id}' was used before.", number
        if url != endpoint or method != "POST":
            yield "mismatched_endpoint", f"The URL '{url}' is not the batch's endpoint '{endpoint}'.", number
        seen.add(custom_id)
    if len(models) > 1:
        yield "mismatched_model", "All requests of a batch must be for one model.", None

"""OpenAI's batches: a file of requests becomes a file of answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import orjson

from penstock.testing.apis.batch_progress import BatchHost, BatchLine, BatchProgress
from penstock.testing.apis.model_api import BadRequestError, field, new_id
from penstock.testing.apis.openai_files import OpenAIFiles, page
from penstock.testing.faults import BatchExpires, BatchFails

ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings")
STATES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
MAX_REQUESTS = 50_000
DAY_S = 24 * 60 * 60
UNANSWERED = {
    "expired": "This request could not be executed before the completion window expired.",
    "cancelled": "This request could not be executed because the batch was cancelled.",
}


class OpenAIBatchStore:
    def __init__(self, files: OpenAIFiles, host: BatchHost) -> None:
        self._files, self._host = files, host
        self._batches: dict[str, OpenAIBatch] = {}

    def action(self, method: str, path: str, body: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]] | None:
        """Return the function that answers a request for batches, None for other requests."""
        match method, path.strip("/").split("/"):
            case "POST", ["batches"]:
                return lambda: self._create(body())
            case "GET", ["batches"]:
                return lambda: page([batch.as_json() for batch in reversed(self._batches.values())])
            case "GET", ["batches", batch_id]:
                return lambda: self._get(batch_id).as_json()
            case "POST", ["batches", batch_id, "cancel"]:
                return lambda: self._get(batch_id).cancel()
        return None

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        if field(body, "endpoint", str) not in ENDPOINTS:
            raise BadRequestError(f"Invalid value: '{body['endpoint']}'. Supported values are: {', '.join(ENDPOINTS)}.")
        if field(body, "completion_window", str) != "24h":
            raise BadRequestError(f"Invalid value: '{body['completion_window']}'. Supported values are: '24h'.")
        content = self._files.get(field(body, "input_file_id", str)).content
        batch = OpenAIBatch(body, content, self._files, self._host)
        self._batches[batch.id] = batch
        return batch.as_json()

    def _get(self, batch_id: str) -> OpenAIBatch:
        if batch_id not in self._batches:
            raise BadRequestError(f"No batch found with id '{batch_id}'.", 404)
        return self._batches[batch_id]


class OpenAIBatch:
    """One batch on its way from ``validating`` to an end state."""

    def __init__(self, body: dict[str, Any], content: bytes, files: OpenAIFiles, host: BatchHost) -> None:
        self.id = new_id("batch_")
        self._body, self._content, self._files, self._host = body, content, files, host
        self._fault = host.batch_fault("/batches")
        self._status = "validating"
        self._times: dict[str, int] = {"created_at": int(time.time())}
        self._errors: list[dict[str, Any]] = []
        self._output_ids: dict[str, str] = {}
        self._progress = BatchProgress([], host)
        host.later(host.timing.validating_s, self._validate)

    def as_json(self) -> dict[str, Any]:
        progress = self._progress
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
            **{f"{state}_at": self._times.get(f"{state}_at") for state in STATES},
            "request_counts": {
                "total": len(progress.lines),
                "completed": len(progress.results) - progress.num_failed,
                "failed": progress.num_failed,
            },
            "metadata": self._body.get("metadata"),
        }

    def cancel(self) -> dict[str, Any]:
        if self._status not in ("validating", "in_progress", "finalizing", "cancelling"):
            raise BadRequestError(f"Cannot cancel a batch with status '{self._status}'.", 409)
        self._progress.stop()
        self._enter("cancelling")
        self._host.later(self._host.timing.finalizing_s, lambda: self._finish("cancelled"))
        return self.as_json()

    def _enter(self, status: str) -> None:
        self._status = status
        self._times.setdefault(f"{status}_at", int(time.time()))

    def _validate(self) -> None:
        if self._status != "validating":
            return
        if isinstance(self._fault, BatchFails):
            found: list[tuple[str, str, int | None]] = [(self._fault.code, self._fault.message, 1)]
        else:
            found = list(input_errors(self._content, self._body["endpoint"]))
        if found:
            self._errors = [
                {"code": code, "message": message, "line": line, "param": None} for code, message, line in found
            ]
            self._enter("failed")
            return
        requests = [orjson.loads(line) for line in self._content.splitlines() if line.strip()]
        lines = [BatchLine(request["custom_id"], request["url"], request["body"]) for request in requests]
        self._progress = BatchProgress(lines, self._host, self._fault)
        self._enter("in_progress")
        end = "expired" if isinstance(self._fault, BatchExpires) else "completed"
        self._progress.start(lambda: self._finalize(end))

    def _finalize(self, end: str) -> None:
        self._enter("finalizing")
        self._host.later(self._host.timing.finalizing_s, lambda: self._finish(end))

    def _finish(self, end: str) -> None:
        """Write the output files. After a cancellation only ``cancelled`` ends the batch."""
        if self._status not in ("finalizing", "cancelling") or (self._status == "cancelling" and end != "cancelled"):
            return
        done, failed = self._output_lines()
        failed += [
            _output_line(line.custom_id, error={"code": f"batch_{end}", "message": UNANSWERED[end]})
            for line in (self._progress.unanswered if end in UNANSWERED else ())
        ]
        for kind, lines in (("output", done), ("error", failed)):
            if lines:
                name = f"{self.id}_{kind}.jsonl"
                self._output_ids[kind] = self._files.add(name, "batch_output", b"".join(lines)).id
        self._enter(end)

    def _output_lines(self) -> tuple[list[bytes], list[bytes]]:
        """Return the lines of answers, in random order as with OpenAI, and the lines of errors."""
        done: list[bytes] = []
        failed: list[bytes] = []
        for custom_id, (status, body) in self._progress.results.items():
            response = {"status_code": status, "request_id": new_id("req_"), "body": body}
            (failed if status >= 400 else done).append(_output_line(custom_id, response))
        Random(len(done)).shuffle(done)
        return done, failed


def _output_line(custom_id: str, response: dict[str, Any] | None = None, error: dict[str, Any] | None = None) -> bytes:
    line = {"id": new_id("batch_req_"), "custom_id": custom_id, "response": response, "error": error}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def input_errors(content: bytes, endpoint: str) -> Iterator[tuple[str, str, int | None]]:
    """Yield the code, the message and the line of each error in an input file."""
    lines = [line for line in content.splitlines() if line.strip()]
    if not lines:
        yield "empty_file", "The input file is empty.", None
    if len(lines) > MAX_REQUESTS:
        yield "too_many_tasks", f"The batch has {len(lines)} requests; at most {MAX_REQUESTS} are allowed.", None
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

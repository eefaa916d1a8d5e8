"""The batch APIs of OpenAI and Anthropic, and OpenAI's files, which hold the requests and answers of its batches."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple, Protocol

import orjson

from penstock.testing.apis.model_api import BadRequestError, UnknownUrlError, field, new_id, parse_json
from penstock.testing.faults import BatchDamages, BatchExpires, BatchFails, BatchLoses, Fault
from penstock.testing.http_server import HttpRequest
from penstock.testing.script import BatchTiming

ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings")
MAX_REQUESTS = 50_000


class BatchHost(Protocol):
    """The service that answers the requests of batches."""

    def answer_line(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to one request."""

    def batch_fault(self, path: str) -> Fault | None: ...

    @property
    def timing(self) -> BatchTiming: ...


class BatchLine(NamedTuple):
    custom_id: str
    path: str
    body: dict[str, Any]


class Batch(ABC):
    """Requests that are answered over time. Each poll of the batch answers the requests that are due."""

    def __init__(self, id_prefix: str, lines: list[BatchLine], host: BatchHost, fault: Fault | None) -> None:
        self.id = new_id(id_prefix)
        self.created = time.time()
        self.cancelled: float | None = None
        self.lines, self.fault = lines, fault
        self.results: dict[str, tuple[int, dict[str, Any]]] = {}
        self._host, self._timing = host, host.timing

    @abstractmethod
    def as_json(self) -> dict[str, Any]: ...

    def cancel(self) -> None:
        if self.cancelled is None and self.advance() != "ended":
            self.cancelled = time.time()

    def advance(self) -> str:
        """Answer the requests that are due, and return the state."""
        timing, now = self._timing, time.time()
        if self.cancelled is not None:
            return "cancelling" if now < self.cancelled + timing.finalizing_s else "ended"
        elapsed_s = now - self.created - timing.validating_s
        if elapsed_s < 0:
            return "validating"
        share = min(elapsed_s / timing.processing_s, 1.0) if timing.processing_s else 1.0
        if isinstance(self.fault, BatchExpires | BatchLoses):
            share *= self.fault.done
        for line in self.lines[len(self.results) : int(len(self.lines) * share)]:
            self.results[line.custom_id] = self._host.answer_line(line.path, line.body)
        if elapsed_s < timing.processing_s:
            return "in_progress"
        return "finalizing" if elapsed_s < timing.processing_s + timing.finalizing_s else "ended"

    @property
    def unanswered(self) -> list[str]:
        """The ids of the unanswered requests that the ended batch reports."""
        if isinstance(self.fault, BatchLoses) and self.cancelled is None:
            return []
        return [line.custom_id for line in self.lines if line.custom_id not in self.results]

    def result_file(self, results: list[dict[str, Any]]) -> bytes:
        """Return results as the lines of a file, damaged by the fault of the batch."""
        content = b"".join(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in results)
        if isinstance(self.fault, BatchDamages):
            line, _, others = content.partition(b"\n")
            return self.fault.text.encode().replace(b"$LINE", line) + b"\n" + others
        return content

    @property
    def num_failed(self) -> int:
        return sum(status >= 400 for status, _ in self.results.values())


class BatchStore:
    """The batches of one API by their ids. ``create`` makes a batch from the body of a request."""

    def __init__(self, create: Callable[[dict[str, Any]], Batch]) -> None:
        self._create = create
        self._batches: dict[str, Batch] = {}

    def respond(self, request: HttpRequest, path: Sequence[str]) -> dict[str, Any] | bytes:
        """Answer a request for batches; ``path`` is the part of its path after ``/batches``."""
        match request.method, path:
            case "POST", []:
                batch = self._create(parse_json(request.body))
                self._batches[batch.id] = batch
                return batch.as_json()
            case "GET", []:
                return page([batch.as_json() for batch in reversed(self._batches.values())])
            case "GET", [batch_id]:
                return self._get(batch_id).as_json()
            case "POST", [batch_id, "cancel"]:
                self._get(batch_id).cancel()
                return self._get(batch_id).as_json()
            case "GET", [batch_id, "results"] if isinstance(batch := self._get(batch_id), AnthropicBatch):
                return batch.results_file()
        raise UnknownUrlError(request.path)

    def _get(self, batch_id: str) -> Batch:
        if batch_id not in self._batches:
            raise BadRequestError(f"No batch found with id '{batch_id}'.", 404)
        return self._batches[batch_id]


class OpenAIFiles:
    """The description and the content of each file, by its id."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[dict[str, Any], bytes]] = {}

    def add(self, filename: str, purpose: str, content: bytes) -> dict[str, Any]:
        """Store a file and return its description."""
        about: dict[str, Any] = {
            "id": new_id("file-"),
            "object": "file",
            "bytes": len(content),
            "created_at": int(time.time()),
            "filename": filename,
            "purpose": purpose,
        }
        self._files[about["id"]] = (about, content)
        return about

    def get(self, file_id: str) -> tuple[dict[str, Any], bytes]:
        if file_id not in self._files:
            raise BadRequestError(f"No such File object: {file_id}", 404)
        return self._files[file_id]

    def respond(self, request: HttpRequest, path: Sequence[str]) -> dict[str, Any] | bytes:
        """Answer a request for ``/files``; ``path`` is the rest of its path."""
        match request.method, path:
            case "POST", []:
                return self._upload(request)
            case "GET", []:
                return page([about for about, _ in reversed(self._files.values())])
            case "GET", [file_id]:
                return self.get(file_id)[0]
            case "GET", [file_id, "content"]:
                return self.get(file_id)[1]
            case "DELETE", [file_id]:
                self.get(file_id)
                del self._files[file_id]
                return {"id": file_id, "object": "file", "deleted": True}
        raise UnknownUrlError(request.path)

    def _upload(self, request: HttpRequest) -> dict[str, Any]:
        parts = parse_multipart(request.headers.get("content-type", ""), request.body)
        if "file" not in parts or "purpose" not in parts:
            raise BadRequestError("'file' and 'purpose' are required, as parts of a form.")
        filename, content = parts["file"]
        return self.add(filename or "upload", parts["purpose"][1].decode(), content)


class OpenAIBatch(Batch):
    """A file of requests that becomes a file of answers and a file of errors."""

    def __init__(self, body: dict[str, Any], files: OpenAIFiles, host: BatchHost) -> None:
        if field(body, "endpoint", str) not in ENDPOINTS:
            raise BadRequestError(f"Invalid value: '{body['endpoint']}'. Supported values are: {', '.join(ENDPOINTS)}.")
        if field(body, "completion_window", str) != "24h":
            raise BadRequestError(f"Invalid value: '{body['completion_window']}'. Supported values are: '24h'.")
        _, content = files.get(field(body, "input_file_id", str))
        self._body, self._files = body, files
        self._file_ids: dict[str, str] | None = None
        self._error: dict[str, Any] | None = None
        fault, lines = host.batch_fault("/batches"), []
        try:
            if isinstance(fault, BatchFails):
                raise BadRequestError(fault.message, code=fault.code)
            lines = read_lines(content, body["endpoint"])
        except BadRequestError as error:
            line = 1 if isinstance(fault, BatchFails) else None
            self._error = {"code": error.code, "message": error.message, "line": line, "param": None}
        super().__init__("batch_", lines, host, fault)

    def as_json(self) -> dict[str, Any]:
        status = self._status()
        if status in ("completed", "expired", "cancelled") and self._file_ids is None:
            self._file_ids = self._write_files(status)
        file_ids = self._file_ids or {}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self._body["endpoint"],
            "errors": {"object": "list", "data": [self._error]} if status == "failed" else None,
            "input_file_id": self._body["input_file_id"],
            "completion_window": "24h",
            "status": status,
            "output_file_id": file_ids.get("output"),
            "error_file_id": file_ids.get("error"),
            "created_at": int(self.created),
            "request_counts": {
                "total": len(self.lines),
                "completed": len(self.results) - self.num_failed,
                "failed": self.num_failed,
            },
            "metadata": self._body.get("metadata"),
        }

    def cancel(self) -> None:
        if (status := self._status()) in ("completed", "failed", "expired", "cancelled"):
            raise BadRequestError(f"Cannot cancel a batch with status '{status}'.", 409)
        super().cancel()

    def _status(self) -> str:
        state = self.advance()
        if self._error is not None and state != "validating":
            return "failed"
        if state != "ended":
            return state
        if self.cancelled is not None:
            return "cancelled"
        return "expired" if isinstance(self.fault, BatchExpires) else "completed"

    def _write_files(self, status: str) -> dict[str, str]:
        """Write the answers, in random order as with OpenAI, and the errors; return the ids of the files."""
        done: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for custom_id, (code, body) in self.results.items():
            response = {"status_code": code, "request_id": new_id("req_"), "body": body}
            (failed if code >= 400 else done).append({"custom_id": custom_id, "response": response, "error": None})
        Random(len(done)).shuffle(done)
        error = {"code": f"batch_{status}", "message": f"This request was not executed: the batch is {status}."}
        failed += [{"custom_id": custom_id, "response": None, "error": error} for custom_id in self.unanswered]
        return {
            kind: self._files.add(f"{self.id}_{kind}.jsonl", "batch_output", self.result_file(lines))["id"]
            for kind, lines in (("output", done), ("error", failed))
            if lines
        }


class AnthropicBatch(Batch):
    """A list of requests whose results are read from the batch itself."""

    def __init__(self, body: dict[str, Any], host: BatchHost, url: Callable[[str], str]) -> None:
        requests = field(body, "requests", list)
        ids = [request.get("custom_id") for request in requests]
        if not ids or None in ids or len(set(ids)) < len(ids):
            raise BadRequestError("requests: at least one is required, each with a custom_id of its own.")
        fault = host.batch_fault("/messages/batches")
        if isinstance(fault, BatchFails):
            raise BadRequestError(fault.message)
        lines = [BatchLine(request["custom_id"], "/messages", field(request, "params", dict)) for request in requests]
        super().__init__("msgbatch_", lines, host, fault)
        self._url = url(f"/v1/messages/batches/{self.id}/results")

    def as_json(self) -> dict[str, Any]:
        state = self.advance()
        counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        if state == "ended":
            counts["succeeded"] = len(self.results) - self.num_failed
            counts["errored"] = self.num_failed
            counts[self._unanswered_state] = len(self.lines) - len(self.results)
        else:
            counts["processing"] = len(self.lines)  # the other counts stay zero until the end
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": {"ended": "ended", "cancelling": "canceling"}.get(state, "in_progress"),
            "request_counts": counts,
            "created_at": datetime.fromtimestamp(self.created, UTC).isoformat().replace("+00:00", "Z"),
            "results_url": self._url if state == "ended" else None,
        }

    def results_file(self) -> bytes:
        if self.advance() != "ended":
            raise BadRequestError(f"Batch {self.id} has not ended, and has no results yet.", 404)
        results: list[dict[str, Any]] = []
        for custom_id, (code, body) in self.results.items():
            result = {"type": "succeeded", "message": body} if code == 200 else {"type": "errored", "error": body}
            results.append({"custom_id": custom_id, "result": result})
        unanswered = {"type": self._unanswered_state}
        return self.result_file(results + [{"custom_id": each, "result": unanswered} for each in self.unanswered])

    @property
    def _unanswered_state(self) -> str:
        return "expired" if self.cancelled is None else "canceled"


def read_lines(content: bytes, endpoint: str) -> list[BatchLine]:
    """Read the input file of a batch; raises BadRequestError for the first error in it."""
    texts = [text for text in content.splitlines() if text.strip()]
    if not texts:
        raise BadRequestError("The input file is empty.", code="empty_file")
    if len(texts) > MAX_REQUESTS:
        message = f"The batch has {len(texts)} requests; at most {MAX_REQUESTS} are allowed."
        raise BadRequestError(message, code="too_many_tasks")
    try:
        lines = [orjson.loads(text) for text in texts]
        methods = {line["method"] for line in lines}
        found = [BatchLine(line["custom_id"], line["url"], line["body"]) for line in lines]
        models = {line.body.get("model") for line in found}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as exc:
        message = "A line is not parseable as valid JSON, or lacks a required field."
        raise BadRequestError(message, code="invalid_json_line") from exc
    if len({line.custom_id for line in found}) < len(found):
        raise BadRequestError("Two requests have the same custom_id.", code="duplicate_custom_id")
    if methods != {"POST"} or {line.path for line in found} != {endpoint}:
        raise BadRequestError(f"All requests must be POST requests for {endpoint}.", code="mismatched_endpoint")
    if len(models) > 1:
        raise BadRequestError("All requests of a batch must be for one model.", code="mismatched_model")
    return found


def parse_multipart(content_type: str, body: bytes) -> dict[str, tuple[str | None, bytes]]:
    """Return the file name and the content of each part of a form, by its name.

    >>> body = b'--b\\r\\nContent-Disposition: form-data; name="purpose"\\r\\n\\r\\nbatch\\r\\n--b--\\r\\n'
    >>> parse_multipart("multipart/form-data; boundary=b", body)
    {'purpose': (None, b'batch')}
    """
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    if found is None:
        raise BadRequestError("The body must be multipart/form-data.")
    parts: dict[str, tuple[str | None, bytes]] = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + found[1].encode())[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(re.findall(r'\b(name|filename)="([^"]*)"', head.decode(errors="replace")))
        parts[names.get("name", "")] = (names.get("filename"), content)
    return parts


def page(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return items as a list of the API with one page."""
    return {"object": "list", "data": items, "has_more": False}

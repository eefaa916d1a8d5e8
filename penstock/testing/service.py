"""What a server answers to each request. It knows the APIs and the script, and nothing of connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any, Literal

import orjson

from penstock.testing.admission import Admission
from penstock.testing.answering import answer
from penstock.testing.apis import embeddings, google as google_api
from penstock.testing.apis.anthropic import Anthropic, Messages
from penstock.testing.apis.batches import Batches
from penstock.testing.apis.exchange import (
    Answer,
    Api,
    BadRequestError,
    ModelRequest,
    Vendor,
    count_tokens,
    field,
    new_id,
)
from penstock.testing.apis.files import Files
from penstock.testing.apis.message_batches import MessageBatches
from penstock.testing.apis.openai import Chat, Completions, OpenAI, Responses
from penstock.testing.faults import (
    Fault,
    Hang,
    HttpError,
    Malformed,
    Outage,
    RateLimited,
    Reset,
    ServerError,
    Truncated,
)
from penstock.testing.http1 import HttpRequest
from penstock.testing.latency import as_latency
from penstock.testing.picking import OF_THE_MODEL, FaultPicker
from penstock.testing.script import BatchTiming, Script

Manner = Literal["whole", "hang", "reset", "reset mid-body", "truncated", "outage"]
Later = Callable[[float, Callable[[], None]], Any]

OPENAI, ANTHROPIC, GOOGLE = OpenAI(), Anthropic(), google_api.Google()
PROMPTS: dict[str, tuple[Vendor, Api]] = {
    "/chat/completions": (OPENAI, Chat()),
    "/completions": (OPENAI, Completions()),
    "/responses": (OPENAI, Responses()),
    "/messages": (ANTHROPIC, Messages()),
    ":generateContent": (GOOGLE, google_api.GenerateContent()),
}
MOST_ANSWERS = 128
# What reading a body raises that is JSON of another shape.
MISSHAPEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
GOOGLE_ACTIONS = (":generateContent", ":embedContent", ":batchEmbedContents")


@dataclass(slots=True)
class Reply:
    """What to send, after how many seconds, and in which manner."""

    status: int
    body: bytes
    headers: dict[str, str]
    delay: float = 0.0
    manner: Manner = "whole"
    outage_s: float = 0.0


class Service:
    """Answers by a script. ``later(seconds, function)`` calls back, for batches; ``url`` completes a path."""

    def __init__(self, script: Script, later: Later, url: Callable[[str], str] = str) -> None:
        self.later = later
        self.follow(script)
        self._files = Files()
        self._batches = Batches(self._files, self)
        self._message_batches = MessageBatches(self, url)

    def follow(self, script: Script) -> None:
        """Do as a script says from now on; its counts begin anew."""
        self.script = script
        self._latency = as_latency(script.latency)
        self._random = Random(script.seed)
        self._picker = FaultPicker(script.faults, script.seed)
        self._admission = Admission(script.limits, time.monotonic())

    def respond(self, request: HttpRequest, in_flight: int = 1) -> Reply:
        """Return the reply to any request."""
        head = request.head
        path = plain_path(head.path)
        vendor = vendor_of(path, request)
        try:
            if self.script.api_key is not None and vendor.key(head.headers) != self.script.api_key:
                raise BadRequestError("Incorrect API key provided.", 401)
            if not self._admission.is_open and head.method == "POST":
                wait_s = self._admission.wait_s(len(request.body) // 4, in_flight, time.monotonic())
                if wait_s:
                    headers = self._admission.refusal_headers(vendor, wait_s)
                    hint = wait_s if self.script.limits.has_headers else None
                    message = f"Rate limit reached. Please try again in {wait_s:.3f}s."
                    return self._error(vendor, 429, message, headers, retry_s=hint)
            return self._routed(vendor, path, request)
        except BadRequestError as error:
            return self._error(vendor, error.status, error.message, code=error.code)
        except MISSHAPEN as error:
            return self._error(vendor, 400, f"The request is not as the API has it: {error!r}.")

    @property
    def timing(self) -> BatchTiming:
        return self.script.batches

    def batch_fault(self, path: str) -> Fault | None:
        return self._picker.pick_for_batch(path)

    def answer_line(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer one request of a batch: its status and body."""
        path = plain_path(path)
        vendor = PROMPTS[path][0] if path in PROMPTS else OPENAI
        try:
            reply = self._posted(vendor, path, body)
        except BadRequestError as error:
            return error.status, vendor.error(error.status, error.message, error.code)
        except MISSHAPEN as error:
            return 400, vendor.error(400, f"The request is not as the API has it: {error!r}.", None)
        if reply.manner != "whole":
            return 500, vendor.error(500, None, None)
        try:
            return reply.status, orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            return 500, vendor.error(500, None, None)

    def _routed(self, vendor: Vendor, path: str, request: HttpRequest) -> Reply:
        if request.head.method == "POST" and (route := PROMPTS.get(path)) is not None:
            return self._prompted(vendor, route[1], path, parsed(request.body))
        if request.head.method == "POST" and (path == "/embeddings" or vendor is GOOGLE):
            return self._posted(vendor, path, parsed(request.body))
        if request.head.method == "GET" and (path == "/models" or path.startswith("/models/")):
            return self._with_fault(vendor, path, "", lambda: self._models(vendor, path))
        if (action := self._stored_action(path, request)) is not None:
            return self._with_fault(vendor, path, "", action)
        raise BadRequestError(f"Unknown request URL: {request.head.method} {request.head.path}.", 404, "unknown_url")

    def _stored_action(self, path: str, request: HttpRequest) -> Callable[[], dict[str, Any] | bytes] | None:
        """Return what a request for files or batches does, None if it is for neither."""
        method = request.head.method

        def body() -> dict[str, Any]:
            return parsed(request.body)

        return (
            self._files.action(method, path, request)
            or self._batches.action(method, path, body)
            or self._message_batches.action(method, path, body)
        )

    def _posted(self, vendor: Vendor, path: str, body: dict[str, Any]) -> Reply:
        action = action_of(path) if vendor is GOOGLE else path
        if (route := PROMPTS.get(action)) is not None:
            return self._prompted(vendor, route[1], path, body)
        embed: dict[str, Callable[[], dict[str, Any]]] = {
            "/embeddings": lambda: embeddings.embed(body, self.script),
            ":embedContent": lambda: google_api.embed_content(path, body, self.script),
            ":batchEmbedContents": lambda: google_api.batch_embed_contents(path, body, self.script),
        }
        if action not in embed:
            raise BadRequestError(f"Unknown request URL: POST {path}.", 404, "unknown_url")
        self._check_model(google_api.model_of(path) if vendor is GOOGLE else field(body, "model", str))
        text = orjson.dumps(body).decode() if self.script.faults else ""
        return self._with_fault(vendor, path, text, embed[action])

    def _prompted(self, vendor: Vendor, api: Api, path: str, body: dict[str, Any]) -> Reply:
        if body.get("stream"):
            raise BadRequestError("This server does not stream; leave out 'stream'.", code="unsupported_value")
        request = api.read(path, body)
        if not 1 <= request.num_answers <= MOST_ANSWERS:
            raise BadRequestError(f"Invalid number of answers: {request.num_answers}; 1 to {MOST_ANSWERS} are allowed.")
        self._check_model(request.model)
        fault, delay = self._picker.pick(path, request.text, request) if self.script.faults else (None, 0.0)
        answers = self._answers(request, fault if isinstance(fault, OF_THE_MODEL) else None)
        if isinstance(answers, Fault):
            fault = answers
        if fault is not None and (failed := self._failed(vendor, fault)) is not None:
            return replace(failed, delay=failed.delay + delay)
        assert isinstance(answers, list)
        if not self._admission.is_open:
            self._admission.charge(sum(count_tokens(answer.text) for answer in answers))
        return self._whole(vendor, api.write(request, answers), fault, delay)

    def _answers(self, request: ModelRequest, fault: Fault | None) -> list[Answer] | Fault:
        answers = []
        for index in range(request.num_answers):
            said = answer(replace(request, index=index) if index else request, self.script.answer, fault)
            if isinstance(said, Fault):
                return said
            answers.append(said)
        return answers

    def _with_fault(self, vendor: Vendor, path: str, text: str, make: Callable[[], dict[str, Any] | bytes]) -> Reply:
        """Answer what is no prompt, unless a fault befalls it."""
        fault, delay = self._picker.pick(path, text)
        if fault is not None and (failed := self._failed(vendor, fault)) is not None:
            return replace(failed, delay=failed.delay + delay)
        return self._whole(vendor, make(), fault, delay)

    def _whole(self, vendor: Vendor, body: dict[str, Any] | bytes, fault: Fault | None, delay: float) -> Reply:
        """Return an answer with all of its body, of which a fault may spoil the transfer."""
        headers = {"content-type": "application/json", vendor.request_id_header: new_id("req_")}
        if not self._admission.is_open:
            headers |= self._admission.headers(vendor)
        delay += self._latency.draw(self._random)
        data = body if isinstance(body, bytes) else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        reply = Reply(200, data, headers, delay)
        if isinstance(fault, Reset):
            reply.manner = "reset mid-body"
        elif isinstance(fault, Truncated):
            reply.manner = "truncated"
        return reply

    def _failed(self, vendor: Vendor, fault: Fault) -> Reply | None:
        """Return the reply of a fault that leaves no answer; None where there is one."""
        match fault:
            case HttpError(status=status, message=message, code=code, headers=headers):
                return self._error(vendor, status, message, dict(headers), code)
            case ServerError(status=status, message=message, headers=headers):
                return self._error(vendor, status, message, dict(headers))
            case RateLimited():
                return self._rate_limited(vendor, fault)
            case Malformed(body=body):
                return Reply(200, body.encode(), {"content-type": "application/json"})
            case Hang():
                return Reply(0, b"", {}, manner="hang")
            case Reset(mid_body=False):
                return Reply(0, b"", {}, manner="reset", delay=self._latency.draw(self._random))
            case Outage(seconds=seconds):
                return Reply(0, b"", {}, manner="outage", outage_s=seconds)
        return None

    def _rate_limited(self, vendor: Vendor, fault: RateLimited) -> Reply:
        headers = dict(fault.headers)
        if fault.retry_after is not None:
            headers["retry-after"] = str(fault.retry_after)
        if fault.retry_after_ms is not None:
            headers["retry-after-ms"] = f"{fault.retry_after_ms:g}"
        hint = None if fault.retry_after_ms is None else fault.retry_after_ms / 1000
        if hint is None and isinstance(fault.retry_after, float | int):
            hint = fault.retry_after
        message = fault.message or "Rate limit reached for requests."
        return self._error(vendor, 429, message, headers, fault.code, hint)

    def _error(
        self,
        vendor: Vendor,
        status: int,
        message: str | None,
        headers: dict[str, str] | None = None,
        code: str | None = None,
        retry_s: float | None = None,
    ) -> Reply:
        body = orjson.dumps(vendor.error(status, message, code, retry_s))
        return Reply(
            status,
            body,
            {"content-type": "application/json", vendor.request_id_header: new_id("req_"), **(headers or {})},
        )

    def _check_model(self, model: str) -> None:
        if self.script.models is not None and model not in self.script.models:
            raise BadRequestError(f"The model `{model}` does not exist or you do not have access to it.", 404)

    def _models(self, vendor: Vendor, path: str) -> dict[str, Any]:
        names = self.script.models or ("gpt-5-mini", "gpt-4o-mini", "text-embedding-3-small")
        if vendor is GOOGLE:
            listed: list[dict[str, Any]] = [
                {"name": f"models/{name}", "version": "001", "displayName": name} for name in names
            ]
            listing: dict[str, Any] = {"models": listed}
        else:
            listed = [
                {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "penstock"} for name in names
            ]
            listing = {"object": "list", "data": listed}
        if path == "/models":
            return listing
        if (asked := path.removeprefix("/models/")) not in names:
            raise BadRequestError(f"The model '{asked}' does not exist", 404)
        return dict(listed[names.index(asked)])


@lru_cache(maxsize=1024)
def plain_path(path: str) -> str:
    """Return a path without the version of its API, as some base URLs have it and some do not.

    >>> plain_path("/v1/responses"), plain_path("/v1beta/models/m:generateContent"), plain_path("/responses")
    ('/responses', '/models/m:generateContent', '/responses')
    """
    for prefix in ("/v1beta/", "/v1/"):
        if path.startswith(prefix):
            return path[len(prefix) - 1 :]
    return path


def action_of(path: str) -> str:
    """Return what Google's paths end with, such as ``:generateContent``."""
    return path[path.rfind(":") :] if ":" in path else ""


def vendor_of(path: str, request: HttpRequest) -> Vendor:
    """Return whose API a request speaks."""
    if path in PROMPTS:
        return PROMPTS[path][0]
    if (
        action_of(path) in GOOGLE_ACTIONS
        or request.head.path.startswith("/v1beta/")
        or "x-goog-api-key" in request.head.headers
    ):
        return GOOGLE
    if path.startswith("/messages") or "anthropic-version" in request.head.headers:
        return ANTHROPIC
    return OPENAI


def parsed(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise BadRequestError("We could not parse the JSON body of your request.") from exc
    if not isinstance(value, dict):
        raise BadRequestError("The body of the request must be an object.")
    return value

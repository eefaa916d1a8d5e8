"""Answer requests by the APIs of the providers and the script, independent of connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import Any

import orjson

from penstock.testing.answer_text import FaultInsteadError, answer
from penstock.testing.answer_times import as_latency
from penstock.testing.apis import embeddings, google
from penstock.testing.apis.anthropic import Anthropic, Messages
from penstock.testing.apis.batch_apis import AnthropicBatch, BatchStore, OpenAIBatch, OpenAIFiles, page
from penstock.testing.apis.decisions import Decisions
from penstock.testing.apis.model_api import (
    Api,
    BadRequestError,
    ModelRequest,
    UnknownUrlError,
    Vendor,
    count_tokens,
    field,
    json_or,
    new_id,
    parse_json,
)
from penstock.testing.apis.openai import Chat, Completions, OpenAI, Responses
from penstock.testing.faults import (
    MODEL_FAULTS,
    Fault,
    FaultPicker,
    Hang,
    HttpError,
    Malformed,
    Outage,
    RateLimited,
    Reset,
    Truncated,
)
from penstock.testing.http_server import HttpReply, HttpRequest
from penstock.testing.rate_limits import RateLimits
from penstock.testing.script import BatchTiming, Script

OPENAI, ANTHROPIC, GOOGLE = OpenAI(), Anthropic(), google.Google()
# Google's endpoint is the last part of the path.
PROMPT_APIS: dict[str, tuple[Vendor, Api]] = {
    "/chat/completions": (OPENAI, Chat()),
    "/completions": (OPENAI, Completions()),
    "/responses": (OPENAI, Responses()),
    "/decisions": (OPENAI, DECISIONS := Decisions()),
    "/systemone": (OPENAI, DECISIONS),
    "/messages": (ANTHROPIC, Messages()),
    ":generateContent": (GOOGLE, google.GenerateContent()),
}
EMBEDDING_APIS: dict[str, Callable[[str, dict[str, Any], Script], dict[str, Any]]] = {
    "/embeddings": embeddings.embed,
    ":embedContent": google.embed_content,
    ":batchEmbedContents": google.batch_embed_contents,
}
DEFAULT_MODELS = ("gpt-5-mini", "gpt-4o-mini", "text-embedding-3-small")
MAX_ANSWERS = 128
# Exceptions from reading JSON of an unexpected shape.
SHAPE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Action = Callable[[Fault | None], dict[str, Any] | bytes]


class ModelService:
    """Answer by a script. ``url`` completes a path."""

    def __init__(self, script: Script, url: Callable[[str], str] = str) -> None:
        self.follow(script)
        self._files = OpenAIFiles()
        self._openai_batches = BatchStore(lambda body: OpenAIBatch(body, self._files, self))
        self._anthropic_batches = BatchStore(lambda body: AnthropicBatch(body, self, url))

    def follow(self, script: Script) -> None:
        """Use another script from now on, with counts that start at zero."""
        self.script = script
        self._latency = as_latency(script.latency)
        self._random = Random(script.seed)
        self._picker = FaultPicker(script.faults, script.seed)
        self._limits = RateLimits(script.limits, time.monotonic())

    def respond(self, request: HttpRequest, in_flight: int = 1) -> HttpReply:
        path = without_version(request.path)
        vendor = vendor_of(path, request)
        try:
            self._check_key(vendor, request)
            if not self._limits.is_unlimited and request.method == "POST":
                wait_s = self._limits.admit(len(request.body) // 4, in_flight, time.monotonic())
                if wait_s:
                    headers = self._limits.refusal_headers(vendor, wait_s)
                    retry_s = wait_s if self.script.limits.has_headers else None
                    message = f"Rate limit reached. Please try again in {wait_s:.3f}s."
                    return _error_reply(vendor, 429, message, headers, retry_s=retry_s)
            return self._route(vendor, path, request)
        except (BadRequestError, *SHAPE_ERRORS) as error:
            return _refusal(vendor, error)

    @property
    def timing(self) -> BatchTiming:
        return self.script.batches

    def batch_fault(self, path: str) -> Fault | None:
        return self._picker.pick_for_batch(path)

    def answer_line(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to one request of a batch."""
        path = without_version(path)
        vendor = PROMPT_APIS[path][0] if path in PROMPT_APIS else OPENAI
        try:
            reply = self._post(vendor, path, body)
        except (BadRequestError, *SHAPE_ERRORS) as error:
            reply = _refusal(vendor, error)
        content = json_or(reply.body, None)
        if reply.transfer != "whole" or content is None:
            return 500, vendor.error(500, None, None)
        return reply.status, content

    def _check_key(self, vendor: Vendor, request: HttpRequest) -> None:
        if (expected := self.script.api_key) is not None:
            given = request.headers.get(vendor.key_header) or request.headers.get("authorization", "")
            if given.removeprefix("Bearer ") != expected:
                raise BadRequestError("Incorrect API key provided.", 401)

    def _route(self, vendor: Vendor, path: str, request: HttpRequest) -> HttpReply:
        if request.method == "POST" and (path in PROMPT_APIS or path == "/embeddings" or vendor is GOOGLE):
            return self._post(vendor, path, parse_json(request.body))
        return self._reply(vendor, path, "", lambda _: self._resource(vendor, path, request))

    def _resource(self, vendor: Vendor, path: str, request: HttpRequest) -> dict[str, Any] | bytes:
        """Answer a request for models, files or batches."""
        match path.strip("/").split("/"):
            case ["models"]:
                names = self.script.models or DEFAULT_MODELS
                if vendor is GOOGLE:
                    return {"models": [{"name": f"models/{name}"} for name in names]}
                return page([{"id": name, "object": "model"} for name in names])
            case ["files", *rest]:
                return self._files.respond(request, rest)
            case ["batches", *rest]:
                return self._openai_batches.respond(request, rest)
            case ["messages", "batches", *rest]:
                return self._anthropic_batches.respond(request, rest)
        raise UnknownUrlError(request.path)

    def _post(self, vendor: Vendor, path: str, body: dict[str, Any]) -> HttpReply:
        endpoint = path[path.rfind(":") :] if vendor is GOOGLE else path
        if endpoint in PROMPT_APIS:
            return self._prompt(vendor, PROMPT_APIS[endpoint][1], path, body)
        if (embed := EMBEDDING_APIS.get(endpoint)) is None:
            raise UnknownUrlError(path)
        self._check_model(google.model_of(path) if vendor is GOOGLE else field(body, "model", str))
        text = orjson.dumps(body).decode() if self.script.faults else ""
        return self._reply(vendor, path, text, lambda _: embed(path, body, self.script))

    def _prompt(self, vendor: Vendor, api: Api, path: str, body: dict[str, Any]) -> HttpReply:
        if body.get("stream"):
            raise BadRequestError("This server does not stream; leave out 'stream'.", code="unsupported_value")
        request = api.read(path, body)
        if not 1 <= request.num_answers <= MAX_ANSWERS:
            raise BadRequestError(f"Invalid number of answers: {request.num_answers}; 1 to {MAX_ANSWERS} are allowed.")
        self._check_model(request.model)

        def write(fault: Fault | None) -> dict[str, Any]:
            fault = fault if isinstance(fault, MODEL_FAULTS) else None
            numbered = [replace(request, index=index) if index else request for index in range(request.num_answers)]
            answers = [answer(one, self.script.answer, fault) for one in numbered]
            if not self._limits.is_unlimited:
                self._limits.charge_tokens(sum(count_tokens(each.text) for each in answers))
            return api.write(request, answers)

        return self._reply(vendor, path, request.text, write, request)

    def _reply(
        self, vendor: Vendor, path: str, text: str, action: Action, request: ModelRequest | None = None
    ) -> HttpReply:
        """Answer with the result of ``action``, unless a fault prevents it."""
        fault, delay_s = self._picker.pick(path, text, request) if self.script.faults else (None, 0.0)
        failure = self._failure(vendor, fault)
        if failure is None:
            try:
                return self._success(vendor, action(fault), fault, delay_s)
            except FaultInsteadError as error:
                failure = self._failure(vendor, error.fault) or _error_reply(vendor, 500, None)
        return replace(failure, delay_s=failure.delay_s + delay_s)

    def _success(self, vendor: Vendor, body: dict[str, Any] | bytes, fault: Fault | None, delay_s: float) -> HttpReply:
        """Return an answer; a fault may break its transfer."""
        headers = {"content-type": "application/json", vendor.request_id_header: new_id("req_")}
        if not self._limits.is_unlimited:
            headers |= self._limits.headers(vendor)
        delay_s += self._latency.draw(self._random)
        data = body if isinstance(body, bytes) else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        reply = HttpReply(200, data, headers, delay_s)
        if isinstance(fault, Reset):
            reply.transfer = "reset mid-body"
        elif isinstance(fault, Truncated):
            reply.transfer = "truncated"
        return reply

    def _failure(self, vendor: Vendor, fault: Fault | None) -> HttpReply | None:
        """Return the reply of a fault that prevents an answer, else None."""
        match fault:
            case HttpError(status=status, message=message, code=code, headers=headers):
                return _error_reply(vendor, status, message, headers, code)
            case RateLimited():
                return _rate_limited_reply(vendor, fault)
            case Malformed(body=body):
                return HttpReply(200, body.encode(), {"content-type": "application/json"})
            case Hang():
                return HttpReply(0, b"", {}, transfer="hang")
            case Reset(mid_body=False):
                return HttpReply(0, b"", {}, self._latency.draw(self._random), "reset")
            case Outage(seconds=seconds):
                return HttpReply(0, b"", {}, transfer="outage", outage_s=seconds)
        return None

    def _check_model(self, model: str) -> None:
        if self.script.models is not None and model not in self.script.models:
            raise BadRequestError(f"The model `{model}` does not exist or you do not have access to it.", 404)


def _refusal(vendor: Vendor, error: Exception) -> HttpReply:
    """Return the reply to a request that is wrong."""
    if isinstance(error, BadRequestError):
        return _error_reply(vendor, error.status, error.message, code=error.code)
    return _error_reply(vendor, 400, f"The request does not fit the API: {error!r}.")


def _rate_limited_reply(vendor: Vendor, fault: RateLimited) -> HttpReply:
    headers = dict(fault.headers)
    retry_s = fault.retry_after if isinstance(fault.retry_after, float | int) else None
    if fault.retry_after is not None:
        headers["retry-after"] = str(fault.retry_after)
    if fault.retry_after_ms is not None:
        headers["retry-after-ms"] = f"{fault.retry_after_ms:g}"
        retry_s = fault.retry_after_ms / 1000
    message = fault.message or "Rate limit reached for requests."
    return _error_reply(vendor, 429, message, headers, fault.code, retry_s)


def _error_reply(
    vendor: Vendor,
    status: int,
    message: str | None,
    headers: Mapping[str, str] = MappingProxyType({}),
    code: str | None = None,
    retry_s: float | None = None,
) -> HttpReply:
    own = {"content-type": "application/json", vendor.request_id_header: new_id("req_")}
    return HttpReply(status, orjson.dumps(vendor.error(status, message, code, retry_s)), {**own, **headers})


@lru_cache(maxsize=1024)
def without_version(path: str) -> str:
    """Return a path without the version of the API, which some base URLs contain.

    >>> without_version("/v1/responses"), without_version("/v1beta/models/m:generateContent")
    ('/responses', '/models/m:generateContent')
    """
    for prefix in ("/v1beta/", "/v1/"):
        if path.startswith(prefix):
            return path[len(prefix) - 1 :]
    return path


def vendor_of(path: str, request: HttpRequest) -> Vendor:
    """Return the provider whose API a request uses."""
    if path in PROMPT_APIS:
        return PROMPT_APIS[path][0]
    if (
        path.endswith((":generateContent", ":embedContent", ":batchEmbedContents"))
        or request.path.startswith("/v1beta/")
        or "x-goog-api-key" in request.headers
    ):
        return GOOGLE
    if path.startswith("/messages") or "anthropic-version" in request.headers:
        return ANTHROPIC
    return OPENAI

"""The interface of a provider's batch API, and the client that sends its requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson

from penstock.ai.client.addresses import shown
from penstock.ai.client.api_call import Endpoint
from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.http_request import ReceivedReply
from penstock.ai.client.retried_calls import Retries, delay_before
from penstock.ai.client.server_errors import beginning_of, error_for_status
from penstock.ai.lenient_json import field_of, parse_json
from penstock.ai.provider import CallSettings
from penstock.config import get_config
from penstock.errors import InvalidAnswerError, ProviderError, RequestRefusedError

log = logging.getLogger("penstock.ai")

MAX_PAGES = 20


@dataclass(frozen=True, slots=True)
class BatchCapacity:
    max_requests: int
    max_nbytes: int

    def lowered(self, max_requests: int | None) -> BatchCapacity:
        """Return the capacity, lowered to at most this many requests."""
        return self if max_requests is None else replace(self, max_requests=min(self.max_requests, max_requests))


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch: its id, path, and body as JSON."""

    custom_id: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of a batch. ``problem`` is the reason why the provider refused it."""

    id: str
    is_ended: bool
    result_files: tuple[str, ...] = ()  # paths
    input_files: tuple[str, ...] = ()
    problem: ProviderError | None = None
    is_too_much: bool = False  # the account has reached its limit: the provider may accept the batch later


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one request: the body of its answer, or an error."""

    custom_id: str
    body: Any = None
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was about to be submitted: its number of requests, and the time."""

    num_requests: int
    time: float


Take = Callable[[BatchResult], None]


class BatchService(Protocol):
    """A batch API. Picklable; sends all requests through the given client."""

    @property
    def capacity(self) -> BatchCapacity: ...

    @property
    def path(self) -> str: ...

    async def create(
        self, client: BatchClient, token: str, requests: Sequence[BatchRequest], uploaded: list[str]
    ) -> str:
        """Submit a batch once and return its id. Add the paths of files that it uploads to ``uploaded``.

        After ProviderUnavailableError or InvalidAnswerError the batch may have been created or not.
        """

    async def find(self, client: BatchClient, token: str, intent: Intent, known: Collection[str]) -> list[str]:
        """Return the ids of batches that may have this token; only their results can tell. Skip ``known`` ids."""

    async def state(self, client: BatchClient, batch_id: str) -> BatchState: ...

    async def results(self, client: BatchClient, state: BatchState, take: Take) -> None:
        """Call ``take`` with each result of an ended batch, perhaps twice with some."""


class BatchClient(ApiClient):
    """Manages batches on one server. Its requests need permits of the model's limiter, as prompts do.

    A pause stops new batches (``BatchCalls``); batches that the provider already has are still asked about.
    """

    is_paused_with_query = False

    def __init__(self, endpoint: Endpoint, model: str, settings: CallSettings) -> None:
        super().__init__(endpoint, model, settings)
        self._retries = Retries(self)

    async def json(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] | None = None, is_safe: bool = True
    ) -> dict[str, Any]:
        """Send a request and return the JSON object of the answer. Retry if the request ``is_safe`` to repeat."""
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        return await self._send(method, path, data, {}, query, is_safe)

    async def _send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        query: Mapping[str, str] | None = None,
        is_safe: bool = True,
    ) -> dict[str, Any]:
        async def take(reply: ReceivedReply) -> tuple[dict[str, Any], None]:
            return self.parsed(await self.content(reply)), None

        request = self.request(method, path, query, headers)
        answered = await self._retries.repeat(lambda rank: self.exchange(request, data, take, rank), is_safe)
        body: dict[str, Any] = answered.value
        return body

    async def listed(self, path: str, after: str) -> AsyncIterator[Any]:
        """Yield the batches in a list, newest first; ``after`` is the parameter for the last id of a page."""
        query = {"limit": "100"}
        for _ in range(MAX_PAGES):
            page = await self.json("GET", path, query=query)
            batches = field_of(page, "data", list, "the list of batches")
            for batch in batches:
                yield batch
            if not batches or not page.get("has_more"):
                return
            query = {"limit": "100", after: field_of(batches[-1], "id", str, "a batch")}

    async def upload(self, path: str, fields: Mapping[str, str], name: str, content: bytes) -> dict[str, Any]:
        """Upload a file as multipart/form-data."""
        boundary = secrets.token_hex(16)
        head = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
            for key, value in fields.items()
        )
        head += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        data = b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))
        return await self._send("POST", path, data, {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    async def delete(self, paths: Iterable[str]) -> None:
        """Delete files. A file that cannot be deleted is left to the provider."""
        for path in paths:
            with contextlib.suppress(ProviderError):
                await self.json("DELETE", path)

    async def read_results(self, path: str, take_line: Callable[[Any], None]) -> None:
        """Call ``take_line`` with each line of a file of results. After a lost connection, start over.

        A line that is not JSON, or for which ``take_line`` raises InvalidAnswerError, is skipped with a warning; a file
        that has only such lines raises InvalidAnswerError. A file that does not exist has no lines.
        """

        async def take(reply: ReceivedReply) -> tuple[None, None]:
            rest, num_taken, errors = b"", 0, list[InvalidAnswerError]()

            def take_all(lines: Iterable[bytes]) -> None:
                nonlocal num_taken
                for line in filter(bytes.strip, lines):
                    try:
                        take_line(self._parsed(line))
                        num_taken += 1
                    except InvalidAnswerError as exc:
                        errors.append(exc)

            async for chunk in reply.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                take_all(lines)
                if len(rest) > get_config().max_response_bytes:
                    raise self.errors.too_large(get_config().max_response_bytes)
            take_all([rest])
            if errors and not num_taken:
                raise InvalidAnswerError(f"no line of {path} can be read: {errors[0]}")
            if errors:
                log.warning("%s: %d lines of %s cannot be read: %s", self.name, len(errors), path, errors[0])
            return None, None

        request = self.request("GET", path)
        try:
            await self._retries.repeat(lambda rank: self.exchange(request, None, take, rank))
        except RequestRefusedError as exc:
            if exc.status != 404:  # the provider deleted it, or an earlier run did after reading it
                raise

    def error_of(self, status: int, body: Any) -> ProviderError:
        """Return the error for a status and body in a file of results."""
        return error_for_status(status, orjson.dumps(body), {}, self.name, shown(self.endpoint.base_url))

    async def pause(self, num_failures: int, error: ProviderError) -> None:
        """Wait before a retry, longer each time."""
        await asyncio.sleep(delay_before(num_failures, error, random.random(), self.settings.first_delay_s))

    def _parsed(self, line: bytes) -> Any:
        try:
            return parse_json(line)
        except ValueError as exc:
            raise InvalidAnswerError(f"a line is not JSON: {beginning_of(line)!r}") from exc

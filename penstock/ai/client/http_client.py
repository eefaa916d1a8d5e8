"""The HTTP client of one model: shared connections, permits of the limiter, time limits, and errors by class."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from penstock.ai.client.addresses import joined, proxy_for, shown
from penstock.ai.client.api_call import NO_OBSERVER, Answered, CallObserver, Endpoint
from penstock.ai.client.connections import SharedConnections
from penstock.ai.client.crash_search import CrashSearch
from penstock.ai.client.deadline import Deadline
from penstock.ai.client.failed_attempts import ConnectionLostError
from penstock.ai.client.http_request import PreparedRequest, ReceivedReply
from penstock.ai.client.limits.limiter import Limiter, LimiterKey, Outcome, Rank, Tally, limiter_for
from penstock.ai.client.server_errors import (
    NeverReachedError,
    ServerErrors,
    beginning_of,
    connection_errors,
    is_time_out,
    status_meant,
)
from penstock.ai.client.silent_server import Silence
from penstock.ai.lenient_json import parse_json
from penstock.ai.provider import CallSettings
from penstock.config import get_config
from penstock.cost.usage import Usage
from penstock.errors import (
    InvalidAnswerError,
    PenstockError,
    ProviderUnavailableError,
    RateLimitedError,
)
from penstock.events.call_counter import CallCounter, current_call_counter
from penstock.events.call_gate import ALWAYS_OPEN, current_gate
from penstock.events.call_room import CallRoom, current_room
from penstock.storage.secret import Secret, hidden

Answer = TypeVar("Answer")

MAX_REFUSAL_NBYTES = 64 * 2**10  # bytes of an error body that are read


class ApiClient:
    """Sends requests to one server for one model. Created anywhere, used on one event loop. Opens at the first request.

    ``exchange`` sends one request; retries, billing and caching are layers around it.
    """

    is_paused_with_query = True

    def __init__(self, endpoint: Endpoint, model: str, settings: CallSettings) -> None:
        self.endpoint, self.model, self.settings = endpoint, model, settings
        self.name = f"{endpoint.provider} ({model})"
        self.errors = ServerErrors(self.name, endpoint, settings.timeout_s)
        self.silence = Silence(f"{self.name} at {shown(endpoint.base_url)}")
        self.gate = ALWAYS_OPEN
        self.room = CallRoom()
        self.crash_search = CrashSearch()
        self.limiter: Limiter | None = None
        self._connections: SharedConnections | None = None
        self._deadline: Deadline | None = None
        self._headers: Mapping[str, str] = {}
        self._posts: dict[str, PreparedRequest] = {}
        self._max_nbytes = 0
        self._counter = CallCounter()

    def open(self) -> None:
        """Open the client on the running loop."""
        endpoint = self.endpoint
        headers = {"Content-Type": "application/json"}
        headers |= {name: value.reveal() if isinstance(value, Secret) else value for name, value in endpoint.headers}
        if endpoint.key is not None:
            name, template = endpoint.key_header
            headers[name] = template.format(endpoint.key.reveal())
        self.errors.proxy = proxy_for(endpoint.base_url)
        self._headers = headers
        self.limiter = limiter_for(LimiterKey(endpoint.provider, endpoint.base_url, self.model), self.settings.caps)
        self._deadline = Deadline(self.settings.timeout_s)
        self._counter = current_call_counter()
        self.room = current_room()
        self._counter.num_requests = self._counter.num_requests or 0
        self._max_nbytes = get_config().max_response_bytes
        if self.is_paused_with_query:
            self.gate = current_gate()
        self._connections = SharedConnections.shared()  # last: an error above leaves nothing to close
        self._connections.silences.add(self.silence)
        self.crash_search = self._connections.crash_search(endpoint.base_url)

    async def close(self) -> None:
        connections, self._connections, self.limiter = self._connections, None, None
        self._posts.clear()
        if connections is not None:
            assert self._deadline is not None
            self._deadline.close()
            connections.silences.discard(self.silence)
            await connections.release()

    @property
    def max_at_once(self) -> int | None:
        """The number of concurrent requests that the limiter allows now."""
        return None if self.limiter is None else self.limiter.state().limit

    @property
    def tally(self) -> Tally:
        """The counts of the limiter so far."""
        return Tally() if self.limiter is None else self.limiter.tally

    def post(self, path: str) -> PreparedRequest:
        """Return the POST to a path below the base URL, prepared once for all calls."""
        if path not in self._posts:
            self._posts[path] = self.request("POST", path)
        return self._posts[path]

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PreparedRequest:
        import yarl

        if self._connections is None:
            self.open()
        assert self._connections is not None
        url = yarl.URL(joined(self.endpoint.base_url, path)).update_query(query or {})
        given = {**self._headers, **(headers or {})}
        return PreparedRequest(self._connections.connector, method, url, given, self.errors.proxy)

    async def exchange(
        self,
        request: PreparedRequest,
        data: bytes | None,
        take: Callable[[ReceivedReply], Awaitable[tuple[Answer, int | None]]],
        rank: Rank = "first",
        *,
        tokens: int = 0,
        observer: CallObserver = NO_OBSERVER,
    ) -> Answered:
        """Send one request with a permit of the limiter. Return the answer that ``take`` reads, and the latency.

        ``take`` also returns the number of tokens that the request used, if known.
        """
        assert self.limiter is not None, "the request was made before the client was closed"
        assert self._deadline is not None
        permit = await self.limiter.admit(tokens, rank=rank)
        while not self.gate.is_open or self.crash_search.holds(rank):
            permit.settle("other")
            await self._wait_for_gate(rank)
            permit = await self.limiter.admit(tokens, rank=rank)
        outcome: Outcome = "other"
        received: Mapping[str, str] | None = None
        used_tokens: int | None = None
        started, counter = time.perf_counter(), self._counter
        counter.num_requests = (counter.num_requests or 0) + 1
        number = self.crash_search.sent(rank)
        observer.sent()
        try:
            await asyncio.sleep(0)  # the answer that freed this permit is written before the next call is sent
            with self._deadline, await request.send(data) as reply:
                received = reply.headers
                if not self.errors.has_answered:
                    self.errors.note_answer()
                if not 200 <= reply.status < 300:
                    raw = await reply.start(MAX_REFUSAL_NBYTES)
                    observer.failed()
                    raise self.errors.refusal(reply.status, raw, received)
                answer, used_tokens = await take(reply)
            outcome, latency_s = "ok", time.perf_counter() - started
            counter.count_reply(latency_s)
            return Answered(answer, latency_s)
        except RateLimitedError:
            outcome = "refused"
            raise
        except ProviderUnavailableError as exc:
            outcome = "refused" if exc.is_overload else "unavailable"
            raise
        except connection_errors() as exc:
            outcome = "late" if is_time_out(exc) else "unavailable"
            lost = self.errors.lost(exc)
            if isinstance(lost, ConnectionLostError | NeverReachedError):
                observer.failed()
            elif outcome != "late":
                lost.num_lost = await self.crash_search.num_lost(number)
            raise lost from None
        finally:
            counter.num_requests -= 1
            self.crash_search.settled(rank)
            if received is not None and outcome in ("ok", "other"):
                self.silence.end_silence(time.monotonic())
            permit.settle(outcome, used_tokens=used_tokens, headers=received)

    async def _wait_for_gate(self, rank: Rank) -> None:
        """Wait until neither a pause nor a crash search holds the call. Meanwhile it does not count as waiting for the
        server."""
        self.silence.end()
        try:
            await self.gate.wait()
            if self.crash_search.holds(rank):
                await self.crash_search.wait()
        finally:
            self.silence.begin(time.monotonic())

    async def content(self, reply: ReceivedReply) -> bytes:
        """Return the body of an answer, decompressed. Stop reading at ``max_response_bytes``."""
        limit = self._max_nbytes
        if reply.nbytes is not None and reply.nbytes <= limit:
            return await reply.read()
        content = await reply.start(limit)
        if len(content) > limit:
            raise self.errors.too_large(limit)
        return content

    async def wait_for_room(self, nbytes: int) -> None:
        """Wait until a large answer may be received. The time limit does not count meanwhile."""
        assert self._deadline is not None
        while not self.room.has_place(nbytes):
            with self._deadline.paused():
                await self.room.change()

    def parsed(self, raw: bytes) -> Any:
        """Return the body of an answer, a JSON object, or raise the error that it reports."""
        try:
            body = parse_json(raw)
        except ValueError as exc:
            raise InvalidAnswerError(f"{self.name} answered with malformed JSON: {beginning_of(raw)!r}") from exc
        if not isinstance(body, dict):
            raise InvalidAnswerError(f"{self.name} answered with {type(body).__name__}, not with an object")
        if error := body.get("error"):  # some gateways send errors with status 200
            raise self.errors.refusal(status_meant(error), raw, {})
        return body

    def understood(self, body: Any, usage: Usage | None, read: Callable[[Any, Usage | None], Answer]) -> Answer:
        """Return ``read(body, usage)``; any exception in it means an invalid answer."""
        try:
            return read(body, usage)
        except PenstockError:
            raise
        except Exception as exc:
            raise InvalidAnswerError(
                f"{self.name} answered in an unknown format: {type(exc).__name__}: {hidden(str(exc))}"
            ) from exc

"""The HTTP client of one model: shared connections, permits of the limiter, time limits, and errors by class."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.ai.client.addresses import joined, proxy_for, shown
from penstock.ai.client.api_call import NO_OBSERVER, Answered, CallObserver, Endpoint
from penstock.ai.client.connections import SharedSession
from penstock.ai.client.crash_search import CrashSearch
from penstock.ai.client.deadline import Deadline
from penstock.ai.client.failed_attempts import ConnectionLostError
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

if TYPE_CHECKING:
    import aiohttp

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
        self._session: SharedSession | None = None
        self._deadline: Deadline | None = None
        self._headers: Mapping[str, str] = {}
        self.urls: dict[str, Any] = {}
        self._max_nbytes = 0
        self._counter = CallCounter()

    def open(self) -> None:
        """Open the client on the running loop."""
        import multidict

        endpoint = self.endpoint
        headers = {"Content-Type": "application/json"}
        headers |= {name: value.reveal() if isinstance(value, Secret) else value for name, value in endpoint.headers}
        if endpoint.key is not None:
            name, template = endpoint.key_header
            headers[name] = template.format(endpoint.key.reveal())
        self.errors.proxy = proxy_for(endpoint.base_url)
        # The type that aiohttp would otherwise convert them to for every request.
        self._headers = multidict.CIMultiDictProxy(multidict.CIMultiDict(headers))
        self.limiter = limiter_for(LimiterKey(endpoint.provider, endpoint.base_url, self.model), self.settings.caps)
        self._deadline = Deadline(self.settings.timeout_s)
        self._counter = current_call_counter()
        self.room = current_room()
        self._counter.num_requests = self._counter.num_requests or 0
        self._max_nbytes = get_config().max_response_bytes
        if self.is_paused_with_query:
            self.gate = current_gate()
        self._session = SharedSession.shared()  # last: an error above leaves nothing to close
        self._session.silences.add(self.silence)
        self.crash_search = self._session.crash_search(endpoint.base_url)

    async def close(self) -> None:
        session, self._session, self.limiter = self._session, None, None
        if session is not None:
            assert self._deadline is not None
            self._deadline.close()
            session.silences.discard(self.silence)
            await session.release()

    @property
    def max_at_once(self) -> int | None:
        """The number of concurrent requests that the limiter allows now."""
        return None if self.limiter is None else self.limiter.state().limit

    @property
    def tally(self) -> Tally:
        """The counts of the limiter so far."""
        return Tally() if self.limiter is None else self.limiter.tally

    def url(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the URL of a path below the base URL, in the form that aiohttp takes."""
        import yarl

        url = yarl.URL(joined(self.endpoint.base_url, path)).update_query(query or {})
        if not query:
            self.urls[path] = url
        return url

    async def exchange(
        self,
        method: str,
        url: Any,
        data: bytes | None,
        take: Callable[[aiohttp.ClientResponse], Awaitable[tuple[Answer, int | None]]],
        rank: Rank = "first",
        *,
        headers: Mapping[str, str] | None = None,
        tokens: int = 0,
        observer: CallObserver = NO_OBSERVER,
    ) -> Answered:
        """Send one request with a permit of the limiter. Return the answer that ``take`` reads, and the latency.

        ``take`` also returns the number of tokens that the request used, if known.
        """
        if self._session is None:
            self.open()
        assert self.limiter is not None
        assert self._session is not None
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
            with self._deadline:
                response = await self._session.client.request(
                    method,
                    url,
                    data=data,
                    headers={**self._headers, **headers} if headers else self._headers,
                    allow_redirects=False,
                    proxy=self.errors.proxy,
                )
                try:
                    received = response.headers
                    if not self.errors.has_answered:
                        self.errors.note_answer()
                    if not 200 <= response.status < 300:
                        raw = await start_of(response, MAX_REFUSAL_NBYTES)
                        observer.failed()
                        raise self.errors.refusal(response.status, raw, received)
                    answer, used_tokens = await take(response)
                except BaseException:
                    response.close()
                    raise
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

    async def content(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the body of an answer, decompressed. Stop reading at ``max_response_bytes``."""
        limit, length = self._max_nbytes, response.content_length
        if length is not None and length <= limit and "Content-Encoding" not in response.headers:
            return await response.read()
        content = await start_of(response, limit)
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

    def understood(self, body: Any, read: Callable[[Any], Answer]) -> Answer:
        """Return ``read(body)``; any exception in it means an invalid answer."""
        try:
            return read(body)
        except PenstockError:
            raise
        except Exception as exc:
            raise InvalidAnswerError(
                f"{self.name} answered in an unknown format: {type(exc).__name__}: {hidden(str(exc))}"
            ) from exc


async def start_of(response: aiohttp.ClientResponse, nbytes: int) -> bytes:
    """Return the start of a body, decompressed. Stop reading after more than ``nbytes``."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > nbytes:
            break
    return bytes(content)

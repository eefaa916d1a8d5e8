"""The HTTP client of remote models: shared connections, limits, retries, and errors by class."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from penstock.ai.client.addresses import joined, proxy_for, shown
from penstock.ai.client.connections import SharedSession
from penstock.ai.client.crash_search import CrashSearch, Turn
from penstock.ai.client.deadline import Deadline
from penstock.ai.client.failed_attempts import ConnectionLostError, FailedAttempts
from penstock.ai.client.limits.limiter import (
    Limiter,
    LimiterKey,
    Outcome,
    Rank,
    Tally,
    duration,
    limiter_for,
    wait_too_long,
)
from penstock.ai.client.limits.pacing import MAX_WAIT_S
from penstock.ai.client.server_check import Attempt, ServerCheck
from penstock.ai.client.silent_server import Silence
from penstock.ai.client.status_errors import beginning_of, error_for_status, status_meant
from penstock.ai.lenient_json import parse_json
from penstock.ai.provider import FIRST_DELAY_S, CallSettings
from penstock.ai.wire import ApiCall, Endpoint
from penstock.config import get_config
from penstock.cost.usage import usage_in
from penstock.errors import (
    AnswerTooLargeError,
    InvalidAnswerError,
    PenstockError,
    ProviderError,
    ProviderUnavailableError,
    ProviderUnusableError,
    RateLimitedError,
    RequestRefusedError,
    UnreachableError,
    WaitTooLongError,
)
from penstock.events.call_counter import CallCounter, current_call_counter
from penstock.events.call_gate import ALWAYS_OPEN, current_gate
from penstock.events.call_room import CallRoom, current_room
from penstock.storage.backoff import retry_delay_s
from penstock.storage.secret import Secret, hidden

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("penstock.ai")

Answer = TypeVar("Answer")

MAX_DELAY_S = 30.0
MAX_FIRST_TRIES = 3  # at an address that has never answered
LARGE_NBYTES = 128 * 2**10  # of an answer that is received only if there is room for it
MAX_REFUSAL_NBYTES = 64 * 2**10  # of an error body that are read

_reached: set[tuple[str, str | None]] = set()  # base URLs that have answered this process, with their proxies


class AttemptObserver(Protocol):
    """Observes one attempt of a call, to know what it costs."""

    def sent(self) -> None:
        """The request is about to be sent. From now on it may cost something."""

    def failed(self) -> None:
        """The server did not answer the request, or answered with an error: it costs nothing."""


class _NoObserver:
    def sent(self) -> None: ...

    def failed(self) -> None: ...


NO_OBSERVER = _NoObserver()


class ApiClient:
    """Sends the calls of one model to one server. Created anywhere, used on one event loop. Opens at the first call."""

    is_paused_with_query = True

    def __init__(self, endpoint: Endpoint, model: str, settings: CallSettings) -> None:
        self._endpoint, self._model, self.settings = endpoint, model, settings
        self.name = f"{endpoint.provider} ({model})"
        self._limiter: Limiter | None = None
        self._session: SharedSession | None = None
        self._deadline: Deadline | None = None
        self._headers: Mapping[str, str] = {}
        self._proxy: str | None = None
        self._urls: dict[str, Any] = {}
        self._max_nbytes = 0
        self._silence = Silence(f"{self.name} at {shown(endpoint.base_url)}")
        self._has_answered = False
        self._gate = ALWAYS_OPEN
        self._counter = CallCounter()
        self.check = ServerCheck(shown(endpoint.base_url))
        self._crash_search = CrashSearch()
        self._room = CallRoom()
        self._mean_nbytes = 0  # of recent answers

    def open(self) -> None:
        """Open the client on the running loop."""
        import multidict

        endpoint = self._endpoint
        headers = {"Content-Type": "application/json"}
        headers |= {name: value.reveal() if isinstance(value, Secret) else value for name, value in endpoint.headers}
        if endpoint.key is not None:
            name, template = endpoint.key_header
            headers[name] = template.format(endpoint.key.reveal())
        self._proxy = proxy_for(endpoint.base_url)
        # The type that aiohttp would otherwise convert them to for every request.
        self._headers = multidict.CIMultiDictProxy(multidict.CIMultiDict(headers))
        self._limiter = limiter_for(LimiterKey(endpoint.provider, endpoint.base_url, self._model), self.settings.caps)
        self._deadline = Deadline(self.settings.timeout_s)
        self._counter = current_call_counter()
        self._room = current_room()
        self._counter.num_requests = self._counter.num_requests or 0
        self._max_nbytes = get_config().max_response_bytes
        if self.is_paused_with_query:
            self._gate = current_gate()
        self._session = SharedSession.shared()  # last: an error above leaves nothing to close
        self._session.silences.add(self._silence)
        self._crash_search = self._session.crash_search(endpoint.base_url)

    async def close(self) -> None:
        session, self._session, self._limiter = self._session, None, None
        if session is not None:
            assert self._deadline is not None
            self._deadline.close()
            session.silences.discard(self._silence)
            await session.release()

    @property
    def max_at_once(self) -> int | None:
        """The number of concurrent requests that the limiter allows now."""
        return None if self._limiter is None else self._limiter.state().limit

    # The functions below are called for each row. Those that only call a coroutine function return its coroutine,
    # because each coroutine around another is resumed whenever the inner one is.

    def ask(self, call: ApiCall, read: Callable[[Any], Answer]) -> Coroutine[Any, Any, tuple[Answer, float]]:
        """Send a call until it is answered. Return ``read(body)`` and the latency in seconds."""
        return self.retry(partial(self.ask_once, call, read), tokens=call.tokens)

    def ask_once(
        self,
        call: ApiCall,
        read: Callable[[Any], Answer],
        rank: Rank = "first",
        observer: AttemptObserver = NO_OBSERVER,
    ) -> Coroutine[Any, Any, tuple[Answer, float]]:
        data = orjson.dumps(call.body, option=orjson.OPT_SERIALIZE_NUMPY)
        url = self._urls.get(call.path)
        if url is None:
            import yarl

            url = self._urls[call.path] = yarl.URL(joined(self._endpoint.base_url, call.path))

        async def take(response: aiohttp.ClientResponse) -> tuple[Answer, int | None]:
            length = response.content_length
            # Unknown in chunks; of a compressed answer it says little.
            nbytes = self._mean_nbytes if length is None or "Content-Encoding" in response.headers else length
            if is_large := nbytes >= LARGE_NBYTES:
                await self._wait_for_room(nbytes)
                self._room.begin_receiving(nbytes)
            try:
                raw = await self.content(response)
                self._mean_nbytes += (len(raw) - self._mean_nbytes) // 4
                observer.failed()  # unless the body holds an answer
                body = self._body(raw)
                counts_tokens = self._limiter is not None and self._limiter.counts_tokens
                usage = usage_in(body) if counts_tokens else None
                return self.understood(body, read), None if usage is None else usage.input + usage.output
            finally:
                if is_large:
                    self._room.end_receiving(nbytes)

        return self._exchange("POST", url, data, take, rank, tokens=call.tokens, observer=observer)

    async def retry(
        self,
        attempt: Attempt[Answer],
        is_safe: bool = True,
        on_retry: Callable[[], None] = lambda: None,
        *,
        tokens: float = math.inf,
        rank: Rank = "first",
    ) -> Answer:
        """Repeat a request until it succeeds, ``max_retries`` is reached, or its error is final.

        ``attempt`` is called with its rank: the limiter sends retries before other requests. A refusal because of a
        rate limit (429), an overloaded server, and a lost connection to a server that answered before, do not count as
        retries: the request is repeated for ``MAX_WAIT_S``, and then the provider counts as unusable. A request that
        is not ``is_safe`` to send twice is repeated only after a 429. ``tokens`` is its size, if it may be a probe.

        A suspect of a crash waits for its turn. When it is alone suspected, a probe shows whether the server works.
        """
        began = delay_s = 0.0
        failed: FailedAttempts | None = None
        turn: Turn | None = None  # of a suspect
        self._silence.begin(time.monotonic())
        try:
            while True:
                try:
                    answer = await attempt(rank)
                except AnswerTooLargeError:
                    raise
                except (RateLimitedError, ProviderUnavailableError, InvalidAnswerError) as exc:
                    began = max(began or time.monotonic(), self._gate.opened_at_s)  # a pause does not count
                    if not is_safe and not isinstance(exc, RateLimitedError):
                        raise
                    waited_s = time.monotonic() - began
                    failed = failed or FailedAttempts(self.settings.max_retries)
                    tally = Tally() if self._limiter is None else self._limiter.tally
                    verdict = failed.add(exc, tally, waited_s)
                    if (unusable := self._unusable(exc, failed.num_counted, waited_s)) is not None:
                        raise unusable from exc
                    if verdict == "row" or (verdict == "unsure" and (self.check.probe is None or rank == "probe")):
                        raise
                    draw = 1.0 if rank == "probe" else random.random()
                    delay_s = delay_before(max(failed.num_counted, 1), exc, draw, self.settings.first_delay_s)
                    if isinstance(exc, ProviderUnavailableError):
                        if verdict == "unsure":
                            await self._confirm_server_works(exc, tally)
                            failed.forgive(exc)
                        if verdict == "unsure" or exc.num_lost > 1:
                            began = delay_s = 0.0
                    self._silence.failed(exc)
                    on_retry()
                    log.debug("asking %s again in %.1f s: %s", self._model, delay_s, exc)
                else:
                    if tokens < self.check.probe_tokens:
                        self.check.probe, self.check.probe_tokens = attempt, tokens
                    return answer
                rank = "retry" if rank == "first" else rank
                if failed.group_size is not None and rank != "probe":
                    turn = turn or Turn(self._crash_search)
                    await turn.take(failed.group_size)
                    rank = "suspect"
                await asyncio.sleep(delay_s)
        finally:
            if turn is not None:
                turn.end()
            self._silence.end()

    async def _confirm_server_works(self, error: ProviderError, tally: Tally) -> None:
        """End the query if the server does not work since ``tally``, when a request failed."""
        limiter = self._limiter
        assert limiter is not None
        await self.check.confirm(
            error, lambda: limiter.tally.has_answered_since(tally), partial(self.retry, rank="probe")
        )

    def _unusable(self, exc: ProviderError, num_failures: int, waited_s: float) -> ProviderUnusableError | None:
        """Return the error that ends the query, if a failure shows that no other call would succeed."""
        max_tries = min(MAX_FIRST_TRIES, self.settings.max_retries + 1)
        if isinstance(exc, _NeverReachedError) and num_failures >= max_tries:
            remedy = self._endpoint.if_unreachable or "Check base_url=, and the network."
            return UnreachableError(f"{exc}. {remedy}")
        if (wait_s := _retry_after_s(exc)) > MAX_WAIT_S:
            return wait_too_long(f"{exc}\n{self.name}", wait_s)
        remedy = f"This has lasted for {duration(waited_s)}. Run again later."
        is_refusal = isinstance(exc, RateLimitedError) or (
            isinstance(exc, ProviderUnavailableError) and exc.is_overload
        )
        if waited_s > MAX_WAIT_S and is_refusal:
            return WaitTooLongError(f"{exc}\n{remedy}")
        if waited_s > MAX_WAIT_S and isinstance(exc, ConnectionLostError):
            return UnreachableError(f"{exc}\n{remedy}")
        return None

    async def _exchange(
        self,
        method: str,
        url: Any,
        data: bytes | None,
        take: Callable[[aiohttp.ClientResponse], Awaitable[tuple[Answer, int | None]]],
        rank: Rank = "first",
        *,
        headers: Mapping[str, str] | None = None,
        tokens: int = 0,
        observer: AttemptObserver = NO_OBSERVER,
    ) -> tuple[Answer, float]:
        """Send one request with a permit of the limiter. Return the answer that ``take`` reads, and the latency.

        ``take`` also returns the number of tokens that the request used, if known.
        """
        if self._session is None:
            self.open()
        assert self._limiter is not None
        assert self._session is not None
        assert self._deadline is not None
        permit = await self._limiter.admit(tokens, rank=rank)
        while not self._gate.is_open or self._crash_search.holds(rank):
            permit.settle("other")
            await self._wait_for_gate(rank)
            permit = await self._limiter.admit(tokens, rank=rank)
        outcome: Outcome = "other"
        received: Mapping[str, str] | None = None
        used_tokens: int | None = None
        started, counter = time.perf_counter(), self._counter
        counter.num_requests = (counter.num_requests or 0) + 1
        number = self._crash_search.sent(rank)
        observer.sent()
        try:
            with self._deadline:
                response = await self._session.client.request(
                    method,
                    url,
                    data=data,
                    headers={**self._headers, **headers} if headers else self._headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                )
                try:
                    received = response.headers
                    if not self._has_answered:
                        _reached.add(self._route)
                        self._has_answered = True
                    if not 200 <= response.status < 300:
                        raw = await _start_of(response, MAX_REFUSAL_NBYTES)
                        observer.failed()
                        raise self._refusal(response.status, raw, received)
                    answer, used_tokens = await take(response)
                except BaseException:
                    response.close()
                    raise
            outcome, latency_s = "ok", time.perf_counter() - started
            counter.count_reply(latency_s)
            return answer, latency_s
        except RateLimitedError:
            outcome = "refused"
            raise
        except ProviderUnavailableError as exc:
            outcome = "refused" if exc.is_overload else "unavailable"
            raise
        except connection_errors() as exc:
            outcome = "late" if is_time_out(exc) else "unavailable"
            lost = self._lost(exc)
            if isinstance(lost, ConnectionLostError | _NeverReachedError):
                observer.failed()
            elif outcome != "late":
                lost.num_lost = await self._crash_search.num_lost(number)
            raise lost from exc
        finally:
            counter.num_requests -= 1
            self._crash_search.settled(rank)
            if received is not None and outcome in ("ok", "other"):
                self._silence.end_silence(time.monotonic())
            permit.settle(outcome, used_tokens=used_tokens, headers=received)

    async def _wait_for_gate(self, rank: Rank) -> None:
        """Wait until neither a pause nor the suspects of a crash hold the call. Meanwhile it waits for no server."""
        self._silence.end()
        try:
            await self._gate.wait()
            if self._crash_search.holds(rank):
                await self._crash_search.wait()
        finally:
            self._silence.begin(time.monotonic())

    async def content(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the body of an answer, decompressed. Stop reading at ``max_response_bytes``."""
        limit, length = self._max_nbytes, response.content_length
        if length is not None and length <= limit and "Content-Encoding" not in response.headers:
            return await response.read()
        content = await _start_of(response, limit)
        if len(content) > limit:
            raise self.too_large()
        return content

    async def _wait_for_room(self, nbytes: int) -> None:
        """Wait until a large answer may be received. The time limit does not count meanwhile."""
        assert self._deadline is not None
        while not self._room.has_place(nbytes):
            with self._deadline.paused():
                await self._room.change()

    def too_large(self) -> AnswerTooLargeError:
        return AnswerTooLargeError(
            f"{self.name} answered with more than max_response_bytes={self._max_nbytes:,} bytes. If the "
            "answer is what you asked for, raise the limit: ps.set_config(max_response_bytes='1GB')."
        )

    def _body(self, raw: bytes) -> dict[str, Any]:
        try:
            body = parse_json(raw)
        except ValueError as exc:
            raise InvalidAnswerError(f"{self.name} answered with malformed JSON: {beginning_of(raw)!r}") from exc
        if not isinstance(body, dict):
            raise InvalidAnswerError(f"{self.name} answered with {type(body).__name__}, not with an object")
        if error := body.get("error"):  # some gateways send errors with status 200
            raise self._refusal(status_meant(error), raw, {})
        return body

    def understood(self, body: Any, read: Callable[[Any], Answer]) -> Answer:
        """Return ``read(body)``. Any exception that it raises means an invalid answer."""
        try:
            return read(body)
        except PenstockError:
            raise
        except Exception as exc:
            raise InvalidAnswerError(
                f"{self.name} answered in an unknown format: {type(exc).__name__}: {hidden(str(exc))}"
            ) from exc

    @property
    def _route(self) -> tuple[str, str | None]:
        return self._endpoint.base_url, self._proxy

    def _refusal(self, status: int, raw: bytes, headers: Mapping[str, str]) -> ProviderError:
        base_url = self._endpoint.base_url
        if 300 <= status < 400:
            return RequestRefusedError(
                f"{self.name}, {status}: {shown(base_url)} redirects requests to "
                f"{shown(headers.get('Location', ''), base_url)}. Redirects are not followed, to keep the key from "
                "other servers. If you trust that server, give its address as base_url=."
            )
        error = error_for_status(status, raw, headers, self.name, shown(base_url))
        if status == 404 and self._endpoint.if_not_found:
            error.args = (f"{error}\n{self._endpoint.if_not_found}",)
        return error

    def _lost(self, exc: BaseException) -> ProviderUnavailableError:
        import aiohttp

        if isinstance(exc, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            if self._route in _reached:
                return ConnectionLostError(f"{self.name} cannot be reached any more: {exc}")
            return _NeverReachedError(f"{self.name} cannot be reached at {shown(self._endpoint.base_url)}: {exc}")
        if is_time_out(exc):
            late = ProviderUnavailableError(f"{self.name} gave no answer within {self.settings.timeout_s:g} s")
            late.is_overload = late.is_time_out = True
            return late
        return ProviderUnavailableError(f"{self.name} closed the connection: {type(exc).__name__}: {exc}")


async def _start_of(response: aiohttp.ClientResponse, nbytes: int) -> bytes:
    """Return the start of a body, decompressed. Stop reading after more than ``nbytes``."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > nbytes:
            break
    return bytes(content)


class _NeverReachedError(ProviderUnavailableError):
    """An address that never answered does not accept connections."""


def delay_before(attempt: int, error: BaseException, draw: float, first_s: float = FIRST_DELAY_S) -> float:
    """Return the seconds to wait before the ``attempt``-th retry (from 1); ``draw`` is a random number in [0, 1).

    After a 429 the limiter delays all requests by itself.

    >>> delay_before(1, ProviderUnavailableError(), 0.0), delay_before(9, ProviderUnavailableError(), 0.0)
    (0.25, 15.0)
    """
    if isinstance(error, RateLimitedError):
        return 0.0
    return max(retry_delay_s(attempt, draw, first_s, MAX_DELAY_S), _retry_after_s(error))


def _retry_after_s(error: BaseException) -> float:
    return (error.retry_after_s or 0.0) if isinstance(error, RateLimitedError | ProviderUnavailableError) else 0.0


def is_time_out(error: BaseException) -> bool:
    """Return whether a request was sent, and not answered in time."""
    import aiohttp

    return isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)


def connection_errors() -> tuple[type[BaseException], ...]:
    import aiohttp

    return aiohttp.ClientError, TimeoutError, OSError


def estimated_tokens(text: str) -> int:
    """Estimate the number of tokens of a text: one for about four bytes of UTF-8.

    >>> estimated_tokens("How many tokens might this be?")
    8
    """
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // 4 + 1

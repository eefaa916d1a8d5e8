"""One client for all remote models of a worker: pooled connections, limits, retries, and errors by their class."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import orjson

from penstock.ai.provider import FIRST_DELAY_S, CallSettings
from penstock.ai.remote.addresses import joined, proxy_for, shown
from penstock.ai.remote.deadlines import Deadlines
from penstock.ai.remote.limits.limiter import Limiter, LimiterKey, Outcome, OutOfPatienceError, come_back, limiter_for
from penstock.ai.remote.limits.pacing import PATIENCE_S
from penstock.ai.remote.refusals import error_for_status, shortened, status_meant
from penstock.ai.remote.wires.wire import ApiCall, Endpoint, count_of, field_or_none
from penstock.cost.accounts import is_sampling
from penstock.cost.budget import Billing, Charge
from penstock.cost.prices import BATCH_SHARE, Price, price_of, unknown_price
from penstock.cost.usage import usage_in
from penstock.errors import (
    InvalidAnswerError,
    PenstockError,
    ProviderError,
    ProviderUnavailableError,
    RateLimitedError,
    RequestRefusedError,
    UnreachableError,
)
from penstock.storage.secret import Secret, hidden

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("penstock.ai")

Answer = TypeVar("Answer")

MAX_DELAY_S = 30.0
CONNECT_TIMEOUT_S = 10.0
STRANGER_TRIES = 3  # at an address that has never answered

_reached: set[tuple[str, str | None]] = set()  # base URLs that have answered this process, by the proxy on the way


class ApiClient:
    """Asks one model of one server. Made anywhere, opened and used on one event loop.

    Where calls are counted, ``billing`` counts them and pays for them.
    """

    is_model = True  # calls take tokens, which cost something
    billing: Billing | None = None

    def __init__(self, endpoint: Endpoint, model: str, settings: CallSettings) -> None:
        self._endpoint = endpoint
        self._model = model
        self._settings = settings
        self._limiter: Limiter | None = None
        self._session: _Session | None = None
        self._headers: Mapping[str, str] = {}
        self._proxy: dict[str, Any] = {}
        self._urls: dict[str, Any] = {}

    def open(self) -> None:
        """Get ready on the running loop."""
        endpoint = self._endpoint
        headers = {"Content-Type": "application/json"}
        headers |= {name: value.reveal() if isinstance(value, Secret) else value for name, value in endpoint.headers}
        if endpoint.key is not None:
            name, form = endpoint.key_header
            headers[name] = form.format(endpoint.key.reveal())
        self._proxy = {}
        if (proxy := proxy_for(endpoint.base_url)) is not None:
            self._proxy["proxy"] = proxy.url
            if proxy.authorization is not None:  # a tunnel is asked for before the request, which says it itself else
                is_tunnel = endpoint.base_url.lower().startswith("https:")
                told = self._proxy.setdefault("proxy_headers", {}) if is_tunnel else headers
                told["Proxy-Authorization"] = proxy.authorization
        self._headers = _Session.as_headers(headers)
        self._limiter = limiter_for(LimiterKey(endpoint.provider, endpoint.base_url, self._model), self._settings.caps)
        if self.is_model:
            is_for_batch = self._settings.batch is not None and is_sampling()
            caps = astuple(self._settings.caps)
            self.billing = Billing.open(endpoint.provider, self._model, self._price, caps, is_for_batch)
        self._session = _Session.shared()  # last, as whoever fails before has nothing to close

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def check_price(self) -> None:
        """Refuse a model whose price nobody knows."""
        if self.is_model and self._price is None:
            raise unknown_price(self._endpoint.provider, self._model)

    @property
    def _price(self) -> Price | None:
        price = self._settings.price or price_of(self._endpoint.provider, self._model)
        if price is None or self._settings.batch is None or is_sampling():
            return price
        return {kind: BATCH_SHARE * dollars for kind, dollars in price.items()}

    async def close(self) -> None:
        session, self._session, self._limiter = self._session, None, None
        if session is not None:
            await session.release()

    async def ask(
        self, call: ApiCall, read: Callable[[Any], Answer], tokens: int = 0, parts: Sequence[int] = ()
    ) -> tuple[Answer, float]:
        """Send a call until it is answered; return what ``read`` makes of the body, and how long the answer took.

        ``tokens`` is what the call is estimated to take of a limit on tokens, and ``parts`` is that of each input where
        it has several. What cannot be mended by asking again, or was asked too often, is raised. To be refused for the
        number of requests (429), or to find nobody at an address that answered before, counts as no retry, but is borne
        for ``PATIENCE_S``: the one says to come back, the other that a server starts again.
        """
        data = orjson.dumps(call.body, option=orjson.OPT_SERIALIZE_NUMPY)
        if self.billing is None:
            return await self._until_answered(lambda: self._ask_once(call.path, data, read, tokens))
        billing = self.billing

        async def pay_once() -> tuple[Answer, float]:
            charge = await billing.reserve(call.body, tokens, parts)
            try:
                return await self._ask_once(call.path, data, read, tokens, charge)
            finally:
                billing.settle(charge)

        return await self._until_answered(pay_once)

    async def _until_answered(self, ask_once: Callable[[], Awaitable[Answer]], is_safe: bool = True) -> Answer:
        """Return what a request gives, made again as often as it may be.

        One that is not ``is_safe`` to be made twice is made again only if it was refused for its number.
        """
        num_failures, began = 0, 0.0
        while True:
            try:
                return await ask_once()
            except OutOfPatienceError:
                raise
            except (RateLimitedError, ProviderUnavailableError, InvalidAnswerError) as exc:
                began = began or time.monotonic()
                if not is_safe and not isinstance(exc, RateLimitedError):
                    raise
                is_free = isinstance(exc, RateLimitedError | _NobodyThereError)
                num_failures += not is_free
                tries = min(STRANGER_TRIES, self._settings.max_retries + 1)
                if isinstance(exc, _StrangerError) and num_failures >= tries:
                    raise UnreachableError(f"{exc}. {self._remedy}") from exc
                wait_s = getattr(exc, "retry_after_s", None) or 0.0
                if wait_s > PATIENCE_S:
                    raise come_back(str(exc) + "\n" + self._name, wait_s) from exc
                if num_failures > self._settings.max_retries or time.monotonic() - began > PATIENCE_S:
                    raise
                delay_s = delay_before(max(num_failures, 1), exc, random.random(), self._settings.first_delay_s)
                log.debug("asking %s again in %.1f s: %s", self._model, delay_s, exc)
            await asyncio.sleep(delay_s)

    async def _ask_once(
        self,
        path: str,
        data: bytes,
        read: Callable[[Mapping[str, Any]], Answer],
        tokens: int,
        charge: Charge | None = None,
    ) -> tuple[Answer, float]:
        assert self._limiter is not None
        assert self._session is not None, "open() was not called"
        permit = await self._limiter.admit(tokens)
        outcome: Outcome = "other"
        headers: Mapping[str, str] | None = None
        used_tokens: int | None = None
        started = time.perf_counter()
        if charge is not None:
            charge.sent()
            charge.max_at_once = self._limiter.state().limit if charge.billing.is_sample else None
        try:
            with self._session.deadlines.within(self._settings.timeout_s):
                response = await self._send(path, data)
                try:
                    raw = await response.read()
                except BaseException:
                    response.close()
                    raise
            headers = response.headers
            self._note_reached()
            if charge is not None:
                charge.failed()  # unless it turns out to be answered
            if not 200 <= response.status < 300:
                raise self._refusal(response.status, raw, headers)
            body = self._body(raw)
            used_tokens = tokens_used(body)
            if charge is not None:
                charge.answered(usage_in(body), time.perf_counter() - started)
            answer = self._understood(body, read)
            outcome = "ok"
            return answer, time.perf_counter() - started
        except RateLimitedError:
            outcome = "refused"
            raise
        except ProviderUnavailableError:
            outcome = "unavailable"
            raise
        except connection_errors() as exc:
            outcome = "unavailable"
            lost = self._lost(exc)
            if charge is not None and isinstance(lost, _NobodyThereError | _StrangerError):
                charge.failed()
            raise lost from exc
        finally:
            permit.settle(outcome, used_tokens=used_tokens, headers=headers)

    async def _send(self, path: str, data: bytes) -> aiohttp.ClientResponse:
        assert self._session is not None
        url = self._urls.get(path)
        if url is None:
            import yarl

            url = self._urls[path] = yarl.URL(joined(self._endpoint.base_url, path))
        return await self._session.client.post(
            url,
            data=data,
            headers=self._headers,
            allow_redirects=False,
            **self._proxy,
        )

    def _body(self, raw: bytes) -> dict[str, Any]:
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as exc:
            raise InvalidAnswerError(f"{self._name} answered with malformed JSON: {shortened(raw)!r}") from exc
        if not isinstance(body, dict):
            raise InvalidAnswerError(f"{self._name} answered with {type(body).__name__}, not with an object")
        if error := body.get("error"):  # some gateways say 200 and mean something else
            raise self._refusal(status_meant(error), raw, {})
        return body

    def _understood(self, body: Any, read: Callable[[Any], Answer]) -> Answer:
        """Return what a body says; whatever a reader stumbles over is the server's fault, and asked for again."""
        try:
            return read(body)
        except PenstockError:
            raise
        except Exception as exc:
            raise InvalidAnswerError(
                f"{self._name} answered in a form that is not understood: {type(exc).__name__}: {hidden(str(exc))}"
            ) from exc

    def _note_reached(self) -> None:
        _reached.add(self._way)

    @property
    def _way(self) -> tuple[str, str | None]:
        return self._endpoint.base_url, self._proxy.get("proxy")

    @property
    def _remedy(self) -> str:
        """What to do where nobody answers."""
        return self._endpoint.if_unreachable or "Check base_url=, and the network."

    @property
    def _name(self) -> str:
        return f"{self._endpoint.provider} ({self._model})"

    def _refusal(self, status: int, raw: bytes, headers: Mapping[str, str]) -> ProviderError:
        base_url = self._endpoint.base_url
        if 300 <= status < 400:
            return RequestRefusedError(
                f"{self._name}, {status}: {shown(base_url)} sends requests on to "
                f"{shown(headers.get('Location', ''), base_url)}. Keys are not handed on: if you trust that server, "
                "give its address as base_url=."
            )
        return error_for_status(status, raw, headers, self._name, shown(base_url))

    def _lost(self, exc: BaseException) -> ProviderError:
        import aiohttp

        if isinstance(exc, TimeoutError):
            return ProviderUnavailableError(f"{self._name} gave no answer within {self._settings.timeout_s:g} s")
        if isinstance(exc, aiohttp.ClientConnectorError):
            if self._way in _reached:
                return _NobodyThereError(f"{self._name} cannot be reached any more: {exc}")
            return _StrangerError(f"{self._name} cannot be reached at {shown(self._endpoint.base_url)}: {exc}")
        return ProviderUnavailableError(f"{self._name} broke off: {type(exc).__name__}: {exc}")


class _NobodyThereError(ProviderUnavailableError):
    """A server that answered before does not take connections."""


class _StrangerError(ProviderUnavailableError):
    """Nobody takes connections at an address that never answered."""


class _Session:
    """The connections of one event loop, shared by all clients on it; closed by the last."""

    _by_loop: ClassVar[dict[asyncio.AbstractEventLoop, _Session]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import aiohttp

        self._loop = loop
        self._num_users = 0
        self.deadlines = Deadlines()
        self.client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,  # it would put what .netrc says in the place of the key; proxies are ours to find
        )

    @classmethod
    def shared(cls) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in cls._by_loop:
            cls._by_loop[loop] = cls(loop)
        session = cls._by_loop[loop]
        session._num_users += 1
        return session

    @staticmethod
    def as_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers in the form that the client would make of them for every request."""
        import multidict

        return multidict.CIMultiDictProxy(multidict.CIMultiDict(headers))

    async def release(self) -> None:
        self._num_users -= 1
        if not self._num_users:
            del self._by_loop[self._loop]
            self.deadlines.close()
            await self.client.close()


def delay_before(attempt: int, error: BaseException, draw: float, first_s: float = FIRST_DELAY_S) -> float:
    """Return the seconds to wait before asking again for the ``attempt``-th time (from 1); ``draw`` is in [0, 1).

    After a 429 the limiter holds everybody back by itself.

    >>> delay_before(1, ProviderUnavailableError(), 0.0), delay_before(9, ProviderUnavailableError(), 0.0)
    (0.25, 15.0)
    """
    if isinstance(error, RateLimitedError):
        return 0.0
    full: float = min(first_s * 2 ** (attempt - 1), MAX_DELAY_S)
    asked: float = getattr(error, "retry_after_s", None) or 0.0
    return max(full * (0.5 + draw / 2), asked)


def tokens_used(body: Any) -> int | None:
    """Return the tokens that a call took, as any of the usual bodies tells."""
    usage = field_or_none(body, "usage") or field_or_none(body, "usageMetadata")
    for name in ("total_tokens", "totalTokenCount"):
        if (total := count_of(usage, name)) is not None:
            return total
    parts = [count_of(usage, name) for name in ("input_tokens", "output_tokens")]
    return sum(part or 0 for part in parts) if any(part is not None for part in parts) else None


def connection_errors() -> tuple[type[BaseException], ...]:
    import aiohttp

    return aiohttp.ClientError, TimeoutError, OSError


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: a token is some four letters, or one sign of other scripts.

    >>> estimated_tokens("How many tokens might this be?")
    8
    """
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // 4 + 1

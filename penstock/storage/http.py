"""Files on web servers, over one pool of connections.

We follow redirects ourselves, to check each hop, and check an address when we connect to it, so that a name cannot
point elsewhere between the check and the use.
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import ipaddress
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError, ReadError, StoreUnavailableError
from penstock.storage.access import ANYTHING, Access
from penstock.storage.backoff import retry_delay_s
from penstock.storage.download_limits import DownloadLimits
from penstock.storage.event_loop import at_end, wait_for
from penstock.storage.remote_file import ANY_VERSION, RangeFile, ReadRanges, Version, buffered
from penstock.storage.storage_options import check_known, scrubbed
from penstock.storage.urls import redacted

if TYPE_CHECKING:
    import aiohttp

MAX_REDIRECTS = 10
CONNECT_S = 10.0
READ_S = 60.0  # between two parts of an answer
CHUNK_NBYTES = 256 * 1024
MAX_RETRIES = 4
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0

log = logging.getLogger("penstock.storage")

Result = TypeVar("Result")

_REDIRECTS = (301, 302, 303, 307, 308)
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class HttpClient:
    """A pool of connections for the coroutines of one loop. Close it on that loop."""

    def __init__(self, access: Access = ANYTHING, headers: Mapping[str, str] | None = None) -> None:
        self._access = access
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str, limits: DownloadLimits) -> bytes:
        """Return the whole content; retry if the server fails or closes the connection."""
        return await with_retries(lambda: self._fetch(url, limits))

    async def read_range(self, url: str, start: int, end: int, known: Version = ANY_VERSION) -> tuple[bytes, Version]:
        """Return a range of the content and its version, which must not differ from ``known``."""
        return await with_retries(functools.partial(self._read_range, url, start, end, known))

    async def info(self, url: str) -> tuple[Version, bool]:
        """Return the version of a file, and whether the server serves ranges."""

        async def ask() -> tuple[Version, bool]:
            async with self._response(url, {"Range": "bytes=0-0"}, (416,)) as response:
                total = response.headers.get("Content-Range", "").rpartition("/")[2]
                if response.status in (206, 416) and total.isdecimal():
                    return Version.of_headers(response.headers, int(total)), True
                length = response.headers.get("Content-Length")
                return Version.of_headers(response.headers, None if length is None else int(length)), False

        return await with_retries(ask)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _fetch(self, url: str, limits: DownloadLimits) -> bytes:
        async with self._response(url, {}) as response:
            length = response.content_length
            async with limits.admitted(length, redacted(url)) as grow:
                if length is not None and "Content-Encoding" not in response.headers:
                    return await response.read()
                content = bytearray()
                async for chunk in response.content.iter_chunked(CHUNK_NBYTES):
                    content += chunk
                    grow(len(content))
                return bytes(content)

    async def _read_range(self, url: str, start: int, end: int, known: Version) -> tuple[bytes, Version]:
        async with self._response(url, {"Range": f"bytes={start}-{end - 1}"}, (416,)) as response:
            content = await response.read()
        answered = response.headers.get("Content-Range", "")
        total = answered.rpartition("/")[2]
        size = len(content) if response.status == 200 else int(total) if total.isdecimal() else None
        known = known.checked(Version.of_headers(response.headers, size), redacted(url))
        if response.status == 200:  # the server ignores the range and sends the whole file
            content = content[start:end]
        elif not answered.startswith(f"bytes {start}-{end - 1}/"):
            content = b""
        if len(content) != end - start:
            raise StoreUnavailableError(
                f"Cannot read {redacted(url)!r}: asked for bytes {start} to {end - 1}, the server answers "
                f"{response.status} with {answered or 'no range'!r}."
            )
        return content, known

    @asynccontextmanager
    async def _response(
        self, url: str, headers: Mapping[str, str], accepted: tuple[int, ...] = ()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, follow redirects, and yield the answer if its status is a success or one of ``accepted``."""
        import aiohttp

        session = self._opened()
        target, wanted = _next_url(url, "", url), {**self._headers, **headers}
        try:
            for _ in range(MAX_REDIRECTS + 1):
                self._check(target, url)
                async with session.get(target, headers=wanted, allow_redirects=False) as response:
                    location = response.headers.get("Location")
                    if response.status not in _REDIRECTS or location is None:
                        _check_status(response, url, accepted)
                        yield response
                        return
                    onward = _next_url(url, target, location)
                    if not _is_same_server(target, onward):
                        wanted = dict(headers)  # a token is for one server only
                    target = onward
            raise ReadError(f"Cannot read {redacted(url)!r}: more than {MAX_REDIRECTS} redirects.")
        except PenstockError:
            raise
        except aiohttp.InvalidURL:
            raise _not_a_url(url, target) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            forbidden = _cause(exc)
            if forbidden is not None:
                raise forbidden from None
            reason = scrubbed(str(exc), ()) or ("timed out" if isinstance(exc, TimeoutError) else type(exc).__name__)
            if type(exc) is aiohttp.ClientConnectorError and exc.errno and exc.errno > 0:
                reason = f"the server cannot be reached: {os.strerror(exc.errno)}"
            raise StoreUnavailableError(f"Cannot read {redacted(url)!r}: {reason}") from None

    def _check(self, target: str, url: str) -> None:
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ReadError(
                f"Cannot read {redacted(url)!r}: it redirects to {redacted(target)!r}, which is not a web address."
            )
        self._access.check(target)
        with suppress(ValueError):  # a name, which the resolver checks
            self._access.check_address(str(ipaddress.ip_address(parts.hostname)), url)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, resolver=_checking_resolver(self._access)),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S),
                headers={"User-Agent": "penstock", "Accept-Encoding": "identity"},
                auto_decompress=True,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _next_url(url: str, target: str, location: str) -> str:
    """Return the target of a redirect from ``target``; ``url`` is the first one."""
    try:
        return urlsplit(urljoin(target, location))._replace(fragment="").geturl()
    except ValueError:  # such as brackets without an IPv6 address in them
        raise _not_a_url(url, location) from None


def _not_a_url(url: str, target: str) -> ReadError:
    leads = "" if target == url else f" redirects to {redacted(target)!r}, which"
    return ReadError(f"Cannot read {redacted(url)!r}: it{leads} is not a valid URL.")


def _is_same_server(url: str, onward: str) -> bool:
    """Return whether a redirect stays on the server and does not drop TLS.

    >>> _is_same_server("http://a.com/x", "https://a.com/y"), _is_same_server("https://a.com/x", "http://a.com/x")
    (True, False)
    """
    here, there = urlsplit(url), urlsplit(onward)
    return here.netloc.lower() == there.netloc.lower() and not (here.scheme == "https" and there.scheme != "https")


def headers_of(options: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Return the headers for web servers; refuse options that no store has."""
    check_known(options)
    headers = (options or {}).get("headers") or {}
    if not isinstance(headers, Mapping):
        raise InvalidArgumentError(f"storage_options: headers takes a dict; got {type(headers).__name__}.")
    return headers


def _checking_resolver(access: Access) -> Any:
    import aiohttp

    class CheckingResolver(aiohttp.ThreadedResolver):
        """Refuses forbidden addresses."""

        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
            found = await super().resolve(host, port, family)
            for entry in found:
                access.check_address(entry["host"], host)
            return found

    return CheckingResolver()


def _cause(exc: BaseException | None) -> PenstockError | None:
    """Return our error that the client wrapped in its own."""
    while exc is not None:
        if isinstance(exc, PenstockError):
            return exc
        exc = exc.__cause__ or exc.__context__
    return None


def _check_status(response: aiohttp.ClientResponse, url: str, accepted: tuple[int, ...]) -> None:
    status = response.status
    if status < 300 or status in accepted:
        return
    shown = redacted(url)
    if status in (404, 410):
        raise PathNotFoundError(f"File {shown!r} does not exist: the server answers {status}.")
    message = f"Cannot read {shown!r}: the server answers {status} {response.reason or ''}".rstrip()
    if status in _TRANSIENT:
        raise StoreUnavailableError(message, retry_after_s(response.headers.get("Retry-After"), time.time()))
    raise ReadError(message)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which is a number or a date.

    >>> retry_after_s("3", 0.0), retry_after_s("Thu, 01 Jan 1970 00:00:05 GMT", 2.0), retry_after_s("soon", 0.0)
    (3.0, 3.0, None)
    """
    if header is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - now)
    return None


async def with_retries(call: Callable[[], Awaitable[Result]], max_retries: int = MAX_RETRIES) -> Result:
    """Return the result of ``call``; retry after StoreUnavailableError, with growing delays or the server's own."""
    attempt = 0
    while True:
        try:
            return await call()
        except StoreUnavailableError as exc:
            attempt += 1
            if attempt > max_retries:
                raise
            asked = exc.retry_after_s
            drawn = retry_delay_s(attempt, random.random(), FIRST_DELAY_S, MAX_DELAY_S)
            wait_s = drawn if asked is None else min(asked, MAX_DELAY_S)
            log.debug("retry %d of %d in %.1f s: %s", attempt, max_retries, wait_s, exc)
        await asyncio.sleep(wait_s)


class HttpStore:
    """Web servers for blocking code; a key is a whole URL."""

    def __init__(self, access: Access = ANYTHING, options: Mapping[str, Any] | None = None) -> None:
        self._client = HttpClient(access, headers_of(options))
        self._max_bytes = access.max_bytes
        at_end(self._client.close)

    def size(self, key: str) -> int:
        size = self.version(key).size
        assert size is not None
        return size

    def version(self, key: str) -> Version:
        """Return the version of a file, always with its size."""
        version, _ = wait_for(self._client.info(key))
        return version if version.size is not None else replace(version, size=len(self.read(key)))

    def read(self, key: str) -> bytes:
        return wait_for(self._client.fetch(key, DownloadLimits(max_bytes=self._max_bytes)))

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        size, read_ranges = self._range_reader(key)
        return buffered(size, read_ranges, buffer_size)

    def open_ranges(self, key: str) -> RangeFile:
        return RangeFile(*self._range_reader(key))

    def _range_reader(self, key: str) -> tuple[int, ReadRanges]:
        """Return a file's size, and a function that reads ranges of the same version of it."""
        version, can_seek = wait_for(self._client.info(key))
        if version.size is None or not can_seek:
            content = self.read(key)
            return len(content), lambda ranges: [content[start:end] for start, end in ranges]
        known = Version(version.size)

        def read_ranges(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            nonlocal known
            found = []
            for start, end in ranges:
                part, known = wait_for(self._client.read_range(key, start, end, known))
                found.append(part)
            return found

        return version.size, read_ranges

"""The client of batch APIs: it asks by any method, sends forms, and reads long files line by line."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from penstock.ai.remote.addresses import joined, shown
from penstock.ai.remote.http import ApiClient, connection_errors, delay_before
from penstock.ai.remote.limits.limiter import Outcome
from penstock.ai.remote.refusals import error_for_status
from penstock.errors import InvalidAnswerError, ProviderError, ProviderUnavailableError, RateLimitedError

if TYPE_CHECKING:
    import aiohttp

Taken = TypeVar("Taken")


class BatchClient(ApiClient):
    """Manages batches at one server. Its requests pass the limiter of the model, as those of prompts do."""

    async def json(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] | None = None, is_safe: bool = True
    ) -> dict[str, Any]:
        """Send a request and return the object it is answered with.

        What fails is sent again, unless that is not ``is_safe``: to create something twice is not.
        """
        data = None if body is None else orjson.dumps(body)
        return await self.send(method, path, data, query=query, is_safe=is_safe)

    async def send(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        content_type: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        is_safe: bool = True,
    ) -> dict[str, Any]:
        """Send bytes as they are, else as ``json``."""

        async def read(response: aiohttp.ClientResponse) -> dict[str, Any]:
            return self._body(await response.read())

        def once() -> Awaitable[dict[str, Any]]:
            return self._exchanged(method, path, data, content_type, query, read)

        return await self._until_answered(once, is_safe)

    async def upload(self, path: str, fields: Mapping[str, str], name: str, content: bytes) -> dict[str, Any]:
        """Send a file as browsers send forms."""
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
        return await self.send("POST", path, data, f"multipart/form-data; boundary={boundary}")

    async def read_lines(self, path: str, take: Callable[[dict[str, Any]], None]) -> None:
        """Give each line of a file, an object, to ``take``; lines may be given twice, as a broken read begins anew."""

        async def read(response: aiohttp.ClientResponse) -> None:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take_line(line, take)
            self._take_line(rest, take)

        await self._until_answered(lambda: self._exchanged("GET", path, None, None, None, read))

    def error_of(self, status: int, body: Any) -> ProviderError:
        """Return what an error means that came in a file of results."""
        return error_for_status(status, orjson.dumps(body), {}, self.name, shown(self._endpoint.base_url))

    async def pause(self, num_failures: int, error: ProviderError) -> None:
        """Wait before something is tried again, ever longer."""
        await asyncio.sleep(delay_before(num_failures, error, random.random(), self._settings.first_delay_s))

    @property
    def name(self) -> str:
        return self._name

    @property
    def max_retries(self) -> int:
        return self._settings.max_retries

    def _take_line(self, line: bytes, take: Callable[[dict[str, Any]], None]) -> None:
        if not line.strip():
            return
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as exc:
            raise InvalidAnswerError(f"{self.name}: a file of results has a line that is no JSON") from exc
        if isinstance(value, dict):
            take(value)

    async def _exchanged(
        self,
        method: str,
        path: str,
        data: bytes | None,
        content_type: str | None,
        query: Mapping[str, str] | None,
        read: Callable[[aiohttp.ClientResponse], Awaitable[Taken]],
    ) -> Taken:
        """Send one request and return what ``read`` makes of its answer."""
        import yarl

        assert self._limiter is not None
        assert self._session is not None, "open() was not called"
        url = yarl.URL(joined(self._endpoint.base_url, path)).update_query(query or {})
        headers = {**self._headers, "Content-Type": content_type} if content_type else self._headers
        permit = await self._limiter.admit()
        outcome: Outcome = "other"
        seen: Mapping[str, str] | None = None
        try:
            with self._session.deadlines.within(self._settings.timeout_s):
                response = await self._session.client.request(
                    method, url, data=data, headers=headers, allow_redirects=False, **self._proxy
                )
                try:
                    seen = response.headers
                    self._note_reached()
                    if not 200 <= response.status < 300:
                        raise self._refusal(response.status, await response.read(), seen)
                    taken = await read(response)
                except BaseException:
                    response.close()
                    raise
            outcome = "ok"
            return taken
        except RateLimitedError:
            outcome = "refused"
            raise
        except ProviderUnavailableError:
            outcome = "unavailable"
            raise
        except connection_errors() as exc:
            outcome = "unavailable"
            raise self._lost(exc) from exc
        finally:
            permit.settle(outcome, headers=seen)

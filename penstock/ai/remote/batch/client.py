"""The client of batch APIs: any HTTP method, file uploads, and results read line by line."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from penstock.ai.remote.addresses import joined, shown
from penstock.ai.remote.http import ApiClient, delay_before
from penstock.ai.remote.refusals import error_for_status
from penstock.ai.remote.wires.wire import field_of
from penstock.errors import InvalidAnswerError, ProviderError

if TYPE_CHECKING:
    import aiohttp

MAX_PAGES = 20


class BatchClient(ApiClient):
    """Manages batches on one server. Its requests need permits of the model's limiter, as prompts do."""

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
        async def take(response: aiohttp.ClientResponse) -> tuple[dict[str, Any], None]:
            return self._body(await response.read()), None

        url = self._url(path, query)
        body, _ = await self.retry(lambda: self._exchange(method, url, data, take, headers=headers), is_safe)
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

    async def read_lines(self, path: str, take_line: Callable[[dict[str, Any]], None]) -> None:
        """Call ``take_line`` with each line of a file, a JSON object. After a lost connection it starts over."""

        async def take(response: aiohttp.ClientResponse) -> tuple[None, None]:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take_line(line, take_line)
            self._take_line(rest, take_line)
            return None, None

        url = self._url(path)
        await self.retry(lambda: self._exchange("GET", url, None, take))

    def error_of(self, status: int, body: Any) -> ProviderError:
        """Return the error for a status and body in a file of results."""
        return error_for_status(status, orjson.dumps(body), {}, self.name, shown(self._endpoint.base_url))

    async def pause(self, num_failures: int, error: ProviderError) -> None:
        """Wait before a retry, longer each time."""
        await asyncio.sleep(delay_before(num_failures, error, random.random(), self.settings.first_delay_s))

    def _url(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        import yarl

        return yarl.URL(joined(self._endpoint.base_url, path)).update_query(query or {})

    def _take_line(self, line: bytes, take: Callable[[dict[str, Any]], None]) -> None:
        if not line.strip():
            return
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as exc:
            raise InvalidAnswerError(f"{self.name}: a line of a file of results is not JSON") from exc
        if isinstance(value, dict):
            take(value)

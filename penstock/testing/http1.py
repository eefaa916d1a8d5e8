"""HTTP/1.1 as far as a server of JSON needs it: requests out of bytes, answers into bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote

MOST_HEAD = 64 * 1024
REASONS = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}


class ProtocolError(Exception):
    """The bytes are no HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Head:
    """``headers`` have lower-case names; ``path`` is without the query."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int  # of the body; -1 where it comes in chunks

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


@dataclass(slots=True)
class HttpRequest:
    head: Head
    body: bytes


# The requests of one client differ by their length alone, so few heads are parsed.
@lru_cache(maxsize=4096)
def parse_head(data: bytes) -> Head:
    try:
        first, *lines = data.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = -1 if chunked else int(headers.get("content-length", 0))
    except ValueError as exc:
        raise ProtocolError(f"Not a request: {data[:100]!r}") from exc
    path, _, query = target.partition("?")
    return Head(method, unquote(path), query, headers, length)


class RequestParser:
    """Cuts what a connection receives into requests, however the bytes arrive."""

    def __init__(self) -> None:
        self._data = b""
        self._more: list[bytes] = []  # of a long body, not put together before it is complete
        self._num_more = 0
        self._head: Head | None = None
        self._told_to_continue = False

    def feed(self, data: bytes) -> None:
        if self._head is not None and len(self._data) + self._num_more + len(data) < self._head.length:
            self._more.append(data)
            self._num_more += len(data)
        elif self._data or self._more:
            self._data = b"".join((self._data, *self._more, data))
            self._more, self._num_more = [], 0
        else:
            self._data = data

    def next_request(self) -> HttpRequest | None:
        """Return the next complete request, or None until there are more bytes."""
        if self._head is None and not self._read_head():
            return None
        head = self._head
        assert head is not None
        if head.length < 0:
            taken = dechunked(self._data)
        else:
            taken = (self._data[: head.length], head.length) if len(self._data) >= head.length else None
        if taken is None:
            return None
        body, num_used = taken
        self._data = self._data[num_used:]
        self._head = None
        self._told_to_continue = False
        return HttpRequest(head, body)

    def must_continue(self) -> bool:
        """Whether the client waits to be told to send the body; True once for a request."""
        if self._head is None or self._told_to_continue or "expect" not in self._head.headers:
            return False
        self._told_to_continue = True
        return True

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > MOST_HEAD:
                raise ProtocolError("The head of a request is too long.")
            return False
        self._head = parse_head(self._data[:end])
        self._data = self._data[end + 4 :]
        return True


def dechunked(data: bytes) -> tuple[bytes, int] | None:
    """Return a body that was sent in chunks and how many bytes it took, or None while it is incomplete.

    >>> dechunked(b"3\\r\\nabc\\r\\n2\\r\\nde\\r\\n0\\r\\n\\r\\nGET")
    (b'abcde', 20)
    """
    chunks: list[bytes] = []
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        try:
            size = int(data[at:end].split(b";")[0], 16)
        except ValueError as exc:
            raise ProtocolError(f"Not the size of a chunk: {data[at:end][:40]!r}") from exc
        at = end + 2 + size + 2
        if len(data) < at:
            return None
        if not size:
            return b"".join(chunks), at
        chunks.append(data[end + 2 : end + 2 + size])
    return None


def response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of an answer."""
    head = f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\ncontent-length: {len(body)}\r\n"
    for name, value in headers.items():
        head += f"{name}: {value}\r\n"
    return f"{head}\r\n".encode("latin-1") + body

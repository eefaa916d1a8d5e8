"""A small HTTP/1.1 server for JSON APIs whose connections can break on purpose, and the log of its requests.

aiohttp.web takes three times the CPU time for a request (100 instead of 34 microseconds), which benchmarks would see.
A body needs a Content-Length; requests on one connection are answered one after the other.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Literal, cast
from urllib.parse import unquote

import orjson

HOST = "127.0.0.1"
MAX_HEAD_NBYTES = 64 * 1024
RESET_AFTER_S = 0.02  # the bytes written before a reset need this time to leave
REASONS = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}

Transfer = Literal["whole", "hang", "reset", "reset mid-body", "truncated", "outage"]


class InvalidHttpError(Exception):
    """The bytes are not an HTTP/1.1 request."""


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str  # unquoted, without the query
    headers: Mapping[str, str]  # names in lower case
    body: bytes


@dataclass(slots=True)
class HttpReply:
    """An answer, the delay before it, and the part of it that the client receives."""

    status: int
    body: bytes
    headers: dict[str, str]
    delay_s: float = 0.0
    transfer: Transfer = "whole"
    outage_s: float = 0.0

    def encode(self) -> bytes:
        head = f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Unknown')}\r\ncontent-length: {len(self.body)}\r\n"
        for name, value in self.headers.items():
            head += f"{name}: {value}\r\n"
        return f"{head}\r\n".encode("latin-1") + self.body


@lru_cache(maxsize=4096)  # requests of one client differ in the Content-Length only
def parse_head(data: bytes) -> tuple[str, str, Mapping[str, str], int]:
    """Return the method, the path, the headers, and the number of bytes of the body."""
    try:
        first, *lines = data.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        body_nbytes = int(headers.get("content-length", 0))
    except ValueError as exc:
        raise InvalidHttpError(f"Not an HTTP request: {data[:100]!r}") from exc
    if "transfer-encoding" in headers:
        raise InvalidHttpError("This server needs a Content-Length instead of a Transfer-Encoding.")
    return method, unquote(target.partition("?")[0]), headers, body_nbytes


@dataclass(slots=True)
class SeenRequest:
    """One request. ``status`` is None until it is answered, and 0 if it ended without an answer."""

    number: int  # from 1, by arrival
    method: str
    path: str
    headers: Mapping[str, str]
    raw_body: bytes
    arrived: float  # time.time()
    in_flight: int  # requests in progress at its arrival, itself included
    status: int | None = None
    ended: float | None = None

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.raw_body)

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["body"] = fields.pop("raw_body").decode(errors="replace")
        return fields


@dataclass(slots=True)
class Counts:
    """``completed``: status 2xx. ``refused``: 429. ``failed``: other statuses. ``dropped``: no complete answer."""

    requests: int = 0
    completed: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    connections: int = 0
    max_connections: int = 0


class RequestLog:
    """Count all requests and keep the latest ones."""

    def __init__(self, keep_requests: int) -> None:
        self.counts = Counts()
        self.requests: deque[SeenRequest] = deque(maxlen=keep_requests)

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> SeenRequest:
        counts = self.counts
        counts.requests += 1
        counts.in_flight += 1
        if counts.in_flight > counts.max_in_flight:
            counts.max_in_flight = counts.in_flight
        seen = SeenRequest(counts.requests, method, path, headers, body, time.time(), counts.in_flight)
        self.requests.append(seen)
        return seen

    def end(self, seen: SeenRequest, status: int) -> None:
        seen.status, seen.ended = status, time.time()
        counts = self.counts
        counts.in_flight -= 1
        if 200 <= status < 300:
            counts.completed += 1
        elif status == 429:
            counts.refused += 1
        elif status:
            counts.failed += 1
        else:
            counts.dropped += 1

    def connected(self) -> None:
        self.counts.connections += 1
        self.counts.max_connections = max(self.counts.max_connections, self.counts.connections)

    def disconnected(self) -> None:
        self.counts.connections -= 1

    def clear(self) -> None:
        """Remove the requests and start the counts at zero, except for requests in progress and open connections."""
        self.requests.clear()
        in_flight, connections = self.counts.in_flight, self.counts.connections
        self.counts = Counts(
            in_flight=in_flight, max_in_flight=in_flight, connections=connections, max_connections=connections
        )


class HttpServer(ABC):
    """Listen on loopback. Every method is called on the event loop."""

    def __init__(self, log: RequestLog, port: int) -> None:
        self.log, self.port = log, port
        self.connections: set[HttpConnection] = set()
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self._port_holder: socket.socket | None = None  # keeps the port while nothing listens there

    @abstractmethod
    def handle(self, request: HttpRequest) -> tuple[SeenRequest | None, HttpReply]:
        """Return the reply and, unless the request stays out of the log, its entry there."""

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        if self._listener is None:
            self._listener = await self._loop.create_server(
                lambda: HttpConnection(self, self._loop), HOST, self.port, backlog=4096
            )
            self.port = self._listener.sockets[0].getsockname()[1]
            self._release_port()

    def die(self) -> None:
        """Reset all connections and accept no more, like a killed server.

        The port stays taken, or a client that tries to connect to it may get it as its own.
        """
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._port_holder = socket.socket()
            self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._port_holder.bind((HOST, self.port))
        for connection in list(self.connections):
            connection.reset()

    def close(self) -> None:
        """End for good."""
        self.die()
        self._release_port()

    def _release_port(self) -> None:
        if self._port_holder is not None:
            self._port_holder.close()
            self._port_holder = None

    def die_for(self, seconds: float) -> None:
        self.die()
        self._loop.call_later(seconds, lambda: self._loop.create_task(self.listen()))


class HttpConnection(asyncio.Protocol):
    """One connection. A request waits until the one before it is answered."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self._received = bytearray()
        self._is_busy = False
        self._seen: SeenRequest | None = None  # the request in progress
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass
        self._server.connections.add(self)
        self._server.log.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.log.disconnected()
        self._end(0)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._is_busy:
            self._start_next()

    def eof_received(self) -> bool:
        return False  # a client that stops sending expects no answer

    def reset(self) -> None:
        """Close so that the client gets an error instead of an end of file."""
        self._end(0)
        sock = self._transport.get_extra_info("socket")
        if sock is not None and not self._transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _start_next(self) -> None:
        try:
            request = self._next_request()
        except InvalidHttpError as error:
            self._transport.write(HttpReply(400, str(error).encode(), {"connection": "close"}).encode())
            self._transport.close()
            return
        if request is None:
            return
        self._is_busy = True
        self._seen, reply = self._server.handle(request)
        keep_alive = request.headers.get("connection", "").lower() != "close"
        if reply.transfer == "hang":
            return
        if reply.delay_s > 0:
            self._timer = self._loop.call_later(reply.delay_s, self._send, reply, keep_alive)
        else:
            self._send(reply, keep_alive)

    def _next_request(self) -> HttpRequest | None:
        """Remove the first request from the received bytes; return None while it is incomplete."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > MAX_HEAD_NBYTES:
                raise InvalidHttpError("The head of the request is too long.")
            return None
        method, path, headers, body_nbytes = parse_head(bytes(self._received[:end]))
        start, stop = end + 4, end + 4 + body_nbytes
        if len(self._received) < stop:
            return None
        body = bytes(self._received[start:stop])
        del self._received[:stop]
        return HttpRequest(method, path, headers, body)

    def _send(self, reply: HttpReply, keep_alive: bool) -> None:
        if reply.transfer != "whole":
            self._break_off(reply)
            return
        if self._transport.is_closing():
            return
        self._transport.write(reply.encode())
        self._end(reply.status)
        self._is_busy = False
        if keep_alive:
            self._start_next()
        else:
            self._transport.close()

    def _break_off(self, reply: HttpReply) -> None:
        """End the connection before the answer, or in the middle of its body."""
        self._end(0)
        match reply.transfer:
            case "reset":
                self.reset()
            case "outage":
                self._server.die_for(reply.outage_s)
            case transfer:
                whole = reply.encode()
                self._transport.write(whole[: len(whole) - len(reply.body) // 2 - 1])
                if transfer == "truncated":
                    self._transport.close()
                else:
                    self._timer = self._loop.call_later(RESET_AFTER_S, self.reset)

    def _end(self, status: int) -> None:
        """Log the end of the request in progress and stop its timer."""
        if self._seen is not None:
            self._server.log.end(self._seen, status)
            self._seen = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

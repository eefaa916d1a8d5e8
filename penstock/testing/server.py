"""The server: connections on a loop, each with one request at a time, answered by the service."""

from __future__ import annotations

import asyncio
import importlib
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, cast

import orjson

from penstock.errors import InvalidArgumentError
from penstock.testing.http1 import HttpRequest, ProtocolError, RequestParser, response
from penstock.testing.notation import changed_script
from penstock.testing.recording import Recording, SeenRequest
from penstock.testing.script import Script
from penstock.testing.service import Reply, Service

HOST = "127.0.0.1"
CONTROL = "/_penstock/"
RESET_AFTER_S = 0.02  # so that what was written before leaves first


class Server:
    """Listens on loopback. All of its methods are called on its event loop."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self.port = port
        self.recording = Recording(script.keep_requests)
        self.service = Service(script, self._loop.call_later, lambda path: f"http://{HOST}:{self.port}{path}")
        self.connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self) -> int:
        """Take connections, on the same port as before if there was one. Returns the port."""
        if self._listener is None:
            self._listener = await self._loop.create_server(
                lambda: Connection(self, self._loop), HOST, self.port, backlog=4096
            )
            self.port = self._listener.sockets[0].getsockname()[1]
        return self.port

    async def die(self) -> None:
        """Reset all connections and take no more, as when a server is killed."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.reset()

    def fail_for(self, seconds: float) -> None:
        """Die, and come back after so many seconds."""
        self._loop.create_task(self._fail_for(seconds))

    async def _fail_for(self, seconds: float) -> None:
        await self.die()
        await asyncio.sleep(seconds)
        await self.listen()

    async def command(self, verb: str, argument: Any = None) -> Any:
        """Do what the handle of the server asks for."""
        match verb:
            case "requests":
                return list(self.recording.requests)
            case "counts":
                return self.recording.counts
            case "clear":
                self.recording.clear()
            case "follow":
                self.service.follow(argument)
            case "die":
                await self.die()
            case "listen":
                await self.listen()
            case _:
                raise ValueError(f"unknown command {verb!r}")
        return None

    def control(self, request: HttpRequest) -> Reply:
        """Answer requests about the server itself, for those who started it from a command line."""
        try:
            match request.head.method, request.head.path.removeprefix(CONTROL):
                case "GET", "counts":
                    body: Any = self.recording.counts
                case "GET", "requests":
                    body = [_shown(seen) for seen in self.recording.requests]
                case "POST", "clear":
                    self.recording.clear()
                    body = None
                case "POST", "script":
                    self.service.follow(changed_script(self.service.script, orjson.loads(request.body)))
                    body = None
                case _:
                    return Reply(404, b"{}", {})
        except (InvalidArgumentError, orjson.JSONDecodeError) as error:
            return Reply(400, orjson.dumps({"error": str(error)}), {})
        return Reply(200, orjson.dumps(body), {"content-type": "application/json"})


class Connection(asyncio.Protocol):
    """One connection. Requests that arrive before the one ahead of them is answered wait their turn."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._parser = RequestParser()
        self._seen: SeenRequest | None = None  # the request that is under way
        self._is_busy = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._server.connections.add(self)
        self._server.recording.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.recording.disconnected()
        self._end(0)
        self._cancel_timer()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if not self._is_busy:
            self._next()

    def eof_received(self) -> bool:
        return False  # who stops sending wants no answer

    def reset(self) -> None:
        """Close at once, such that the other end gets an error rather than an end."""
        self._end(0)
        self._cancel_timer()
        sock = self._transport.get_extra_info("socket")
        if sock is not None and not self._transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _next(self) -> None:
        """Begin the next request that is complete."""
        try:
            request = self._parser.next_request()
        except ProtocolError as error:
            self._transport.write(response(400, str(error).encode(), {"connection": "close"}))
            self._transport.close()
            return
        if request is None:
            if self._parser.must_continue():
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self._is_busy = True
        if request.head.path.startswith(CONTROL):
            self._finish(self._server.control(request), request.head.keeps_alive)
            return
        recording = self._server.recording
        self._seen = recording.begin(request)
        reply = self._server.service.respond(request, recording.counts.in_flight)
        if reply.manner == "hang":
            return
        if reply.delay > 0:
            self._timer = self._loop.call_later(reply.delay, self._finish, reply, request.head.keeps_alive)
        else:
            self._finish(reply, request.head.keeps_alive)

    def _finish(self, reply: Reply, keeps_alive: bool) -> None:
        if reply.manner != "whole":
            self._break_off(reply)
            return
        if self._transport.is_closing():
            return
        self._transport.write(response(reply.status, reply.body, reply.headers))
        self._end(reply.status)
        self._is_busy = False
        if keeps_alive:
            self._next()
        else:
            self._transport.close()

    def _break_off(self, reply: Reply) -> None:
        """End the connection instead of the answer, or in the midst of it."""
        if reply.manner in ("reset mid-body", "truncated"):
            whole = response(reply.status, reply.body, reply.headers)
            self._transport.write(whole[: len(whole) - len(reply.body) // 2 - 1])
        self._end(0)
        match reply.manner:
            case "reset":
                self.reset()
            case "reset mid-body":
                self._timer = self._loop.call_later(RESET_AFTER_S, self.reset)
            case "truncated":
                self._transport.close()
            case "outage":
                self._server.fail_for(reply.outage_s)

    def _end(self, status: int) -> None:
        """Record what became of the request under way, if there is one."""
        if self._seen is not None:
            self._server.recording.end(self._seen, status)
            self._seen = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _shown(seen: SeenRequest) -> dict[str, Any]:
    shown = {
        name: getattr(seen, name) for name in ("number", "method", "path", "arrived", "in_flight", "status", "ended")
    }
    return shown | {"headers": dict(seen.headers), "body": seen.raw_body.decode(errors="replace")}


def run_on_quickest_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function on uvloop where it is installed, else on asyncio's own loop."""
    try:
        new_loop = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())

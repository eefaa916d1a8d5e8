"""Run the server of a ``ModelServer`` on a thread of this process, or in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import orjson

from penstock.testing.http_server import HOST, HttpReply, HttpRequest, HttpServer, RequestLog, SeenRequest
from penstock.testing.script import Script
from penstock.testing.service import ModelService

CONTROL = "/_penstock/"
COMMAND_TIMEOUT_S = 60.0
# The server needs the path of this process: the answer function may come from a module that only it finds.
START = "import sys; sys.path[:] = sys.argv[2:]; from penstock.testing.server_runner import serve; serve(sys.argv[1])"


class ScriptedServer(HttpServer):
    """Answer model requests by a script. Every method is called on the event loop."""

    def __init__(self, script: Script, port: int) -> None:
        super().__init__(RequestLog(script.keep_requests), port)
        self._service = ModelService(script, lambda path: f"http://{HOST}:{self.port}{path}")

    async def command(self, verb: str, argument: Any = None) -> Any:
        """Run a command of the ``ModelServer`` handle."""
        match verb:
            case "requests":
                return list(self.log.requests)
            case "counts":
                return self.log.counts
            case "clear":
                self.log.clear()
            case "follow":
                self._service.follow(argument)
            case "die":
                self.die()
            case "listen":
                await self.listen()
        return None

    def handle(self, request: HttpRequest) -> tuple[SeenRequest | None, HttpReply]:
        if request.path.startswith(CONTROL):
            return None, self._control(request.path.removeprefix(CONTROL))
        seen = self.log.begin(request.method, request.path, request.headers, request.body)
        return seen, self._service.respond(request, seen.in_flight)

    def _control(self, what: str) -> HttpReply:
        """Answer another process that asks for the log, or to start again."""
        body: Any = None
        match what:
            case "counts":
                body = self.log.counts
            case "requests":
                body = [seen.as_json() for seen in self.log.requests]
            case "restart":
                self.log.clear()
                self._service.follow(self._service.script)
            case _:
                return HttpReply(404, b"{}", {})
        return HttpReply(200, orjson.dumps(body), {"content-type": "application/json"})


class ServerThread:
    """A server with its event loop on a thread. Any thread may call the methods."""

    def __init__(self, script: Script, port: int) -> None:
        self._started: Future[ScriptedServer] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(script, port), name="penstock-model-server", daemon=True
        )
        self._thread.start()
        self._server = self._started.result()
        self.port = self._server.port

    def command(self, verb: str, argument: Any = None) -> Any:
        return asyncio.run_coroutine_threadsafe(self._server.command(verb, argument), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, script: Script, port: int) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(script, port))
        except OSError as error:
            self._started.set_exception(error)

    async def _serve(self, script: Script, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = ScriptedServer(script, port)
        await server.listen()
        self._started.set_result(server)
        await self._stopping.wait()
        server.close()


class ServerProcess:
    """A server in a process that ends with this one: it stops when the socket between them closes."""

    def __init__(self, script: Script, port: int) -> None:
        ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(fd), *sys.path],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C goes to the test, which stops the server
            )
        self._connection = Connection(ours.detach())
        try:
            self.port = int(self.command("start", (script, port)))
        except BaseException:
            self.close()
            raise

    def command(self, verb: str, argument: Any = None) -> Any:
        with self._lock:
            _send(self._connection, (verb, argument))
            if not self._connection.poll(COMMAND_TIMEOUT_S):
                raise TimeoutError(f"The model server did not answer {verb!r} within {COMMAND_TIMEOUT_S:g} s.")
            try:
                is_error, result = _receive(self._connection)
            except EOFError as exc:
                raise RuntimeError(f"The model server ended with exit code {self._process.wait()}.") from exc
        if is_error:
            raise result
        return result

    def close(self) -> None:
        self._connection.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(fd: str) -> None:
    """Run the commands of a ``ServerProcess`` until its socket closes."""
    collect_garbage_rarely()
    connection = Connection(int(fd))
    _, (script, port) = _receive(connection)
    try:
        server = ServerThread(script, port)
    except OSError as error:
        _send(connection, (True, error))
        return
    _send(connection, (False, server.port))
    try:
        while True:
            verb, argument = _receive(connection)
            try:
                result = (False, server.command(verb, argument))
            except Exception as error:
                result = (True, error)
            _send(connection, result)
    except (EOFError, OSError):
        server.close()


def collect_garbage_rarely() -> None:
    """Keep the garbage collector from scanning the request log again and again."""
    gc.set_threshold(100_000, 50, 100)


def _send(connection: Connection, message: Any) -> None:
    connection.send_bytes(cloudpickle.dumps(message))


def _receive(connection: Connection) -> Any:
    return cloudpickle.loads(connection.recv_bytes())

"""Run a server on a thread of this process, or in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from penstock.engine.pools.asyncio import fast_loop
from penstock.testing.script import Script
from penstock.testing.scripted_server import ScriptedServer

COMMAND_TIMEOUT_S = 60.0
# The server needs the path of this process: the answer function may come from a module that only it finds.
START = "import sys; sys.path[:] = sys.argv[2:]; from penstock.testing.server_runner import serve; serve(sys.argv[1])"


class ServerThread:
    """A server with its event loop on a thread. Any thread may call the methods."""

    def __init__(self, script: Script, port: int) -> None:
        self._is_ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(script, port), name="penstock-model-server", daemon=True
        )
        self._thread.start()
        self._is_ready.wait()
        if self._error is not None:
            raise self._error
        self.port = self._server.port

    def command(self, verb: str, argument: Any = None) -> Any:
        return asyncio.run_coroutine_threadsafe(self._server.command(verb, argument), self._loop).result()

    def join(self) -> None:
        self._thread.join()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, script: Script, port: int) -> None:
        try:
            with asyncio.Runner(loop_factory=fast_loop) as runner:
                runner.run(self._serve(script, port))
        except OSError as error:
            self._error = error
            self._is_ready.set()

    async def _serve(self, script: Script, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._server = ScriptedServer(script, port)
        await self._server.listen()
        self._is_ready.set()
        await self._stopping.wait()
        await self._server.command("die")


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
    """Save the collector from looking through the request log again and again."""
    gc.set_threshold(100_000, 50, 100)


def _send(connection: Connection, message: Any) -> None:
    connection.send_bytes(cloudpickle.dumps(message))


def _receive(connection: Connection) -> Any:
    return cloudpickle.loads(connection.recv_bytes())

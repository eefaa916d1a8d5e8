"""SGLang's engine in a child process, and the messages between it and this process.

SGLang ends its process when one of its parts dies, and kills all children of its process when it shuts down. So it runs
in a process that has nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from penstock.errors import RequestRefusedError, WorkerDiedError

START = """
import sys
sys.path[:] = sys.argv[2:]
from penstock.ai.local.serving.sglang_process import main
main(int(sys.argv[1]))
"""


class SglangProcess:
    """The parent's end. Used on one event loop."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(theirs.fileno()), *sys.path],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C is for this process, and SGLang's processes are killed together
            )
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._death: WorkerDiedError | None = None

    async def start(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Load the model and return the default sampling parameters that it comes with."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self._reading = asyncio.create_task(self._read(reader))
        return await self.call("start", arguments)

    async def call(self, key: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return SGLang's answer to a request. Cancelling the call aborts the request."""
        if self._death is not None:
            raise self._death
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        _send(self._writer, (key, arguments))
        try:
            return await answer
        except asyncio.CancelledError:
            _send(self._writer, (key, None))
            raise
        finally:
            del self._answers[key]

    async def close(self) -> None:
        """Kill SGLang's processes, as it does itself, and wait until they have ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself
                os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        if self._reading is None:
            self._socket.close()
        else:
            await self._reading  # ends with the process
            self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                key, answer, error = await _receive(reader)
                if (future := self._answers.get(key)) is not None and not future.done():
                    future.set_exception(RequestRefusedError(error)) if error else future.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await asyncio.to_thread(self._process.wait)
            self._death = WorkerDiedError(f"SGLang's process ended with exit code {code}. Its log above says more.")
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(self._death)


def _send(writer: asyncio.StreamWriter, message: Any) -> None:
    body = pickle.dumps(message)
    writer.write(len(body).to_bytes(8, "big") + body)


async def _receive(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(8), "big")
    return pickle.loads(await reader.readexactly(size))


# --- in the child -----------------------------------------------------------------------------------------------------


def main(fd: int) -> None:
    """Answer the requests of the parent until it dies or kills this process."""
    asyncio.run(_serve(socket.socket(fileno=fd)))


async def _serve(sock: socket.socket) -> None:
    import sglang

    reader, writer = await asyncio.open_connection(sock=sock)
    key, arguments = await _receive(reader)
    try:
        engine = sglang.Engine(**arguments)  # in the main thread: its processes end with the thread that started them
    except Exception as exc:
        _send(writer, (key, None, f"{type(exc).__name__}: {exc}"))
        await writer.drain()
        return
    _send(writer, (key, engine.tokenizer_manager.model_config.get_default_sampling_params(), None))
    calls: set[asyncio.Task[None]] = set()
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            key, arguments = await _receive(reader)
            if arguments is None:
                engine.tokenizer_manager.abort_request(key)
            else:
                calls.add(call := asyncio.create_task(_answer(engine, writer, key, arguments)))
                call.add_done_callback(calls.discard)
    engine.shutdown()  # the parent has died


async def _answer(engine: Any, writer: asyncio.StreamWriter, key: str, arguments: Mapping[str, Any]) -> None:
    try:
        answer = await engine.async_generate(rid=key, **arguments)
        _send(writer, (key, answer, None))
    except Exception as exc:
        _send(writer, (key, None, f"SGLang refuses the request: {exc}"))

"""A server with the loop it runs on, to be told what to do from another thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from penstock.testing.script import Script
from penstock.testing.server import Server, run_on_quickest_loop


class Serving:
    """``run`` blocks until ``stop``; the other methods may be called from any thread."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self._script, self._port = script, port
        self._is_ready = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            run_on_quickest_loop(self._serve)
        except BaseException as error:
            self._error = error
            self._is_ready.set()
            if not isinstance(error, OSError):
                raise

    def wait_for_port(self) -> int:
        """Return the port once it listens, or raise why it cannot."""
        self._is_ready.wait()
        if self._error is not None:
            raise self._error
        return self._server.port

    def command(self, verb: str, argument: Any = None) -> Any:
        return asyncio.run_coroutine_threadsafe(self._server.command(verb, argument), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._server = Server(self._script, self._port)
        await self._server.listen()
        self._is_ready.set()
        await self._stopping.wait()
        await self._server.die()

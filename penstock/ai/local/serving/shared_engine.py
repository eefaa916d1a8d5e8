"""One engine for all steps and queries of this process that name the same model, on an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.ai.local.serving.engine import EngineSpec
from penstock.ai.local.serving.feed import Feed

_lock = threading.Lock()
_open: dict[EngineSpec, SharedEngine] = {}


class SharedEngine:
    """An engine that starts with its first user and ends with its last. Its first user sets ``max_in_flight``."""

    def __init__(self, spec: EngineSpec, max_in_flight: int) -> None:
        self._spec = spec
        self._num_users = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-engine", daemon=True)
        self._thread.start()
        opening = asyncio.run_coroutine_threadsafe(self._open_feed(max_in_flight), self._loop)
        self._feed = opening.result()

    @staticmethod
    def acquire(spec: EngineSpec, max_in_flight: int) -> SharedEngine:
        """Return the engine of a spec, which may still be starting. The caller must release it."""
        with _lock:
            if (engine := _open.get(spec)) is None:
                engine = _open[spec] = SharedEngine(spec, max_in_flight)
            engine._num_users += 1
            return engine

    def release(self) -> None:
        """End the use. The last user waits until the device is free."""
        with _lock:  # a new engine for the same device starts after this
            self._num_users -= 1
            if not self._num_users:
                del _open[self._spec]
                self._close()

    async def generate(self, request: Request, options: Mapping[str, Any], key: str = "") -> list[Generation]:
        """Return the answers to a request, on any event loop. Cancelling the call aborts the request."""
        answers = self._feed.generate(request, options, key)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answers, self._loop))

    async def _open_feed(self, max_in_flight: int) -> Feed:
        return Feed(self._spec.make, self._spec.num_replicas, max_in_flight)

    async def _wind_up(self) -> None:
        await self._feed.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]  # of the engine itself
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    def _close(self) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

"""One engine for all steps and queries of this process that name the same model, on an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.ai.local.serving.engine import EngineSpec
from penstock.ai.local.serving.feed import Feed
from penstock.events.loop_thread import LoopThread

_lock = threading.Lock()
_open: dict[EngineSpec, SharedEngine] = {}


class SharedEngine:
    """An engine that starts with its first user and ends with its last. Its first user sets ``max_in_flight``."""

    def __init__(self, spec: EngineSpec, max_in_flight: int) -> None:
        self._spec = spec
        self._num_users = 0
        self._thread = LoopThread("penstock-engine")
        self._feed: Feed = self._thread.start(self._open_feed(max_in_flight)).result()

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
        answers: list[Generation] = await asyncio.wrap_future(
            self._thread.start(self._feed.generate(request, options, key))
        )
        return answers

    async def _open_feed(self, max_in_flight: int) -> Feed:
        return Feed(self._spec.make, self._spec.num_replicas, max_in_flight)

    def _close(self) -> None:
        try:
            self._thread.start(self._feed.close()).result()
        finally:
            self._thread.close()  # with the tasks of the engine itself

"""The connections of an event loop, which all clients of models on it share."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import ClassVar

from penstock.ai.client.crash_search import CrashSearch
from penstock.ai.client.silent_server import CHECK_EVERY_S, Silence

log = logging.getLogger("penstock.ai")


class SharedConnections:
    """The connections of one event loop. All clients on the loop share them, and the last one closes them."""

    _by_loop: ClassVar[dict[asyncio.AbstractEventLoop, SharedConnections]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import aiohttp

        self._loop = loop
        self._num_users = 0
        self.silences: set[Silence] = set()
        self._crash_searches: dict[str, CrashSearch] = {}
        self._check = loop.call_later(CHECK_EVERY_S, self._log_silences)
        self.connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ttl_dns_cache=300)

    @classmethod
    def shared(cls) -> SharedConnections:
        loop = asyncio.get_running_loop()
        if loop not in cls._by_loop:
            cls._by_loop[loop] = cls(loop)
        connections = cls._by_loop[loop]
        connections._num_users += 1
        return connections

    async def release(self) -> None:
        self._num_users -= 1
        if not self._num_users:
            del self._by_loop[self._loop]
            self._check.cancel()
            await self.connector.close()

    def crash_search(self, base_url: str) -> CrashSearch:
        """Return the search that all clients of a server share, whatever their models."""
        return self._crash_searches.setdefault(base_url, CrashSearch())

    def _log_silences(self) -> None:
        for silence in self.silences:
            if message := silence.message(time.monotonic()):
                log.warning("%s", message)
        self._check = self._loop.call_later(CHECK_EVERY_S, self._log_silences)

"""Limits on downloads: the bytes of each file, and of all files together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.errors import ReadError

UNKNOWN_NBYTES = 2**20  # assumed for a response that does not state its length


class ByteBudget:
    """A semaphore that counts bytes, for the coroutines of one loop; first come, first served.

    More than the whole budget is admitted when nothing else is in progress, so a large file does not wait forever.
    """

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()
        self.in_use = 0

    async def acquire(self, nbytes: int) -> None:
        """Wait until there is room for ``nbytes``."""
        async with self._turn:
            while self.in_use > 0 and self.in_use + nbytes > self._limit:
                self._released.clear()
                await self._released.wait()
            self.in_use += nbytes

    def release(self, nbytes: int) -> None:
        self.in_use -= nbytes
        self._released.set()


@dataclass
class DownloadLimits:
    """The limits of downloads that share a budget; ``max_bytes`` limits each file, None allows any size."""

    budget: ByteBudget = field(default_factory=lambda: ByteBudget(2**62))
    max_bytes: int | None = None

    def check(self, nbytes: int, what: str) -> None:
        if self.max_bytes is not None and nbytes > self.max_bytes:
            raise ReadError(f"Cannot read {what!r}: it has more than max_bytes={self.max_bytes:,} bytes.")

    @asynccontextmanager
    async def admitted(self, nbytes: int | None, what: str) -> AsyncIterator[Callable[[int], None]]:
        """Reserve bytes for a response while it is read; None if its length is unknown.

        Yields a function that reserves the bytes of a longer response without waiting, or refuses it.
        """
        held = UNKNOWN_NBYTES if nbytes is None else nbytes
        self.check(nbytes or 0, what)
        await self.budget.acquire(held)

        def grow(total: int) -> None:
            nonlocal held
            self.check(total, what)
            if total > held:
                self.budget.in_use += total - held
                held = total

        try:
            yield grow
        finally:
            self.budget.release(held)

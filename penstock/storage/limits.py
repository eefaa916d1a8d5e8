"""How much may be under way at once: bytes of all downloads together, and of each one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.errors import ReadError

UNKNOWN_NBYTES = 2**20  # what a response is taken to have that does not say


class ByteBudget:
    """A semaphore that counts bytes, for the coroutines of one loop; first come, first served.

    More than the whole budget is admitted when nothing else is under way, so one large file cannot wait for ever.
    """

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._in_use = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def in_use(self) -> int:
        return self._in_use

    async def acquire(self, nbytes: int) -> None:
        """Wait until there is room for so many bytes."""
        if not self._waiting and self._has_room(nbytes):
            self._in_use += nbytes
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self.release(nbytes)
            else:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not turn)
                self._admit()
            raise

    def take(self, nbytes: int) -> None:
        """Count bytes that came unannounced; others wait the longer for it."""
        self._in_use += nbytes

    def release(self, nbytes: int) -> None:
        self._in_use -= nbytes
        self._admit()

    def _has_room(self, nbytes: int) -> bool:
        return self._in_use <= 0 or self._in_use + nbytes <= self._limit

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            nbytes, turn = self._waiting.popleft()
            if not turn.done():
                self._in_use += nbytes
                turn.set_result(None)


@dataclass
class Limits:
    """The limits of downloads that share a budget; ``max_bytes`` is that of a single file, None for any size."""

    budget: ByteBudget = field(default_factory=lambda: ByteBudget(2**62))
    max_bytes: int | None = None

    def check(self, nbytes: int, what: str) -> None:
        if self.max_bytes is not None and nbytes > self.max_bytes:
            raise ReadError(f"Cannot read {what!r}: it has more than max_bytes={self.max_bytes:,} bytes.")

    @asynccontextmanager
    async def admitted(self, nbytes: int | None, what: str) -> AsyncIterator[None]:
        """Hold room for a response while it is read; None where it does not say how long it is."""
        if nbytes is not None:
            self.check(nbytes, what)
        held = UNKNOWN_NBYTES if nbytes is None else nbytes
        await self.budget.acquire(held)
        try:
            yield
        finally:
            self.budget.release(held)

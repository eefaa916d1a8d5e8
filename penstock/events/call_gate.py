"""The gate of a query's calls: while the query is paused, none starts.

Code that makes calls finds the gate in its context, looks at ``is_open`` before each call, and waits if it is closed. A
worker in another process finds a gate that is always open, and finishes its task. When a query ends by an error or
Ctrl-C, its gate closes for good, and the executor waits for calls whose answers a ledger keeps.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from contextvars import ContextVar

from penstock.events.call_counter import CallCounter


class CallGate:
    """Open or closed. Set from any thread, awaited on any event loop."""

    def __init__(self) -> None:
        self.is_open = True
        self.opened_at_s = 0.0  # after the last pause, by time.monotonic()
        self._is_shut = False
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        self._counters: list[CallCounter] = []

    def set_open(self, is_open: bool) -> None:
        with self._lock:
            is_open = is_open and not self._is_shut
            if is_open and not self.is_open:
                self.opened_at_s = time.monotonic()
            self.is_open = is_open
            released = dict(self._waiting) if is_open else {}
        for future, loop in released.items():
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(_release, future)

    def shut(self) -> None:
        """Close the gate for good."""
        self._is_shut = True
        self.set_open(False)

    def __reduce__(self) -> tuple[type[CallGate], tuple[()]]:
        """Pickle as a gate that is always open, because a gate stays in the process of its query."""
        return CallGate, ()

    async def wait(self) -> None:
        """Wait until the gate is open."""
        while not self.is_open:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            with self._lock:
                if self.is_open:
                    return
                self._waiting[future] = loop
            try:
                await future
            finally:
                with self._lock:
                    del self._waiting[future]

    def count(self, counter: CallCounter) -> None:
        """Add the calls of a counter to ``num_in_flight``."""
        with self._lock:
            self._counters.append(counter)

    @property
    def num_in_flight(self) -> int:
        """The number of calls that have started and not ended."""
        with self._lock:
            return sum(counter.num_in_flight for counter in self._counters)

    @property
    def num_stored_in_flight(self) -> int:
        """The number of calls in flight whose answers a ledger keeps."""
        with self._lock:
            return sum(counter.num_in_flight for counter in self._counters if counter.is_stored)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


ALWAYS_OPEN = CallGate()
_gate: ContextVar[CallGate] = ContextVar("penstock_call_gate", default=ALWAYS_OPEN)


def current_gate() -> CallGate:
    """Return the gate of the calls made here."""
    return _gate.get()


def make_current(gate: CallGate) -> None:
    """Let the calls made in the current context wait at a gate."""
    _gate.set(gate)

"""Timeouts of thousands of requests with one shared timer: a timer for each costs a tenth of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

MAX_TICK_S = 1.0
TICKS_A_LIMIT = 10  # a request is cancelled at most a tenth of its limit too late


class Deadlines:
    """Deadlines of the requests of one event loop. A late request is cancelled and raises TimeoutError."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._tick_s = MAX_TICK_S
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Raise TimeoutError in the body after some seconds. Must not be nested in a task."""
        task = asyncio.current_task()
        assert task is not None
        self._until[task] = self._loop.time() + seconds
        if self._timer is None or seconds / TICKS_A_LIMIT < self._tick_s:
            self._start(min(seconds / TICKS_A_LIMIT, MAX_TICK_S))
        try:
            yield
        except asyncio.CancelledError:
            # If something else cancelled the task too, it stays cancelled.
            if task in self._late and not task.uncancel():
                raise TimeoutError from None
            raise
        finally:
            del self._until[task]
            self._late.discard(task)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, tick_s: float) -> None:
        self.close()
        self._tick_s = tick_s
        self._timer = self._loop.call_later(tick_s, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        for task, until in self._until.items():
            if until <= now and task not in self._late:
                self._late.add(task)
                task.cancel()
        if self._until:
            self._start(self._tick_s)
        else:
            self._tick_s = MAX_TICK_S

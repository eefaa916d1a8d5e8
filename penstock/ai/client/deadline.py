"""The time limit of requests: one timer for thousands of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

MAX_TICK_S = 1.0
TICKS_A_LIMIT = 10  # a request is cancelled at most a tenth of its limit too late


class Deadline:
    """The time limit of the requests of one client. A late request is cancelled and raises TimeoutError.

    ``with deadline:`` limits its body; it must not be nested in a task. Thousands of requests share one timer: a timer
    for each costs a tenth of a request.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._tick_s = min(limit_s / TICKS_A_LIMIT, MAX_TICK_S)
        self._loop = asyncio.get_running_loop()
        self._until: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._until[task] = self._loop.time() + self._limit_s
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_s, self._check)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        del self._until[task]
        if task in self._late:
            self._late.discard(task)
            # If something else cancelled the task too, it stays cancelled.
            if kind is asyncio.CancelledError and not task.uncancel():
                raise TimeoutError from None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time within the block, in which the request does not wait for the server."""
        task = asyncio.current_task()
        assert task is not None
        left_s = self._until[task] - self._loop.time()
        self._until[task] = math.inf
        try:
            yield
        finally:
            self._until[task] = self._loop.time() + max(left_s, 0.0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        for task, until in self._until.items():
            if until <= now and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._timer = self._loop.call_later(self._tick_s, self._check) if self._until else None

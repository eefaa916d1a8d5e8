"""Many calls that wait at once, without a task for each: as many coroutines as may wait, each taking the next call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

CALLS_A_TURN = 32
"""After as many calls a caller lets others run, since calls that never wait would keep the loop to themselves."""


class Calls:
    """Calls that belong together. ``calls`` makes one when it is drawn; ``on_error`` is told which failed and why.

    What ``on_error`` raises ends all of them. If it returns, the result of the call that failed is None.
    """

    def __init__(
        self, calls: Iterator[Awaitable[Any]], num_calls: int, on_error: Callable[[int, BaseException], None]
    ) -> None:
        self.results: list[Any] = [None] * num_calls
        self.error: BaseException | None = None
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.callers: set[asyncio.Task[None]] = set()
        self._calls = calls
        self._numbers = iter(range(num_calls))
        self._on_error = on_error
        self.are_made = num_calls == 0

    async def make(self, caller: asyncio.Task[None]) -> None:
        """Make one call after the other until none is left. Several callers do so at once."""
        self.callers.add(caller)
        try:
            await self._make()
            self.are_made = True
        finally:
            self.callers.discard(caller)
            if self.are_made and not self.callers:
                self._end()

    async def _make(self) -> None:
        results, draw = self.results, self._calls.__next__
        for count, number in enumerate(self._numbers, 1):
            try:
                results[number] = await draw()
            except BaseException as exc:
                if self.is_over.done():
                    raise  # cancelled with the rest
                try:
                    if not isinstance(exc, (Exception, asyncio.CancelledError)):
                        raise  # an interrupt, which is not the row's
                    self._on_error(number, exc)
                except BaseException as error:
                    self.error = error
                    self._end()
            if count % CALLS_A_TURN == 0:
                await asyncio.sleep(0)

    async def stop(self) -> None:
        """Make no further call, end those that wait, and let them clean up after themselves."""
        self._end()
        waiting = list(self.callers)
        for caller in waiting:
            caller.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _end(self) -> None:
        self.are_made = True
        for _ in self._numbers:
            pass
        if not self.is_over.done():
            self.is_over.set_result(None)


class Callers:
    """Up to ``max_concurrency`` coroutines that make calls, those given first first.

    None belongs to a batch: the last calls of one wait beside the first of the next. They end when there is no call to
    make, so nothing has to be closed.
    """

    def __init__(self, max_concurrency: int) -> None:
        self._max_concurrency = max_concurrency
        self._waiting: deque[Calls] = deque()  # those with calls to make are among them
        self._callers: set[asyncio.Task[None]] = set()

    async def run(self, calls: Calls) -> list[Any]:
        """Make the calls when it is their turn and return their results in order."""
        if calls.results:
            self._waiting.append(calls)
            self._start(len(calls.results))
            try:
                await calls.is_over
            finally:
                await calls.stop()
        if calls.error is not None:
            raise calls.error
        return calls.results

    def _start(self, num_callers: int) -> None:
        for _ in range(min(num_callers, self._max_concurrency - len(self._callers))):
            caller = asyncio.create_task(self._serve())
            self._callers.add(caller)
            caller.add_done_callback(self._replace)

    async def _serve(self) -> None:
        caller = asyncio.current_task()
        assert caller is not None
        while not caller.cancelling() and (calls := self._next()) is not None:
            await calls.make(caller)

    def _next(self) -> Calls | None:
        """Return the first calls that are not all made."""
        while self._waiting and (self._waiting[0].are_made or self._waiting[0].is_over.done()):
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _replace(self, ended: asyncio.Task[None]) -> None:
        """Start another caller for one that was cancelled while there are calls to make."""
        self._callers.discard(ended)
        if self._next() is not None:
            self._start(1)

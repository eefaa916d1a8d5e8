"""Many concurrent calls without a task for each: a pool of coroutines that make one call after another."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any

from penstock.engine.call_gate import current_gate
from penstock.observe.call_counter import current_call_counter
from penstock.udf.failures import CALL_FAILURES
from penstock.udf.generators import OnRowError

CALLS_PER_TURN = 256
"""A coroutine yields to others after this many calls, since calls that never wait would block the loop."""


class CallGroup:
    """The calls of one batch. Advancing ``calls`` makes a call.

    ``on_error`` is called with the number of a failed call. It returns a value in place of the result, or raises an
    error that ends all calls of the group. Groups with a lower ``order`` go first.
    """

    def __init__(
        self,
        calls: Iterator[Awaitable[Any]],
        num_calls: int,
        on_error: OnRowError,
        order: int = 0,
    ) -> None:
        self.order = order
        self.next_call = calls.__next__
        self.numbers = iter(range(num_calls))  # of the calls to make
        self.num_unfinished = num_calls
        self.results: list[Any] = [None] * num_calls
        self.error: BaseException | None = None
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_error = on_error
        if not num_calls:
            self.end()

    def fail(self, number: int, exc: BaseException) -> None:
        try:
            if not isinstance(exc, (*CALL_FAILURES, asyncio.CancelledError)):
                raise exc  # an interrupt of the program
            self.results[number] = self._on_error(number, exc)
        except BaseException as error:
            self.error = error
            self.end()

    def end(self) -> None:
        """Prevent further calls."""
        for _ in self.numbers:
            pass
        if not self.is_over.done():
            self.is_over.set_result(None)


class CallerPool:
    """Up to ``max_concurrency`` coroutines that make the calls of all groups, lower orders first.

    The last calls of one group run beside the first ones of the next. The coroutines end when no calls are left.
    """

    def __init__(self, max_concurrency: int) -> None:
        self._max_concurrency = max_concurrency
        self._groups: list[CallGroup] = []  # with calls to make, by order
        self._callers: dict[asyncio.Task[None], CallGroup | None] = {}  # with the group of the current call
        self._counter = current_call_counter()
        self._gate = current_gate()

    async def rest(self, seconds: float = 0.0) -> None:
        """Sleep, and then wait until the query is not paused. Meanwhile no call of this coroutine is under way."""
        self._counter.num_calls -= 1
        try:
            await asyncio.sleep(seconds)
            await self._gate.wait()
        finally:
            self._counter.num_calls += 1

    async def run(self, group: CallGroup) -> list[Any]:
        """Make the calls of a group and return their results in order."""
        bisect.insort(self._groups, group, key=lambda each: each.order)
        self._start(group.num_unfinished)
        try:
            await group.is_over
        finally:
            if group.num_unfinished and not (group.error is not None and self._counter.is_stored):
                await self._stop(group)
        if group.error is not None:
            raise group.error
        return group.results

    async def close(self) -> None:
        """Cancel the calls that a failed group left in flight, because the query may still store their answers."""
        await self._cancel(self._callers)

    async def _stop(self, group: CallGroup) -> None:
        """Cancel the calls of a group and wait for their cleanup."""
        group.end()
        await self._cancel(caller for caller, current in self._callers.items() if current is group)

    @staticmethod
    async def _cancel(callers: Iterable[asyncio.Task[None]]) -> None:
        waiting = list(callers)
        for caller in waiting:
            caller.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _start(self, num_callers: int) -> None:
        for _ in range(min(num_callers, self._max_concurrency - len(self._callers))):
            caller = asyncio.create_task(self._serve())
            self._callers[caller] = None
            self._counter.num_calls += 1
            caller.add_done_callback(self._replace)

    async def _serve(self) -> None:
        """Make calls until none are left. Little code runs between two calls, as this is the fast path."""
        caller = asyncio.current_task()
        assert caller is not None
        num_made, counter, gate = 0, self._counter, self._gate
        while (group := self._next()) is not None and not caller.cancelling():
            self._callers[caller] = group
            next_call, results = group.next_call, group.results
            if not gate.is_open:
                await self.rest()
            for number in group.numbers:
                try:
                    results[number] = await next_call()
                    counter.num_answered += 1
                except BaseException as exc:
                    if group.is_over.done():
                        if caller.cancelling():
                            raise
                        break  # the group has failed already
                    counter.num_failed += 1
                    group.fail(number, exc)
                group.num_unfinished -= 1
                if not group.num_unfinished:
                    group.end()
                num_made += 1
                if not num_made % CALLS_PER_TURN:
                    await asyncio.sleep(0)
                if not gate.is_open:  # before it takes the next number: numbers and calls are drawn in the same order
                    await self.rest()
            if group in self._groups:
                self._groups.remove(group)

    def _next(self) -> CallGroup | None:
        while self._groups and self._groups[0].is_over.done():
            del self._groups[0]
        return self._groups[0] if self._groups else None

    def _replace(self, ended: asyncio.Task[None]) -> None:
        """Start another caller in place of a cancelled one while there are calls to make."""
        del self._callers[ended]
        self._counter.num_calls -= 1
        if self._next() is not None:
            self._start(1)

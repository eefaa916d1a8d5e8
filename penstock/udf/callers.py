"""Many concurrent calls without a task for each: a pool of coroutines that make one call after another."""

from __future__ import annotations

import asyncio
import bisect
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Iterator
from sys import getsizeof
from typing import Any

from penstock.events.call_counter import current_call_counter
from penstock.events.call_gate import current_gate
from penstock.events.call_room import NEWEST, current_room, value_nbytes, wait_for_first
from penstock.events.loop_thread import cancel
from penstock.udf.failures import CALL_FAILURES
from penstock.udf.generators import OnRowError

PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
CALLS_PER_TURN = 256
"""A coroutine yields to others after this many calls, since calls that never wait would block the loop."""


class CallGroup:
    """The calls of one batch. Advancing ``calls`` makes a call.

    ``on_error`` is called with the number of a failed call, in the context in which the group was made: a coroutine
    that another batch started may have made the call. It returns a value in place of the result, or raises an error
    that ends all calls of the group. Groups with a lower ``order`` go first.
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
        self.numbers = iter(range(num_calls))  # the number of the next call
        self.num_calls = self.num_unfinished = num_calls
        self.num_started = 0
        self.results: list[Any] = [None] * num_calls
        self.nbytes: list[int] = [-1] * num_calls  # bytes of each result, -1 until there is one
        self.is_awaited = True  # False while results that were handed on have not left
        self.news = asyncio.Event()
        self._num_leading = self._leading_nbytes = self._nbytes_gone = 0
        self.error: BaseException | None = None
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_error, self._context = on_error, contextvars.copy_context()
        if not num_calls:
            self.end()

    def fail(self, number: int, exc: BaseException) -> None:
        try:
            if not isinstance(exc, (*CALL_FAILURES, asyncio.CancelledError)):
                raise exc  # an interrupt of the program
            self.results[number] = self._context.run(self._on_error, number, exc)
        except BaseException as error:
            self.error = error
            self.end()

    @property
    def num_leading(self) -> int:
        """The number of calls that have ended, together with all calls before them."""
        while self._num_leading < self.num_calls and self.nbytes[self._num_leading] >= 0:
            self._leading_nbytes += self.nbytes[self._num_leading]
            self._num_leading += 1
        return self._num_leading

    @property
    def has_leading(self) -> bool:
        return self.num_leading > 0 and self._leading_nbytes > 0

    @property
    def nbytes_held(self) -> int:
        return sum(self.nbytes) + self.nbytes.count(-1) - self._nbytes_gone

    def take_leading(self) -> int:
        """Release the leading results and return their bytes."""
        nbytes, self._leading_nbytes = self._leading_nbytes, 0
        self._nbytes_gone += nbytes
        return nbytes

    def end(self) -> None:
        """Prevent further calls."""
        for _ in self.numbers:
            pass
        if not self.is_over.done():
            self.is_over.set_result(None)
        self.news.set()


class CallerPool:
    """Up to ``max_concurrency`` coroutines that make the calls of all groups, lower orders first.

    The last calls of one group run beside the first calls of the next group. The coroutines end when no calls are left.
    """

    def __init__(self, max_concurrency: int) -> None:
        self._max_concurrency = max_concurrency
        self._groups: list[CallGroup] = []  # with calls to make, by order
        self._held: list[CallGroup] = []  # whose results have not all left, by order
        self._room = current_room()
        self._callers: dict[asyncio.Task[None], CallGroup | None] = {}  # with the group of the current call
        self._counter = current_call_counter()
        self._gate = current_gate()

    async def rest(self, seconds: float = 0.0) -> None:
        """Sleep, then wait until the query is not paused. Meanwhile this coroutine counts as making no call."""
        self._counter.num_calls -= 1
        try:
            await asyncio.sleep(seconds)
            await self._gate.wait()
        finally:
            self._counter.num_calls += 1

    async def run(self, group: CallGroup) -> list[Any]:
        """Make the calls of a group and return their results in order."""
        self._begin(group)
        try:
            await group.is_over
        finally:
            await self._leave(group)
        if group.error is not None:
            raise group.error
        return group.results

    async def close(self) -> None:
        """Cancel the calls that a failed group left running so that the query could still store their answers."""
        await cancel(self._callers)

    async def leading(self, group: CallGroup) -> AsyncGenerator[tuple[int, list[Any]], None]:
        """Make the calls of a group. Yield how many leading results should leave now, in the end all, and the list of
        all results.
        """
        self._begin(group)
        num_given = 0
        try:
            while not group.is_over.done():
                group.is_awaited = True
                self._room.changed()
                if not (self._room.is_filling and group.has_leading):
                    await group.news.wait()
                group.news.clear()
                if not group.is_over.done() and num_given < group.num_leading:
                    num_given, group.is_awaited = group.num_leading, False
                    self._room.held -= group.take_leading()
                    self._room.changed()
                    yield num_given, group.results
        finally:
            await self._leave(group)
        if group.error is not None:
            raise group.error
        if num_given < group.num_calls or not group.num_calls:
            yield group.num_calls, group.results

    def _begin(self, group: CallGroup) -> None:
        for groups in (self._groups, self._held):
            bisect.insort(groups, group, key=lambda each: each.order)
        self._start(group.num_unfinished)

    async def _leave(self, group: CallGroup) -> None:
        try:
            if group.num_unfinished and not (group.error is not None and self._counter.is_stored):
                await self._stop(group)
        finally:
            self._held.remove(group)
            self._room.held -= group.nbytes_held
            self._room.changed()

    def is_first(self, group: CallGroup, number: int) -> bool:
        """Return whether all other results wait for this call."""
        return group.is_awaited and self._held[:1] == [group] and number == group.num_leading

    async def _stop(self, group: CallGroup) -> None:
        """Cancel the calls of a group and wait for their cleanup."""
        group.end()
        await cancel(caller for caller, current in self._callers.items() if current is group)

    def _start(self, num_callers: int) -> None:
        for _ in range(min(num_callers, self._max_concurrency - len(self._callers))):
            caller = asyncio.create_task(self._serve())
            self._callers[caller] = None
            self._counter.num_calls += 1
            self._room.num_calls += 1
            caller.add_done_callback(self._replace)

    async def _serve(self) -> None:
        """Make calls until none are left. Little code runs between two calls, as this is the fast path."""
        caller = asyncio.current_task()
        assert caller is not None
        num_made, counter, gate, room = 0, self._counter, self._gate, self._room
        group, number = None, 0

        def is_first() -> bool:
            return group is not None and self.is_first(group, number)

        wait_for_first(is_first)
        while (group := self._next()) is not None and not caller.cancelling():
            if room.is_full and not self.is_first(group, group.num_started):
                await self._wait_for_room(caller)
                continue
            self._callers[caller] = group
            next_call, results = group.next_call, group.results
            if not gate.is_open:
                await self.rest()
            for number in group.numbers:
                group.num_started = number + 1
                try:
                    result = results[number] = await next_call()
                    counter.num_answered += 1
                    nbytes = getsizeof(result) if type(result) in PLAIN else value_nbytes(result)
                    del result  # this coroutine may wait long
                except BaseException as exc:
                    if group.is_over.done():
                        if caller.cancelling():
                            raise
                        break  # the group has failed already
                    group.fail(number, exc)
                    counter.num_failed += group.error is None  # an error that ends the query is not the row's
                    nbytes = 0
                if group.error is None:  # else its results are dropped
                    group.nbytes[number] = nbytes
                    room.held += nbytes
                room.answer_nbytes += NEWEST * (nbytes - room.answer_nbytes)
                group.num_unfinished -= 1
                if not group.num_unfinished:
                    group.end()
                num_made += 1
                if not num_made % CALLS_PER_TURN:
                    await asyncio.sleep(0)
                if not gate.is_open:  # before it takes the next number: numbers and calls are drawn in the same order
                    await self.rest()
                if room.held > room.few_nbytes or room.held + room.num_calls * room.answer_nbytes > room.limit:
                    self._make_room()
                    if room.is_full and not self.is_first(group, group.num_started):
                        break
            else:
                if group in self._groups:
                    self._groups.remove(group)

    def _make_room(self) -> None:
        """Let results leave whose groups are not done."""
        for group in self._held:
            if group.is_awaited and group.has_leading:
                group.news.set()
        self._room.changed()

    async def _wait_for_room(self, caller: asyncio.Task[None]) -> None:
        self._callers[caller] = None
        self._counter.num_calls -= 1
        self._room.num_calls -= 1
        try:
            await self._room.change()
        finally:
            self._counter.num_calls += 1
            self._room.num_calls += 1

    def _next(self) -> CallGroup | None:
        while self._groups and self._groups[0].is_over.done():
            del self._groups[0]
        return self._groups[0] if self._groups else None

    def _replace(self, ended: asyncio.Task[None]) -> None:
        """Start another caller in place of a cancelled one while there are calls to make."""
        del self._callers[ended]
        self._counter.num_calls -= 1
        self._room.num_calls -= 1
        if self._next() is not None:
            self._start(1)

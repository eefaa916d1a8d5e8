"""Many calls that wait at once, without a task for each: as many coroutines as may wait, each taking the next call."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.udf.failures import CALL_FAILURES

CALLS_A_TURN = 256
"""After as many calls a caller lets others run, since calls that never wait would keep the loop to themselves."""


class Unfinished(NamedTuple):
    """In place of a result that is not known yet: what was found out of it, and which row it is, if that is known."""

    found: Any
    row_id: bytes | None


class Prepared(Protocol):
    """What knows the results of some rows before they are computed one by one."""

    def results(self, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the result of each row of a task, by its arguments, or Unfinished."""
        ...

    def finish(self, unfinished: Unfinished, *args: Any) -> Awaitable[Any]:
        """Return what gives the result of a row after all."""
        ...


class Calls:
    """Calls that belong together. ``calls`` makes one when it is drawn; ``on_error`` is told which failed and why.

    What ``on_error`` raises ends all of them. If it returns, the result of the call that failed is None. ``order`` says
    which of several are made first.
    """

    def __init__(
        self,
        calls: Iterator[Awaitable[Any]],
        num_calls: int,
        on_error: Callable[[int, BaseException], None],
        order: int = 0,
    ) -> None:
        self.order = order
        self.draw = calls.__next__
        self.numbers = iter(range(num_calls))  # of the calls to make
        self.num_unfinished = num_calls
        self.results: list[Any] = [None] * num_calls
        self.error: BaseException | None = None
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_error = on_error
        if not num_calls:
            self.end()

    def fail(self, number: int, exc: BaseException) -> None:
        """Take note that a call failed."""
        try:
            if not isinstance(exc, (*CALL_FAILURES, asyncio.CancelledError)):
                raise exc  # an interrupt, which is not the call's
            self._on_error(number, exc)
        except BaseException as error:
            self.error = error
            self.end()

    def end(self) -> None:
        """Let no further call be made."""
        for _ in self.numbers:
            pass
        if not self.is_over.done():
            self.is_over.set_result(None)


class Callers:
    """Up to ``max_concurrency`` coroutines that make calls, those of the first rows first, in whatever order they come.

    None belongs to a batch: the last calls of one wait beside the first of the next. They end when there is no call to
    make, so nothing has to be closed.
    """

    def __init__(self, max_concurrency: int) -> None:
        self._max_concurrency = max_concurrency
        self._to_make: list[Calls] = []  # by their order
        self._callers: dict[asyncio.Task[None], Calls | None] = {}  # and what each is at

    async def run(self, calls: Calls) -> list[Any]:
        """Make the calls when it is their turn and return their results in order."""
        bisect.insort(self._to_make, calls, key=lambda each: each.order)
        self._start(calls.num_unfinished)
        try:
            await calls.is_over
        finally:
            if calls.num_unfinished:
                await self._stop(calls)
        if calls.error is not None:
            raise calls.error
        return calls.results

    async def _stop(self, calls: Calls) -> None:
        """End the calls that wait and let them clean up after themselves."""
        calls.end()
        waiting = [caller for caller, at in self._callers.items() if at is calls]
        for caller in waiting:
            caller.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _start(self, num_callers: int) -> None:
        for _ in range(min(num_callers, self._max_concurrency - len(self._callers))):
            caller = asyncio.create_task(self._serve())
            self._callers[caller] = None
            caller.add_done_callback(self._replace)

    async def _serve(self) -> None:
        """Make one call after the other until there are none. As little as possible of ours runs between two calls."""
        caller = asyncio.current_task()
        assert caller is not None
        num_made = 0
        while (calls := self._next()) is not None and not caller.cancelling():
            self._callers[caller] = calls
            draw, results = calls.draw, calls.results
            for number in calls.numbers:
                try:
                    results[number] = await draw()
                except BaseException as exc:
                    if calls.is_over.done():
                        raise  # cancelled with the rest
                    calls.fail(number, exc)
                calls.num_unfinished -= 1
                if not calls.num_unfinished:
                    calls.end()
                num_made += 1
                if not num_made % CALLS_A_TURN:
                    await asyncio.sleep(0)
            if calls in self._to_make:
                self._to_make.remove(calls)

    def _next(self) -> Calls | None:
        while self._to_make and self._to_make[0].is_over.done():
            del self._to_make[0]
        return self._to_make[0] if self._to_make else None

    def _replace(self, ended: asyncio.Task[None]) -> None:
        """Start another caller for one that was cancelled while there are calls to make."""
        del self._callers[ended]
        if self._next() is not None:
            self._start(1)

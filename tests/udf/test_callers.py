"""CallGroup that wait at once: bounded together, in order, and none left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any

import pytest

from penstock.events.call_room import CallRoom, make_room
from penstock.udf.callers import CALLS_PER_TURN, CallerPool, CallGroup


def calls(function: Callable[[Any], Awaitable[Any]], values: Iterable[Any], on_error: Any = None) -> CallGroup:
    def fail(number: int, exc: BaseException) -> None:
        raise exc

    values = list(values)
    return CallGroup(map(function, values), len(values), on_error or fail)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(10):
            result = await work
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # callers end by themselves
        return result

    return asyncio.run(bounded())


def test_a_slow_call_delays_its_own_batch_only_and_all_batches_share_the_bound() -> None:
    num_waiting = most = 0
    others_are_done = asyncio.Event()

    async def call(value: int) -> int:
        nonlocal num_waiting, most
        num_waiting += 1
        most = max(most, num_waiting)
        await (others_are_done.wait() if value == 0 else asyncio.sleep(0))
        num_waiting -= 1
        return value

    async def work() -> None:
        callers = CallerPool(3)
        slow = asyncio.create_task(callers.run(calls(call, range(10))))
        quick = [asyncio.create_task(callers.run(calls(call, range(k, k + 10)))) for k in (10, 20, 30)]
        assert await asyncio.gather(*quick) == [list(range(k, k + 10)) for k in (10, 20, 30)]
        assert not slow.done()
        others_are_done.set()
        assert await slow == list(range(10))

    run(work())
    assert most == 3


def test_no_calls() -> None:
    async def work() -> list[Any]:
        return await CallerPool(2).run(calls(asyncio.sleep, []))

    assert run(work()) == []


def test_a_failure_ends_its_own_calls_and_no_others() -> None:
    cancelled: list[int] = []
    made: list[int] = []

    async def fail_or_wait(value: int) -> None:
        made.append(value)
        if value == 2:
            raise KeyError(value)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cancelled.append(value)
            raise

    async def work() -> None:
        callers = CallerPool(3)
        failing = asyncio.create_task(callers.run(calls(fail_or_wait, range(100))))
        other = asyncio.create_task(callers.run(calls(lambda value: asyncio.sleep(0, value), range(50))))
        with pytest.raises(KeyError):
            await failing
        assert (made, cancelled) == ([0, 1, 2], [0, 1])
        assert await other == list(range(50))

    run(work())


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
def test_a_failure_that_is_tolerated_is_one_missing_result(error: type[BaseException]) -> None:
    failed: list[int] = []

    async def call(value: int) -> int:
        await asyncio.sleep(0)
        if value % 3 == 0:
            raise error
        return value

    async def work() -> list[Any]:
        return await CallerPool(4).run(calls(call, range(10), lambda number, exc: failed.append(number)))

    assert run(work()) == [None, 1, 2, None, 4, 5, None, 7, 8, None]
    assert sorted(failed) == [0, 3, 6, 9]


def test_an_interrupt_is_never_tolerated() -> None:
    async def interrupt(value: int) -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        with pytest.raises(KeyboardInterrupt):
            await CallerPool(2).run(calls(interrupt, range(5), lambda number, exc: None))

    run(work())


def test_calls_that_cancel_their_own_task_lose_nothing() -> None:
    async def call(value: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return value

    async def work() -> None:
        callers = CallerPool(2)
        both = [callers.run(calls(call, range(3), lambda number, exc: None)) for _ in range(3)]
        assert await asyncio.gather(*both) == [[None] * 3] * 3

    run(work())


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_cancelling_a_batch_ends_its_calls(is_stubborn: bool) -> None:
    made: list[int] = []

    async def wait(value: int) -> None:
        made.append(value)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not is_stubborn:
                raise

    async def work() -> None:
        callers = CallerPool(2)
        waiting = asyncio.create_task(callers.run(calls(wait, range(10))))
        other = asyncio.create_task(callers.run(calls(lambda value: asyncio.sleep(0, value), range(3))))
        while len(made) < 2:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert made == [0, 1]
        assert await other == [0, 1, 2]

    run(work())


def test_calls_that_never_wait_let_others_run() -> None:
    num_made = 0

    async def call(value: int) -> None:
        nonlocal num_made
        num_made += 1

    async def work() -> None:
        waiting = asyncio.create_task(CallerPool(1).run(calls(call, range(10 * CALLS_PER_TURN))))
        while not num_made:
            await asyncio.sleep(0)
        assert num_made == CALLS_PER_TURN
        await waiting

    run(work())


def test_calls_of_the_first_rows_are_made_first() -> None:
    async def run() -> list[int]:
        callers, made, gate = CallerPool(1), list[int](), asyncio.Event()

        async def call(number: int) -> None:
            made.append(number)
            await gate.wait()

        def calls(order: int) -> CallGroup:
            return CallGroup((call(order) for _ in range(2)), 2, fail, order)

        running = [asyncio.create_task(callers.run(calls(order))) for order in (5, 9, 7)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.append(asyncio.create_task(callers.run(calls(6))))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*running)
        return made

    def fail(number: int, exc: BaseException) -> None:
        raise exc

    assert asyncio.run(run()) == [5, 5, 6, 6, 7, 7, 9, 9]


def test_large_results_leave_early_and_no_call_starts_beyond_the_room() -> None:
    """The first call is slow, so the results of others fill the room; then all go on, whatever waits for what."""
    room, num_calls, nbytes = CallRoom(10_000), 20, 2_000
    room.answer_nbytes = 0.0
    started, may_end = list[int](), asyncio.Event()

    async def call(value: int) -> bytes:
        started.append(value)
        await (may_end.wait() if value == 0 else asyncio.sleep(0))
        return bytes(nbytes)

    async def all_ends(callers: CallerPool, number: int) -> list[int]:
        group = calls(call, range(number * num_calls, (number + 1) * num_calls))
        group.order = number * num_calls
        return [end async for end, _ in callers.leading(group)]

    async def work() -> list[list[int]]:
        make_room(room)
        callers = CallerPool(4)
        groups = asyncio.gather(*(all_ends(callers, number) for number in range(3)))
        for _ in range(500):
            await asyncio.sleep(0)
            assert room.held <= 10_000 + 4 * nbytes
        assert 4 < len(started) < 12
        may_end.set()
        return await groups

    found = run(work())
    assert started == list(range(3 * num_calls))
    assert all(ends == sorted(set(ends)) and ends[-1] == num_calls and len(ends) > 1 for ends in found)
    assert room.held == room.num_calls == 0


def test_a_cancelled_group_gives_its_room_back() -> None:
    room = CallRoom(1_000)

    async def call(value: int) -> bytes:
        await asyncio.sleep(0)
        return bytes(600)

    async def work() -> list[Any]:
        make_room(room)
        callers = CallerPool(4)
        async with aclosing(callers.leading(calls(call, range(10)))) as ends:
            await anext(ends)  # the reader stops here
        return await callers.run(calls(call, range(10)))

    assert len(run(work())) == 10
    assert room.held == room.num_calls == 0

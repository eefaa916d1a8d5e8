"""Requests that take too long are given up, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from penstock.ai.remote.http import Deadlines


async def wait(deadlines: Deadlines, seconds: float, limit_s: float) -> str:
    try:
        with deadlines.within(limit_s):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "late"
    return "in time"


def test_each_has_its_own_limit() -> None:
    async def run() -> list[str]:
        deadlines = Deadlines()
        return await asyncio.gather(wait(deadlines, 30, 0.05), wait(deadlines, 0.01, 5), wait(deadlines, 30, 0.1))

    assert asyncio.run(run()) == ["late", "in time", "late"]


def test_a_task_goes_on_after_it() -> None:
    async def run() -> list[str]:
        deadlines = Deadlines()
        first = await wait(deadlines, 30, 0.02)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        return [first, await wait(deadlines, 0, 0.02), await wait(deadlines, 30, 0.02)]

    assert asyncio.run(run()) == ["late", "in time", "late"]


def test_cancelled_from_outside_is_cancelled() -> None:
    async def run() -> None:
        deadlines = Deadlines()
        task = asyncio.create_task(wait(deadlines, 30, 5))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_a_short_limit_does_not_wait_for_a_long_one() -> None:
    async def run() -> float:
        deadlines = Deadlines()
        long = asyncio.create_task(wait(deadlines, 0.5, 600))
        await asyncio.sleep(0)
        started = asyncio.get_running_loop().time()
        assert await wait(deadlines, 30, 0.05) == "late"
        took = asyncio.get_running_loop().time() - started
        await long
        return took

    assert asyncio.run(run()) < 0.5


def test_nothing_ticks_when_nothing_waits() -> None:
    async def run() -> None:
        deadlines = Deadlines()
        await wait(deadlines, 0, 0.01)
        await asyncio.sleep(0.05)
        assert deadlines._timer is None

    asyncio.run(run())

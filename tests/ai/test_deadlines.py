"""Requests that take too long are given up, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.ai.client.deadline import Deadline
from tests.ai.scripted_engine import run_virtually


def result(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a virtual clock."""
    found: list[Any] = []

    async def note() -> None:
        found.append(await work)

    run_virtually(note())
    return found[0]


async def wait(deadline: Deadline, seconds: float) -> str:
    try:
        with deadline:
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "late"
    return "in time"


def test_each_request_has_its_own_time() -> None:
    async def run() -> list[str]:
        deadline = Deadline(0.3)
        return await asyncio.gather(wait(deadline, 30), wait(deadline, 0.01), wait(deadline, 30))

    assert result(run()) == ["late", "in time", "late"]


def test_a_task_goes_on_after_it() -> None:
    async def run() -> list[str]:
        deadline = Deadline(0.02)
        first = await wait(deadline, 30)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        return [first, await wait(deadline, 0), await wait(deadline, 30)]

    assert result(run()) == ["late", "in time", "late"]


def test_cancelled_from_outside_is_cancelled() -> None:
    async def run() -> None:
        task = asyncio.create_task(wait(Deadline(5), 30))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    result(run())


def test_nothing_ticks_when_nothing_waits() -> None:
    async def run() -> None:
        deadline = Deadline(0.01)
        await wait(deadline, 0)
        await asyncio.sleep(0.05)
        assert deadline._timer is None

    result(run())

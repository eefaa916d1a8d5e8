"""Rows and batches in an event loop: the same as without one, never blocking it, and gone when the reader goes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError
from tests.runners.test_prefetch import our_threads

READERS: list[Callable[[ps.DataFrame], AsyncGenerator[Any, None]]] = [
    lambda df: df.aiter_rows(),
    lambda df: df.aiter_batches(batch_size=2, batch_format="pylist"),
    lambda df: df.aiter_batches(batch_size=2, batch_format="pylist", prefetch=0),
]
every_reader = pytest.mark.parametrize("read", READERS, ids=["rows", "batches", "without prefetch"])


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert our_threads() == []


@ps.func
async def waiting(number: int) -> int:
    """Return five numbers, then wait forever."""
    if number >= 5:
        await asyncio.Event().wait()
    return number


def test_the_rows_and_batches_are_those_of_the_sync_forms() -> None:
    df = ps.range(5000).with_column("x", ps.col("id") * 2)

    async def read() -> tuple[list[Any], list[Any]]:
        batches = df.aiter_batches(batch_size=300, batch_format="pylist", drop_last=True)
        return [row async for row in df.aiter_rows()], [batch async for batch in batches]

    assert asyncio.run(read()) == (
        list(df.iter_rows()),
        list(df.iter_batches(batch_size=300, batch_format="pylist", drop_last=True)),
    )


@pytest.mark.one_machine
@every_reader
def test_other_tasks_run_while_a_function_blocks_its_thread(read: Any) -> None:
    has_run = threading.Event()
    df = ps.range(3).map(lambda row: {"in_time": has_run.wait(60)}, use_process=False)

    async def set_soon() -> None:
        await asyncio.sleep(0)
        has_run.set()

    async def run() -> Any:
        task = asyncio.create_task(set_soon())
        rows = [row async for row in read(df)]
        await task
        return rows

    assert "False" not in str(asyncio.run(run()))


@every_reader
@pytest.mark.parametrize("how", ["break", "aclose", "cancel"])
def test_leaving_early_ends_the_query(read: Any, how: str) -> None:
    df = ps.range(1000).with_column("x", waiting(ps.col("id")))  # it never ends by itself

    async def read_all(rows: AsyncGenerator[Any, None]) -> None:
        async for _ in rows:
            pass

    async def run() -> None:
        if how == "cancel":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read_all(read(df)), 0.2)
        elif how == "aclose":
            async with contextlib.aclosing(read(ps.range(10**6))) as rows:
                await anext(rows)
        else:
            async for _ in read(ps.range(10**6)):
                break
            await asyncio.sleep(0)  # the loop makes a task that closes the generator
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert len(asyncio.all_tasks()) == 1
        assert our_threads() == []

    asyncio.run(run())


@every_reader
def test_an_error_arrives_in_the_loop(read: Any) -> None:
    df = ps.range(10).map(lambda row: {"x": 1 // (4 - row["id"])})

    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            async for _ in read(df):
                pass

    asyncio.run(run())


def test_several_readers_share_a_loop() -> None:
    async def total(df: ps.DataFrame) -> int:
        return sum([row["id"] async for row in df.aiter_rows()])

    async def run() -> list[int]:
        return await asyncio.gather(*(total(ps.range(number)) for number in range(1, 6)))

    assert asyncio.run(run()) == [0, 1, 3, 6, 10]


def test_a_wrong_option_is_an_error_at_the_call() -> None:
    with pytest.raises(InvalidArgumentError, match="aiter_batches has no option 'size'"):
        ps.range(1).aiter_batches(size=3)  # type: ignore[call-arg]

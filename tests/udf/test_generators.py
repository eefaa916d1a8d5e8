"""Generators are drained a chunk at a time: the first rows of an endless one come at once, and it is closed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.errors import UdfError

CLOSED: list[str] = []


@ps.func(use_process=False)
def count(start: int) -> Iterator[int]:
    try:
        yield from itertools.count(start)
    finally:
        CLOSED.append("count")


@ps.func
async def count_async(start: int) -> AsyncIterator[int]:
    try:
        for number in itertools.count(start):
            await asyncio.sleep(0)
            yield number
    finally:
        CLOSED.append("count_async")


def count_rows(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        for number in itertools.count():
            yield {"n": number}
    finally:
        CLOSED.append("count_rows")


async def count_batches(batch: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    try:
        for number in itertools.count():
            yield {"n": [number]}
    finally:
        CLOSED.append("count_batches")


ENDLESS = {
    "count": lambda df: df.select(count(ps.col("id")).alias("n")),
    "count_async": lambda df: df.select(count_async(ps.col("id")).alias("n")),
    "count_rows": lambda df: df.flat_map(count_rows, use_process=False),
    "count_batches": lambda df: df.map_batches(count_batches, use_process=False),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_the_first_rows_of_an_endless_generator(name: str, runner: str) -> None:
    CLOSED.clear()
    assert ENDLESS[name](ps.range(3)).limit(10).to_pydict() == {"n": list(range(10))}
    assert runner == "ray" or name in CLOSED  # on Ray it is closed in another process


def test_an_async_generator_runs_in_one_asyncio_task() -> None:
    @ps.func
    async def name_tasks(number: int) -> AsyncIterator[str]:
        for _ in range(1000):  # several chunks
            await asyncio.sleep(0)
            yield f"{number} {id(asyncio.current_task())}"

    names = ps.range(3).into_batches(1).select(name_tasks(ps.col("id")).alias("n")).to_pydict()["n"]
    assert [name.split()[0] for name in names] == [str(row) for row in range(3) for _ in range(1000)]
    assert all(len(set(names[row * 1000 : (row + 1) * 1000])) == 1 for row in range(3))


@pytest.mark.parametrize("is_async", [False, True])
def test_rows_that_came_before_an_error_have_gone_on(is_async: bool) -> None:
    def fail_late(number: int) -> Iterator[int]:
        yield from range(100_000)
        raise ValueError("late")

    async def fail_late_async(number: int) -> AsyncIterator[int]:
        for value in range(100_000):
            yield value
        raise ValueError("late")

    function = ps.func(fail_late_async if is_async else fail_late, return_dtype=ps.DataType.int64())
    rows = ps.range(2).select("id", function(ps.col("id")).alias("n")).iter_rows()
    assert next(rows) == {"id": 0, "n": 0}
    with pytest.raises(UdfError, match=r"failed on row [01] of the input \(id=[01]\): ValueError: late"):
        list(rows)
    tolerant = ps.func(fail_late, return_dtype=ps.DataType.int64(), on_error="ignore")
    assert ps.range(2).select(tolerant(ps.col("id")).alias("n")).to_pydict() == {"n": [None, None]}


@pytest.mark.one_machine
def test_async_generators_of_many_rows_run_at_the_same_time() -> None:
    num_open = most_open = 0

    @ps.func(max_concurrency=5)
    async def meet(number: int) -> AsyncIterator[int]:
        nonlocal num_open, most_open
        num_open += 1
        most_open = max(most_open, num_open)
        for value in range(3):
            await asyncio.sleep(0.001)
            yield number * 10 + value
        num_open -= 1

    df = ps.range(20).select(meet(ps.col("id")).alias("n"))
    assert df.to_pydict()["n"] == [row * 10 + value for row in range(20) for value in range(3)]
    assert most_open == 5


def stop_at_29(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row] if row["id"] % 30 != 29 else [next(iter([]))]


async def stop_at_29_async(row: dict[str, Any]) -> list[dict[str, Any]]:
    return stop_at_29(row)


@ps.func(use_process=False)
def numbers_from(start: int) -> Iterator[int]:
    return iter([start if start % 30 != 29 else next(iter([]))])


@ps.func(use_process=False)
def generated_from(start: int) -> Iterator[int]:
    yield start if start % 30 != 29 else next(iter([]))


STOPPING = {
    "flat_map": lambda df, **options: df.flat_map(stop_at_29, use_process=False, **options),
    "async flat_map": lambda df, **options: df.flat_map(stop_at_29_async, **options),
    "map": lambda df, **options: df.map(lambda row: stop_at_29(row)[0], use_process=False, **options),
    "filter": lambda df, **options: df.filter(lambda row: bool(stop_at_29(row)), use_process=False, **options),
}


@pytest.mark.parametrize("name", STOPPING)
def test_a_stop_iteration_is_an_error_of_its_row(name: str) -> None:
    df = ps.range(1000)
    with pytest.raises(UdfError, match=r"row \d+ of the input .*StopIteration"):
        STOPPING[name](df).to_pydict()
    kept = STOPPING[name](df, on_error="ignore")
    assert kept.to_pydict() == {"id": [number for number in range(1000) if number % 30 != 29]}
    assert sorted(kept.errors().to_pydict()["row"]) == list(range(29, 1000, 30))


@pytest.mark.parametrize("function", [numbers_from, generated_from])
def test_a_stop_iteration_of_a_generator_is_an_error_of_its_row(function: Any) -> None:
    with pytest.raises(UdfError, match=r"row \d+ of the input .*StopIteration"):
        ps.range(1000).select(function(ps.col("id"))).to_pydict()

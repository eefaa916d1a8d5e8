"""Results come in input order, whatever the order in which the work is done."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

import penstock as ps
from penstock import col

NUM_ROWS = 400


class OutOfOrder:
    """Makes tasks wait for one that comes after them, so that the later one is always done first."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self._changed = threading.Condition()

    def wait_for(self, other: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: other in self.finished, timeout=60)

    def finish(self, number: int) -> None:
        with self._changed:
            self.finished.append(number)
            self._changed.notify_all()


@pytest.fixture
def turns() -> OutOfOrder:
    return OutOfOrder()


@pytest.mark.one_machine
def test_batches_done_in_pairs_the_wrong_way_round(turns: OutOfOrder) -> None:
    def work(batch: dict[str, Any]) -> dict[str, Any]:
        first = int(batch["id"][0])
        if first % 10 == 0:
            turns.wait_for(first + 5)
        turns.finish(first)
        return batch

    result = ps.range(NUM_ROWS).map_batches(work, batch_size=5, concurrency=4).to_pydict()
    assert turns.finished != sorted(turns.finished)
    assert result == {"id": list(range(NUM_ROWS))}


@pytest.mark.one_machine
def test_rows_of_a_func_on_several_threads(turns: OutOfOrder) -> None:
    @ps.func(max_concurrency=4)
    def work(number: int) -> int:
        if number % 10 == 0:
            turns.wait_for(number + 5)
        turns.finish(number)
        return number * 2

    df = ps.range(NUM_ROWS).into_batches(5).with_column("twice", work(col("id")))
    assert df.to_pydict()["twice"] == [2 * n for n in range(NUM_ROWS)]
    assert turns.finished != sorted(turns.finished)


@pytest.mark.one_machine
def test_async_rows_that_answer_in_random_order() -> None:
    order = list(range(NUM_ROWS))
    random.Random(3).shuffle(order)
    after = dict(zip(order[1:], order[:-1], strict=True))
    answered = {number: asyncio.Event() for number in order}
    finished: list[int] = []

    @ps.func(max_concurrency=NUM_ROWS)
    async def work(number: int) -> int:
        if number in after:
            await answered[after[number]].wait()
        finished.append(number)
        answered[number].set()
        return number * 2

    df = ps.range(NUM_ROWS).select("id", twice=work(col("id")))
    assert df.to_pydict()["twice"] == [2 * n for n in range(NUM_ROWS)]
    assert finished == order


@pytest.mark.one_machine
def test_order_through_several_stages_of_different_speed_and_batching(turns: OutOfOrder) -> None:
    def slow_at_times(batch: dict[str, Any]) -> dict[str, Any]:
        first = int(batch["id"][0])
        if first % 14 == 0 and first + 7 < NUM_ROWS:
            turns.wait_for(first + 7)
        turns.finish(first)
        return {"id": batch["id"], "v": batch["id"]}

    df = (
        ps.range(NUM_ROWS)
        .into_batches(3)
        .map_batches(slow_at_times, batch_size=7, concurrency=3)
        .where(col("v") % 3 != 0)
        .flat_map(lambda row: [row, row], concurrency=2)
        .with_column("w", col("v") * 10)
    )
    expected = [n for n in range(NUM_ROWS) if n % 3 for _ in range(2)]
    assert df.to_pydict() == {"id": expected, "v": expected, "w": [10 * n for n in expected]}


@pytest.mark.one_machine
@pytest.mark.parametrize("take", ["to_pylist", "iter_rows", "take_all"])
def test_every_way_of_taking_rows_keeps_the_order(take: str, turns: OutOfOrder) -> None:
    def work(batch: dict[str, Any]) -> dict[str, Any]:
        first = int(batch["id"][0])
        if first % 4 == 0:
            turns.wait_for(first + 2)
        turns.finish(first)
        return batch

    df = ps.range(40).map_batches(work, batch_size=2, concurrency=2)
    assert [row["id"] for row in getattr(df, take)()] == list(range(40))

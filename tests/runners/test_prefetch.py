"""A query that runs ahead of its reader: in order, in the reader's context, and gone when the reader goes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator

import pytest

import penstock as ps
from penstock.engine.cancellation import Cancellation
from penstock.errors import UdfError
from penstock.runners.prefetch import prefetched


def our_threads() -> list[str]:
    """The threads of queries; the one that serves all stores stays for as long as the process."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("penstock") and name != "penstock-storage"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert our_threads() == []


def numbers(count: int) -> Generator[int, None, None]:
    yield from range(count)


def test_items_come_in_order() -> None:
    assert list(prefetched(lambda _: numbers(100), 3)) == list(range(100))


def test_it_runs_ahead_and_no_further() -> None:
    drawn: list[int] = []
    has_drawn_three = threading.Event()

    def items() -> Generator[int, None, None]:
        for number in range(100):
            drawn.append(number)
            if number == 3:
                has_drawn_three.set()
            yield number

    ahead = prefetched(lambda _: items(), 2)
    assert next(ahead) == 0
    assert has_drawn_three.wait(60)  # 1 and 2 wait in the queue, 3 in the hand of the thread
    assert drawn == [0, 1, 2, 3]
    ahead.close()
    assert len(drawn) <= 5


def test_an_error_comes_after_what_came_before_it() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        raise ValueError("no more")

    ahead = prefetched(lambda _: items(), 5)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)


def test_closing_closes_the_items_on_their_thread() -> None:
    closed_on: list[str] = []

    def items() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed_on.append(threading.current_thread().name)

    ahead = prefetched(lambda _: items(), 1)
    next(ahead)
    ahead.close()
    assert closed_on == ["penstock-prefetch"]


def test_it_sees_the_settings_of_the_reader() -> None:
    def items() -> Generator[int, None, None]:
        yield ps.get_config().num_threads

    with ps.config(num_threads=17):
        assert list(prefetched(lambda _: items(), 1)) == [17]


def test_leaving_stops_a_query_that_gives_nothing() -> None:
    """The thread waits for a batch that never comes; the reader must not wait for it."""
    is_stuck = threading.Event()

    @ps.func
    async def sticks(x: int) -> int:
        if x >= 10:
            is_stuck.set()
            await asyncio.Event().wait()
        return x

    batches = ps.range(20).into_batches(10).with_column("y", sticks(ps.col("id"))).iter_batches(batch_size=10)
    assert next(iter(batches))["y"].tolist() == list(range(10))
    assert is_stuck.wait(60)
    batches.close()  # type: ignore[attr-defined]


def test_an_error_in_the_query_reaches_the_reader() -> None:
    @ps.func
    def fails(x: int) -> int:
        raise ValueError("bad row")

    with pytest.raises(UdfError, match="bad row"):
        list(ps.range(20).with_column("y", fails(ps.col("id"))).iter_batches())


def test_a_wish_to_cancel_may_come_before_anyone_listens() -> None:
    cancellation, heard = Cancellation(), list[str]()
    cancellation.on_request(lambda: heard.append("before"))
    cancellation.request()
    cancellation.on_request(lambda: heard.append("after"))
    cancellation.request()
    assert heard == ["before", "after"]


def test_an_interrupt_while_the_thread_starts_leaves_no_thread() -> None:
    def interrupting(cancellation: Cancellation) -> Generator[int, None, None]:
        os.kill(os.getpid(), signal.SIGINT)  # the reader may still be in Thread.start
        return until_cancelled(cancellation)

    def until_cancelled(cancellation: Cancellation) -> Generator[int, None, None]:
        while not cancellation.is_requested:
            time.sleep(0.001)
        yield 1

    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            list(prefetched(interrupting, 2))

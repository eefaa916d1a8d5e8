"""A paused query lets the calls in flight finish and starts no other, whoever makes the calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import penstock as ps
from penstock.contracts import QueryControl
from penstock.errors import PenstockError, QueryCancelledError
from penstock.events.call_gate import CallGate
from penstock.events.events import Event
from penstock.runners import read_rows
from tests.plain_server import counts, plain_server

NUM_ROWS = 240


class Started:
    """A query on a thread of its own, with its control."""

    def __init__(self, df: ps.DataFrame) -> None:
        self._df = df
        self._is_started = threading.Event()
        self._control: QueryControl | None = None
        self.rows: list[dict[str, Any]] = []
        self.error: PenstockError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for batch in read_rows(self._df._plan, subscribers=[self]):
                self.rows += batch.to_pylist()
        except PenstockError as exc:
            self.error = exc
        self._is_started.set()

    def on_control(self, control: QueryControl) -> None:
        self._control = control
        self._is_started.set()

    def on_event(self, event: Event) -> None: ...

    @property
    def control(self) -> QueryControl:
        self._is_started.wait()
        assert self._control is not None, self.error
        return self._control

    def pause(self) -> None:
        """Pause the query and wait until nothing is under way."""
        self.control.set_paused(True)
        wait_until(lambda: self.control.num_under_way() == (0, 0))

    def finish(self) -> list[dict[str, Any]]:
        self.control.set_paused(False)
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.rows

    def cancel(self) -> None:
        self.control.cancel()
        self._thread.join()


@contextmanager
def started(df: ps.DataFrame) -> Iterator[Started]:
    query = Started(df)
    try:
        yield query
    finally:
        query.cancel()


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.005)


def prompts(num_rows: int) -> ps.DataFrame:
    df = ps.from_pydict({"n": list(range(num_rows))})
    text = ps.format("number {}", ps.col("n"))
    return df.with_column("a", ps.prompt(text, model="gpt-5-mini", max_concurrency=8))


@pytest.mark.parametrize("slots", [0, 4], ids=["any number of requests", "requests that are refused and repeated"])
def test_prompts_stop_at_the_limiter_and_those_of_another_query_go_on(slots: int) -> None:
    with plain_server(latency=0.05, slots=slots) as url:
        ps.set_provider("openai", base_url=url, api_key="x")
        with started(prompts(NUM_ROWS)) as query:
            wait_until(lambda: counts(url)["answered"] >= 30)
            query.pause()
            at_rest = counts(url)
            assert at_rest["in_flight"] == 0
            assert at_rest["answered"] < NUM_ROWS
            assert prompts(50).to_pydict()["a"] == [f"answer {n}" for n in range(50)]
            assert counts(url)["answered"] == at_rest["answered"] + 50
            assert query.control.num_under_way() == (0, 0)
            assert query.finish() == [{"n": n, "a": f"answer {n}"} for n in range(NUM_ROWS)]
        assert counts(url)["answered"] == NUM_ROWS + 50


def test_a_query_can_be_cancelled_while_it_is_paused() -> None:
    with plain_server(latency=0.05) as url:
        ps.set_provider("openai", base_url=url, api_key="x")
        with started(prompts(NUM_ROWS)) as query:
            wait_until(lambda: counts(url)["answered"] >= 30)
            query.pause()
            num_answered = counts(url)["answered"]
            query.cancel()
            assert isinstance(query.error, QueryCancelledError)
            assert counts(url)["answered"] == num_answered


class Calls:
    """An async function that counts its calls, and lets each fail once. Its event loop stands still at the 50th call,
    until the query is paused.
    """

    def __init__(self) -> None:
        self.num_begun = self.num_under_way = 0
        self._known: set[int] = set()
        self._has_begun, self._is_paused = threading.Event(), threading.Event()

    def pause(self, query: Started) -> None:
        """Pause the query at the 50th call and wait until nothing is under way."""
        assert self._has_begun.wait(60)
        query.control.set_paused(True)
        self._is_paused.set()
        query.pause()

    async def double(self, n: int) -> int:
        self.num_begun += 1
        self.num_under_way += 1
        if self.num_begun == 50:
            self._has_begun.set()
            assert self._is_paused.wait(60)
        await asyncio.sleep(0.002)
        self.num_under_way -= 1
        if n % 7 == 0 and n not in self._known:
            self._known.add(n)
            raise ValueError("again")
        return 2 * n


def as_expression(calls: Calls, df: ps.DataFrame) -> ps.DataFrame:
    @ps.func(max_concurrency=16, max_retries=3)
    async def double(n: int) -> int:
        return await calls.double(n)

    return df.with_column("twice", double(ps.col("n")))


def as_map(calls: Calls, df: ps.DataFrame) -> ps.DataFrame:
    async def double(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"twice": await calls.double(row["n"])}

    return df.map(double, max_retries=3, use_process=False)


def as_map_batches(calls: Calls, df: ps.DataFrame) -> ps.DataFrame:
    async def double(batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"twice": [await calls.double(int(n)) for n in batch["n"]]}

    return df.map_batches(double, batch_size=1, use_process=False)


@pytest.mark.parametrize("add", [as_expression, as_map])
def test_rows_of_an_async_function_stop_and_go_on_in_order(add: Callable[[Calls, ps.DataFrame], ps.DataFrame]) -> None:
    calls = Calls()
    num_rows = 500
    with started(add(calls, ps.from_pydict({"n": list(range(num_rows))}))) as query:
        calls.pause(query)
        num_begun = calls.num_begun
        assert calls.num_under_way == 0
        assert ps.range(1000).count_rows() == 1000
        assert calls.num_begun == num_begun < num_rows
        assert query.finish() == [{"n": n, "twice": 2 * n} for n in range(num_rows)]


def test_batches_of_an_async_function_stop() -> None:
    calls = Calls()
    calls._known = set(range(NUM_ROWS))
    with started(as_map_batches(calls, ps.from_pydict({"n": list(range(NUM_ROWS))}))) as query:
        calls.pause(query)
        assert calls.num_under_way == 0
        assert calls.num_begun < NUM_ROWS
        assert len(query.finish()) == NUM_ROWS


def test_a_gate_holds_calls_of_several_event_loops() -> None:
    gate, passed = CallGate(), list[int]()
    gate.set_open(False)

    async def wait(number: int) -> None:
        await gate.wait()
        passed.append(number)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gate.wait(), 0.01)

    asyncio.run(cancelled())
    threads = [threading.Thread(target=asyncio.run, args=(wait(number),)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(gate._waiting) == 3)
    assert passed == []
    gate.set_open(True)
    for thread in threads:
        thread.join()
    assert sorted(passed) == [0, 1, 2]
    asyncio.run(wait(3))
    assert gate.num_in_flight == 0

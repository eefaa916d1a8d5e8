"""Async handlers: many tasks wait at once on one thread, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.contracts import Task, WorkerContext
from penstock.engine.pools.asyncio import AsyncPool
from penstock.events.events import RowError
from tests.engine.pools.handlers import Reports, order


class Handler:
    """Does what the first row of column ``do`` says, and notes what happens and on which thread."""

    def __init__(self) -> None:
        self.events = ["open"]
        self.threads = {threading.current_thread().name}
        self.num_inside = 0
        self.is_full = asyncio.Event()
        self.close_error: Exception | None = None
        self.context: WorkerContext | None = None
        self.is_inside = threading.Event()

    async def process(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        self.threads.add(threading.current_thread().name)
        what, *args = batch.column("do")[0].as_py().split()
        given = await getattr(self, what)(*args)
        return batch if given is None else given  # type: ignore[no-any-return]

    async def close(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append("close")
        if self.close_error is not None:
            raise self.close_error

    async def echo(self) -> None:
        pass

    async def meet(self, num_expected: str) -> None:
        """Wait until as many are here."""
        self.num_inside += 1
        if self.num_inside == int(num_expected):
            self.is_full.set()
        await self.is_full.wait()

    async def record_and_meet(self, message: str, num_expected: str) -> None:
        assert self.context is not None
        self.context.record(RowError("f", "{}", "ValueError", message, ""))
        await self.meet(num_expected)

    async def fail(self) -> None:
        raise ValueError("this row is bad")

    async def cancel(self) -> None:
        """Stop as a library that cancels its own calls might."""
        raise asyncio.CancelledError("timed out")

    async def exit(self) -> None:
        raise SystemExit(3)

    async def exit_in_a_task(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.exit())

    async def wait_for_ever(self) -> None:
        try:
            self.is_inside.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.events.append("cleaned up")

    async def give_something_else(self) -> Any:
        return "no batch"

    async def leave_a_thread(self) -> None:
        await asyncio.to_thread(self.events.append, "on a thread")

    async def leave_a_generator(self) -> None:
        async def numbers() -> Any:
            try:
                yield 1
            finally:
                self.events.append("generator closed")

        self.generator = numbers()
        await anext(self.generator)


class Pool:
    """An AsyncPool with its handlers and reports at hand."""

    def __init__(self, capacity: int = 8) -> None:
        self.reports = Reports()
        self.handlers: list[Handler] = []
        self.pool = AsyncPool(self._open, capacity, self.reports.emit)
        self._tasks: list[Task] = []

    def _open(self, context: WorkerContext) -> Handler:
        self.handlers.append(Handler())
        self.handlers[-1].context = context
        return self.handlers[-1]

    def submit(self, do: str) -> Task:
        task = order(do)
        self.pool.submit(task)
        return task


@pytest.fixture
def pool() -> Iterator[Pool]:
    num_threads, num_fds = threading.active_count(), len(os.listdir("/proc/self/fd"))
    pool = Pool()
    yield pool
    pool.pool.close()
    assert threading.active_count() <= num_threads
    assert len(os.listdir("/proc/self/fd")) <= num_fds


def test_a_task_gives_one_report(pool: Pool) -> None:
    task = pool.submit("echo")
    report = pool.reports.next()
    assert (report.task, report.is_done, report.error) == (task, True, None)
    assert report.output is not None
    assert report.output.handle.to_pydict() == {"do": ["echo"]}


def test_tasks_wait_side_by_side(pool: Pool) -> None:
    """None of eight would end if they ran one after another."""
    tasks = {pool.submit("meet 8") for _ in range(8)}
    assert {pool.reports.next().task for _ in range(8)} == tasks


def test_rows_that_failed_come_with_the_report_of_their_task(pool: Pool) -> None:
    """Though all tasks share one handler, and none is done before each has recorded something."""
    tasks = {pool.submit(f"record_and_meet {number} 3"): str(number) for number in range(3)}
    reports = [pool.reports.next() for _ in tasks]
    assert {report.task: [error.message for error in report.errors] for report in reports} == {
        task: [message] for task, message in tasks.items()
    }


def test_one_handler_serves_all_on_one_thread(pool: Pool) -> None:
    for _ in range(5):
        pool.submit("echo")
        pool.reports.next()
    pool.pool.finish()
    last = pool.reports.next()
    assert (last.task, last.output, last.is_done) == (None, None, True)
    pool.pool.close()
    pool.pool.close()
    (handler,) = pool.handlers
    assert handler.events == ["open", "close"]
    assert handler.threads == {"penstock-asyncio"}


@pytest.mark.parametrize(
    ("do", "error"),
    [
        ("fail", ValueError),
        ("give_something_else", TypeError),
        ("cancel", asyncio.CancelledError),
        ("exit", SystemExit),
        ("exit_in_a_task", SystemExit),
    ],
)
def test_whatever_ends_a_task_is_reported_and_the_loop_goes_on(pool: Pool, do: str, error: type[BaseException]) -> None:
    task = pool.submit(do)
    report = pool.reports.next()
    assert (report.task, report.is_done) == (task, True)
    assert isinstance(report.error, error)
    pool.submit("echo")
    assert pool.reports.next().error is None
    pool.pool.close()
    assert pool.handlers[0].events == ["open", "close"]


def test_a_handler_that_cannot_be_built_is_an_error() -> None:
    def fail(context: WorkerContext) -> Handler:
        raise ValueError("no key")

    reports = Reports()
    failing = AsyncPool(fail, 1, reports.emit)
    failing.submit(order("echo"))
    assert str(reports.next().error) == "no key"
    failing.close()


def test_close_cancels_what_waits_and_lets_it_clean_up(pool: Pool) -> None:
    pool.submit("echo")
    pool.reports.next()
    for _ in range(3):
        pool.submit("wait_for_ever")
    (handler,) = pool.handlers
    handler.is_inside.wait(60)
    pool.pool.close()
    assert handler.events == ["open", *["cleaned up"] * (len(handler.events) - 2), "close"]
    assert "cleaned up" in handler.events


def test_a_task_that_only_it_refers_to_is_not_garbage(pool: Pool) -> None:
    """As one that waits for another of its kind: asyncio keeps no reference to it."""
    pool.submit("echo")
    pool.reports.next()
    pool.submit("wait_for_ever")
    (handler,) = pool.handlers
    handler.is_inside.wait(60)
    pool.submit("echo")
    pool.reports.next()  # so the loop has come back from the one that waits
    gc.collect()
    pool.submit("echo")
    report = pool.reports.next()
    assert (report.error, handler.events) == (None, ["open"])


def test_close_ends_threads_and_generators_that_the_function_started(pool: Pool) -> None:
    pool.submit("leave_a_thread")
    pool.submit("leave_a_generator")
    assert [pool.reports.next().error for _ in range(2)] == [None, None]
    pool.pool.close()
    assert sorted(pool.handlers[0].events) == ["close", "generator closed", "on a thread", "open"]


def test_a_handler_that_fails_to_close_is_an_error_and_leaves_nothing(pool: Pool) -> None:
    pool.submit("echo")
    pool.reports.next()
    pool.handlers[0].close_error = OSError("cannot close")
    with pytest.raises(OSError, match="cannot close"):
        pool.pool.close()


def test_close_of_a_pool_that_did_nothing(pool: Pool) -> None:
    pool.pool.close()
    pool.pool.close()
    assert pool.handlers == []

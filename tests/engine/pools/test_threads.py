"""Handlers on threads: few threads, prompt cancelling, and no way to lose one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import Task, WorkerContext
from penstock.engine.pools.threads import ThreadPool, Threads
from penstock.errors import InvalidArgumentError
from penstock.types import joined
from tests.engine.pools.handlers import Diary, Gates, Reports, failing_opener, opener, order
from tests.jobs.helpers import wait_until


@pytest.fixture
def threads() -> Iterator[Threads]:
    before = threading.active_count()
    threads = Threads()
    yield threads
    threads.close()
    assert threading.active_count() == before


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def test_threads_are_used_again(threads: Threads) -> None:
    idents = set()
    for _ in range(20):
        is_done = threading.Event()

        def work(is_done: threading.Event = is_done) -> None:
            idents.add(threading.get_ident())
            is_done.set()

        threads.start(work)
        is_done.wait(60)
        wait_until(lambda: threads._num_free == 1)
    assert len(idents) == 1


def test_there_are_as_many_threads_as_work_at_once(threads: Threads) -> None:
    all_there = threading.Barrier(9)
    for _ in range(8):
        threads.start(lambda: all_there.wait(60) and None)
    all_there.wait(60)


def test_close_waits_for_the_work_that_was_given(threads: Threads) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(60)
        ended.set()

    threads.start(work)
    closing = threading.Thread(target=threads.close)
    closing.start()
    assert not ended.is_set()
    may_end.set()
    closing.join(60)
    assert ended.is_set()


def test_a_resting_task_holds_no_thread(threads: Threads, reports: Reports, diary: Diary) -> None:
    before = threading.active_count()
    pool = ThreadPool(opener(diary), 10, threads, reports.emit)
    for _ in range(10):
        pool.submit(order("parts 2"))
        assert not reports.next().is_done
        wait_until(lambda: threads._num_free == 1)
    assert threading.active_count() - before == 1
    pool.close()
    assert len(diary.lines("parts ended")) == 10, "closing ends the generators"


def test_close_cancels_and_waits(threads: Threads, reports: Reports, diary: Diary, tmp_path: Path) -> None:
    """A handler sees that it is cancelled; it is closed after it has returned."""
    gates = Gates(tmp_path)
    gate = gates.make()
    pool = ThreadPool(opener(diary), 1, threads, reports.emit)
    pool.submit(order(f"wait_until_cancelled {gate}"))
    gates.open(gate)
    pool.close()
    assert diary.lines("close") == ["close"]


def test_work_that_has_not_begun_never_does(reports: Reports, diary: Diary) -> None:
    class Later(Threads):
        def __init__(self) -> None:
            self.given: list[Any] = []

        def start(self, work: Any) -> None:
            self.given.append(work)

    later = Later()
    pool = ThreadPool(opener(diary), 1, later, reports.emit)
    pool.submit(order("echo"))
    pool.close()
    for work in later.given:
        work()
    assert diary.lines() == []
    assert reports.is_empty


def test_a_handler_that_cannot_be_built_is_an_error(threads: Threads, reports: Reports) -> None:
    pool = ThreadPool(failing_opener, 1, threads, reports.emit)
    task = order("echo")
    pool.submit(task)
    report = reports.next()
    assert (report.task, report.is_done, str(report.error)) == (task, True, "no model there")
    pool.close()


def test_an_error_in_finish_is_reported(threads: Threads, reports: Reports) -> None:
    class Handler:
        def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
            return item

        def finish(self) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"x": [1]})
            raise OSError("disk full")

        def close(self) -> None:
            pass

    pool = ThreadPool(lambda context: Handler(), 1, threads, reports.emit)
    pool.submit(order("echo"))
    reports.next()
    pool.finish()
    assert reports.next().output is not None
    report = reports.next()
    assert (report.task, report.is_done, str(report.error)) == (None, True, "disk full")
    pool.close()


def test_a_thread_that_cannot_be_started_does_not_hang_the_end(
    monkeypatch: pytest.MonkeyPatch, threads: Threads, reports: Reports, diary: Diary
) -> None:
    """As when a thousand workers are asked for and the system allows fewer threads."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = ThreadPool(opener(diary), 1, threads, reports.emit)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(order("echo"))
    pool.close()
    threads.close()


@pytest.mark.parametrize("where", ["queue", "count"])
def test_an_interrupt_in_the_middle_of_submit_does_not_hang_the_end(
    where: str, monkeypatch: pytest.MonkeyPatch, threads: Threads, reports: Reports, diary: Diary
) -> None:
    """Ctrl-C may come between any two steps of the driver."""

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    pool = ThreadPool(opener(diary), 2, threads, reports.emit)
    pool.submit(order("echo"))
    reports.next()
    with monkeypatch.context() as patch:
        if where == "queue":
            patch.setattr(threads, "_work", type("Interrupted", (), {"put": interrupted})())
        else:
            patch.setattr(threads, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(order("echo"))
    pool.close()
    assert diary.lines("close") == ["close"]


def test_the_driver_and_the_workers_do_not_get_in_each_others_way(threads: Threads, reports: Reports) -> None:
    """Slots are taken by the driver while workers give theirs back: with threads switched as often as can be."""

    class Echo:
        def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
            return item

        def finish(self) -> Iterator[pa.RecordBatch]:
            return iter(())

        def close(self) -> None:
            pass

    def open_echo(context: WorkerContext) -> Echo:
        return Echo()

    capacity, num_tasks = 8, 4_000
    pool = ThreadPool(open_echo, capacity, threads, reports.emit)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        seen: set[Task] = set()
        for _ in range(capacity):
            pool.submit(order("echo"))
        for number in range(num_tasks):
            report = reports.next()
            assert report.task is not None
            assert report.error is None
            seen.add(report.task)
            if number < num_tasks - capacity:
                pool.submit(order("echo"))
    finally:
        sys.setswitchinterval(interval)
    assert len(seen) == num_tasks
    pool.close()


def test_parts_of_different_types_are_joined_as_their_common_type() -> None:
    parts = [pa.record_batch({"x": pa.array([1], pa.int32())}), pa.record_batch({"x": [2.5], "y": ["b"]})]
    assert joined(parts).to_pydict() == {"x": [1.0, 2.5], "y": [None, "b"]}


def test_a_column_of_more_than_two_gigabytes_is_one_clear_error() -> None:
    untouched = pa.py_buffer(np.zeros(2**30, np.uint8))  # memory that is never used
    offsets = pa.py_buffer(np.array([0, 2**30], np.int32))
    part = pa.record_batch({"id": [1], "text": pa.Array.from_buffers(pa.binary(), 1, [None, offsets, untouched])})
    with pytest.raises(
        InvalidArgumentError, match="Column 'text': has more than 2 GiB of data in one batch; use smaller"
    ):
        joined([part, part, part])


@pytest.mark.parametrize("constant", ["x" * 2**20, b"x" * 2**20])
def test_a_constant_in_too_many_rows_is_one_clear_error(constant: str | bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="has more than 2 GiB of data in one batch; use smaller"):
        ps.range(2300).with_column("s", ps.lit(constant)).collect()
    with pytest.raises(InvalidArgumentError, match="repeat: has more than 2 GiB of data in one batch; use smaller"):
        ps.from_pydict({"s": ["x" * 2**20]}).select(ps.col("s").repeat(2300)).collect()

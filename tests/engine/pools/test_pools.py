"""What every pool of handlers does, be they on threads or in processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.contracts import Bundle, Task
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.threads import ThreadPool, Threads
from tests.engine.pools.handlers import Diary, Gates, Reports, opener, order, process_pool, stubborn_opener

MakePool = Callable[..., ThreadPool]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture(params=[ThreadPool, process_pool], ids=["threads", "processes"])
def make_pool(request: pytest.FixtureRequest, diary: Diary, reports: Reports) -> Iterator[MakePool]:
    threads = Threads()
    made: list[ThreadPool] = []

    def make(capacity: int = 1, open_handler: OpenHandler | None = None) -> ThreadPool:
        made.append(request.param(open_handler or opener(diary), capacity, threads, reports.emit))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
    threads.close()


def test_a_batch_gives_one_report(make_pool: MakePool, reports: Reports) -> None:
    task = order("echo")
    make_pool().submit(task)
    report = reports.next()
    assert report.task is task
    assert report.is_done
    assert report.error is None
    assert report.busy_s > 0
    assert report.output is not None
    assert report.output.handle.to_pydict() == {"do": ["echo"]}
    assert (report.output.num_rows, report.output.nbytes) == (1, report.output.handle.nbytes)


def test_rows_that_failed_come_with_the_report_of_their_task(make_pool: MakePool, reports: Reports) -> None:
    pool, messages = make_pool(), []
    for do in ("record first", "echo", "record second"):
        pool.submit(order(do))
        messages.append([error.message for error in reports.next().errors])
    assert messages == [["first"], [], ["second"]]


def test_bundles_are_cut_and_joined_by_the_worker(make_pool: MakePool, reports: Reports) -> None:
    batch = pa.record_batch({"do": ["echo"] * 4, "row": [0, 1, 2, 3]})
    parts = (Bundle(batch, 2, 0, offset=1), Bundle(batch, 1, 0, offset=3))
    make_pool().submit(Task(parts, 0, 0, 3))
    output = reports.next().output
    assert output is not None
    assert output.handle.column("row").to_pylist() == [1, 2, 3]


def test_what_is_no_batch_is_an_error_and_the_worker_goes_on(make_pool: MakePool, reports: Reports) -> None:
    pool, task = make_pool(), order("give_something_else")
    pool.submit(task)
    report = reports.next()
    assert (report.task, report.is_done) == (task, True)
    assert isinstance(report.error, TypeError | AttributeError)
    pool.submit(order("echo"))
    assert reports.next().error is None


def test_a_task_rests_after_each_output(make_pool: MakePool, reports: Reports, diary: Diary) -> None:
    pool, task = make_pool(), order("parts 2")
    pool.submit(task)
    first = reports.next()
    assert (first.task, first.is_done) == (task, False)
    assert diary.lines("part ") == ["part 0"], "it must not run ahead"
    pool.submit(task)
    second = reports.next()
    assert (second.output and second.output.handle.to_pydict(), second.is_done) == ({"part": [1]}, False)
    pool.submit(task)
    last = reports.next()
    assert (last.task, last.output, last.is_done) == (task, None, True)
    assert reports.is_empty


def test_a_task_may_give_nothing(make_pool: MakePool, reports: Reports) -> None:
    make_pool().submit(order("parts 0"))
    report = reports.next()
    assert (report.output, report.is_done, report.error) == (None, True, None)


def test_a_resting_task_keeps_its_worker(make_pool: MakePool, reports: Reports, diary: Diary) -> None:
    pool, resting = make_pool(capacity=2), order("parts 2")
    pool.submit(resting)
    reports.next()
    pool.submit(order("echo"))
    reports.next()
    assert len(diary.lines("open")) == 2
    pool.submit(resting)
    output = reports.next().output
    assert output is not None
    assert output.handle.to_pydict() == {"part": [1]}


@pytest.mark.parametrize("how", ["fail", "parts_then_fail"])
def test_an_error_is_reported_and_the_worker_goes_on(
    make_pool: MakePool, reports: Reports, diary: Diary, how: str
) -> None:
    pool, task = make_pool(), order(how)
    pool.submit(task)
    report = reports.next()
    while not report.is_done:
        pool.submit(task)
        report = reports.next()
    assert report.task is task
    assert isinstance(report.error, ValueError)
    assert str(report.error) == "this row is bad"
    assert isinstance(report.error.__cause__, KeyError)
    pool.submit(order("echo"))
    assert reports.next().error is None
    assert len(diary.lines("open")) == 1
    pool.close()
    assert diary.lines("close") == ["close"]


def test_user_code_that_says_cancelled_does_not_leave_the_query_waiting(make_pool: MakePool, reports: Reports) -> None:
    make_pool().submit(order("say_cancelled"))
    assert "a query within the function" in str(reports.next().error)


def test_a_handler_is_built_once_a_worker_and_only_if_needed(
    make_pool: MakePool, reports: Reports, diary: Diary, gates: Gates
) -> None:
    pool = make_pool(capacity=3)
    for _ in range(4):
        pool.submit(order("echo"))
        reports.next()
    assert len(diary.lines("open")) == 1
    for _ in range(2):
        gate_1, gate_2 = gates.make(), gates.make()
        pool.submit(order(f"wait {gate_1}"))
        pool.submit(order(f"wait {gate_2}"))
        gates.open(gate_1)
        gates.open(gate_2)
        assert [reports.next().error for _ in range(2)] == [None, None]
    assert len(diary.lines("open")) == 2
    assert diary.lines("close") == []


def run_two_workers(pool: ThreadPool, reports: Reports, gates: Gates) -> None:
    """Run two tasks at the same time, so that two workers open their handlers."""
    waiting = [gates.make(), gates.make()]
    for gate in waiting:
        pool.submit(order(f"wait {gate}"))
    for gate in waiting:
        gates.open(gate)
    assert all(reports.next().is_done for _ in waiting)


@pytest.mark.parametrize("make_pool", [ThreadPool], indirect=True)
def test_finish_gives_what_all_handlers_hold(make_pool: MakePool, reports: Reports, diary: Diary, gates: Gates) -> None:
    pool = make_pool(capacity=3)
    run_two_workers(pool, reports, gates)
    pool.finish()
    held = [reports.next(), reports.next()]
    assert [(report.task, report.is_done) for report in held] == [(None, False)] * 2
    assert [report.output and report.output.handle.to_pydict() for report in held] == [{"num_seen": [1]}] * 2
    last = reports.next()
    assert (last.task, last.output, last.is_done, last.error) == (None, None, True, None)
    assert len(diary.lines("finish")) == 2, "a worker that never opened has nothing to finish"


def test_finish_of_a_pool_that_did_nothing(make_pool: MakePool, reports: Reports, diary: Diary) -> None:
    make_pool(capacity=2).finish()
    last = reports.next()
    assert (last.task, last.output, last.is_done) == (None, None, True)
    assert diary.lines() == []


def test_close_closes_each_handler_once(make_pool: MakePool, reports: Reports, diary: Diary, gates: Gates) -> None:
    pool = make_pool(capacity=3)
    run_two_workers(pool, reports, gates)
    pool.close()
    assert diary.lines("close") == ["close"] * 2
    pool.close()
    assert diary.lines("close") == ["close"] * 2


def test_close_ends_a_task_that_rests(make_pool: MakePool, reports: Reports, diary: Diary) -> None:
    pool = make_pool()
    pool.submit(order("parts 100"))
    reports.next()
    pool.close()
    assert diary.lines("part ") == ["part 0"]
    assert diary.lines("close") == ["close"], "an idle worker closes its handler"
    assert reports.is_empty


def test_close_of_a_pool_that_did_nothing(make_pool: MakePool, diary: Diary) -> None:
    pool = make_pool()
    pool.close()
    pool.close()
    assert diary.lines() == []


def test_all_handlers_are_closed_though_one_fails_to(
    make_pool: MakePool, reports: Reports, diary: Diary, gates: Gates, request: pytest.FixtureRequest
) -> None:
    pool = make_pool(capacity=2, open_handler=stubborn_opener(diary))
    run_two_workers(pool, reports, gates)
    if "threads" in request.node.callspec.id:
        with pytest.raises(OSError, match="cannot close"):
            pool.close()
    else:
        pool.close()  # the worker says on its standard error what went wrong
    assert diary.lines("close") == ["close"] * 2

"""A stage that moves from threads to processes: when told to, once, and losing nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.contracts import Emit
from penstock.engine.pools.thread_to_process import ThreadToProcessPool
from penstock.engine.pools.threads import ThreadPool, Threads
from tests.engine.pools.handlers import Diary, Gates, Reports, opener, order, process_pool


class Verdict:
    """A watch that says what the test wants."""

    def __init__(self) -> None:
        self.is_held_back = False
        self.num_running = 0

    def note_start(self, now: float) -> None:
        self.num_running += 1

    def note_end(self, now: float, busy_s: float, wanted_cpu_s: float) -> None:
        self.num_running -= 1


class Stage:
    """A moving pool with all that it needs."""

    def __init__(self, folder: Path) -> None:
        self.diary = Diary(folder / "diary")
        self.gates = Gates(folder)
        self.reports = Reports()
        self.verdict = Verdict()
        self.threads = Threads()
        self.pools: list[ThreadPool] = []
        self.can_move = True
        make_threads = partial(self._make, ThreadPool)
        self.pool = ThreadToProcessPool(make_threads, self._make_processes, self.reports.emit, "f", self.verdict)

    def _make(self, make_pool: Callable[..., ThreadPool], emit: Emit) -> ThreadPool:
        self.pools.append(make_pool(opener(self.diary), 2, self.threads, emit))
        return self.pools[-1]

    def _make_processes(self, emit: Emit) -> ThreadPool | None:
        return self._make(process_pool, emit) if self.can_move else None

    def run(self, what: str = "echo") -> None:
        self.pool.submit(order(what))
        assert self.reports.next().error is None

    @property
    def is_moved(self) -> list[bool]:
        """For each handler that was opened, in order, whether it was in another process."""
        return [line != f"open {os.getpid()}" for line in self.diary.lines("open")]

    def close(self) -> None:
        self.pool.close()
        self.threads.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def test_it_stays_on_threads_while_they_do(stage: Stage) -> None:
    stage.run()
    stage.run()
    assert stage.is_moved == [False]
    assert len(stage.pools) == 1


def test_what_fails_on_the_way_of_a_report_is_an_error(stage: Stage) -> None:
    stage.verdict.note_end = lambda *args: 1 / 0  # type: ignore[assignment,method-assign]
    stage.pool.submit(order("echo"))
    assert isinstance(stage.reports.next().error, ZeroDivisionError)


def test_it_moves_once_and_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.run()
    stage.verdict.is_held_back = True
    stage.run()
    stage.run()
    (record,) = caplog.records
    assert record.getMessage().startswith("f holds the GIL, so it moves from threads to worker processes. Each process")
    assert stage.is_moved == [False, True]
    assert len(stage.pools) == 2


def test_what_threads_hold_is_released_when_the_last_task_on_them_is_done(stage: Stage) -> None:
    stage.run()
    stage.verdict.is_held_back = True
    stage.run()
    assert stage.diary.lines("close") == [], "it may have to come back"
    stage.run()
    assert stage.diary.lines("close") == ["close"]


def test_a_task_that_rests_on_a_thread_ends_there(stage: Stage) -> None:
    resting = order("parts 2")
    stage.pool.submit(resting)
    assert not stage.reports.next().is_done
    stage.verdict.is_held_back = True
    stage.run()
    assert stage.diary.lines("close") == []
    while True:
        stage.pool.submit(resting)
        if stage.reports.next().is_done:
            break
    stage.run()
    assert stage.is_moved == [False, True]
    assert stage.diary.lines("close") == ["close"]
    assert stage.verdict.num_running == 0


def test_a_task_that_runs_on_a_thread_meanwhile_is_not_disturbed(stage: Stage) -> None:
    gate = stage.gates.make()
    waiting = order(f"wait {gate}")
    stage.pool.submit(waiting)
    stage.verdict.is_held_back = True
    stage.run()
    stage.gates.open(gate)
    report = stage.reports.next()
    assert (report.task, report.error) == (waiting, None)


def test_finish_gives_what_threads_hold_and_says_once_that_it_is_done(stage: Stage) -> None:
    resting = order("parts 2")
    stage.pool.submit(resting)  # so that the thread's handler is still there
    stage.reports.next()
    stage.verdict.is_held_back = True
    stage.run()
    while True:
        stage.pool.submit(resting)
        if stage.reports.next().is_done:
            break
    stage.pool.finish()
    ended = []
    while not ended or not ended[-1].is_done:
        ended.append(stage.reports.next())
    outputs = [report.output.handle["num_seen"][0].as_py() for report in ended if report.output is not None]
    assert outputs == [1]
    assert [report.is_done for report in ended] == [False, True]


def test_finish_of_one_that_did_nothing(stage: Stage) -> None:
    stage.pool.finish()
    assert stage.reports.next().is_done


def test_one_that_cannot_move_stays_and_is_asked_once(stage: Stage) -> None:
    stage.can_move = False
    stage.run()
    stage.verdict.is_held_back = True
    stage.run()
    stage.run()
    assert stage.is_moved == [False]
    assert stage.diary.lines("close") == []


def test_one_that_fails_in_a_process_comes_back_with_its_task(stage: Stage) -> None:
    stage.run()
    stage.verdict.is_held_back = True
    stage.pool.submit(order("fail"))
    report = stage.reports.next()
    assert isinstance(report.error, ValueError), "which it is on a thread, too"
    assert stage.is_moved == [False, True]
    stage.run()
    assert stage.diary.lines("process echo") == ["process echo"] * 2
    assert stage.is_moved == [False, True], "and stays"

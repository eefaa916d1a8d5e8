"""Handlers in processes: how they die, who is told, and that none outlives the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from penstock.contracts import Bundle, Task
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.threads import Threads
from penstock.errors import WorkerDiedError
from tests.engine.pools.handlers import (
    Diary,
    Gates,
    Reports,
    blocked_opener,
    failing_opener,
    opener,
    order,
    process_pool,
)
from tests.jobs.helpers import wait_until

END_TIMEOUT_S = 20.0
pytestmark = pytest.mark.usefixtures("real_workers")


class Workers:
    """A pool of processes with its reports at hand."""

    def __init__(self, threads: Threads, open_handler: OpenHandler, capacity: int = 1) -> None:
        self.reports = Reports()
        self.pool = process_pool(open_handler, capacity, threads, self.reports.emit)

    def do(self, what: str) -> BaseException | None:
        self.pool.submit(order(what))
        return self.reports.next().error


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.close()


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Check after each test that it left no process and no open file. Servers that tests share were there before."""
    me = psutil.Process()
    before, num_fds = set(me.children()), me.num_fds()
    yield
    assert set(me.children()) - before == set()
    assert me.num_fds() <= num_fds


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path)


@pytest.fixture
def workers(threads: Threads, diary: Diary) -> Iterator[Workers]:
    """One worker."""
    workers = Workers(threads, opener(diary))
    yield workers
    workers.pool.close()


def pids(diary: Diary, prefix: str) -> list[int]:
    return [int(line.split()[1]) for line in diary.lines(prefix)]


def wait_for_end(*pids: int) -> None:
    """Wait until none of the processes runs."""
    wait_until(lambda: not any(map(is_running, pids)))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_worker_is_another_process_and_serves_all_tasks(workers: Workers, diary: Diary) -> None:
    assert [workers.do("echo") for _ in range(3)] == [None] * 3
    (pid,) = pids(diary, "open")
    assert pid != os.getpid()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("exit 3", r"A worker process ended with exit code 3 while it worked on a batch"),
        ("exit 0", r"ended with exit code 0"),
        (f"be_killed {signal.SIGKILL:d}", r"was killed by signal 9 \(Killed\)"),
        (f"be_killed {signal.SIGSEGV:d}", r"was killed by signal 11 \(Segmentation fault\)"),
    ],
)
def test_a_worker_that_dies_is_an_error_that_says_how(workers: Workers, what: str, message: str) -> None:
    task = order(what)
    workers.pool.submit(task)
    report = workers.reports.next()
    assert (report.task, report.is_done) == (task, True)
    with pytest.raises(WorkerDiedError, match=message):
        raise report.error or AssertionError


def test_a_child_that_outlives_the_worker_does_not_hide_its_death(workers: Workers, diary: Diary) -> None:
    """A forked child inherits the worker's end of the connection."""
    with pytest.raises(WorkerDiedError, match="exit code 9"):
        raise workers.do("fork_and_die") or AssertionError
    workers.pool.close()
    wait_for_end(*pids(diary, "child"))


def test_errors_keep_their_class_cause_and_traceback(workers: Workers) -> None:
    error = workers.do("fail")
    assert isinstance(error, ValueError)
    assert isinstance(error.__cause__, KeyError)
    (note,) = error.__notes__
    assert "In the worker process" in note
    assert "def fail" in note or "in fail" in note


def test_an_error_that_cannot_travel_is_told_in_words(workers: Workers) -> None:
    error = workers.do("fail_strangely")
    assert isinstance(error, RuntimeError)
    assert str(error) == "UnpicklableError: 1 and 2"
    assert "in fail_strangely" in error.__notes__[0]


def test_a_handler_that_cannot_be_built_is_an_error_and_leaves_nothing(threads: Threads) -> None:
    workers = Workers(threads, failing_opener)
    error = workers.do("echo")
    assert (type(error), str(error)) == (ValueError, "no model there")
    workers.pool.close()


def test_a_process_that_cannot_be_started_leaves_nothing(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    workers = Workers(threads, failing_opener)
    assert isinstance(workers.do("echo"), FileNotFoundError)
    workers.pool.close()


def test_a_flood_of_output_does_not_block(workers: Workers, capfd: pytest.CaptureFixture[str]) -> None:
    assert workers.do("flood 3000000") is None
    workers.pool.close()
    written = capfd.readouterr()
    assert (written.out.count("o"), written.err.count("e")) == (3_000_000, 3_000_000)


def test_big_batches_both_ways(workers: Workers) -> None:
    payload = np.arange(12_500_000)
    batch = pa.record_batch({"payload": payload, "do": pa.array(["grow"] * len(payload))})
    workers.pool.submit(Task((Bundle(batch, batch.num_rows, batch.nbytes),), 0, batch.nbytes, batch.num_rows))
    report = workers.reports.next()
    assert report.error is None
    assert report.output is not None
    grown = report.output.handle.column("payload")
    assert grown.nbytes == 200_000_000
    assert grown[12_500_000:].equals(pa.array(payload))


def test_a_process_runs_several_tasks_at_once_and_dies_with_all_of_them(
    threads: Threads, gates: Gates, diary: Diary
) -> None:
    reports, waiting = Reports(), [gates.make(), gates.make()]
    pool = process_pool(opener(diary), 2, threads, reports.emit, num_channels=2)
    for gate in waiting:
        pool.submit(order(f"wait {gate}"))
    for gate in reversed(waiting):  # the second task passes while the first one waits
        gates.open(gate)
        assert reports.next().error is None
    assert len(set(pids(diary, "open"))) == 1
    stuck = gates.make()
    pool.submit(order(f"start_child_and_wait {stuck}"))
    gates.open(stuck)
    pool.submit(order("exit 3"))
    assert {type(reports.next().error) for _ in range(2)} == {WorkerDiedError}
    pool.close()


def test_close_kills_a_worker_that_is_busy(workers: Workers, gates: Gates, diary: Diary) -> None:
    """And what it started itself."""
    gate = gates.make()
    workers.pool.submit(order(f"start_child_and_wait {gate}"))
    gates.open(gate)
    workers.pool.close()
    assert diary.lines("close") == []
    wait_for_end(*pids(diary, "open"), *pids(diary, "child"))


def test_close_kills_a_worker_that_is_still_loading(threads: Threads, gates: Gates) -> None:
    gate = gates.make()
    workers = Workers(threads, partial(blocked_opener, gate))
    workers.pool.submit(order("echo"))
    gates.open(gate)
    workers.pool.close()


def test_close_while_the_process_is_being_started(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to kill yet when the query is stopped; the worker must end all the same."""
    is_starting, may_start = threading.Event(), threading.Event()

    class SlowPopen(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **kwargs: object) -> None:
            is_starting.set()
            may_start.wait(60)
            super().__init__(*args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", SlowPopen)
    workers = Workers(threads, failing_opener)
    workers.pool.submit(order("echo"))
    is_starting.wait(60)
    closing = threading.Thread(target=workers.pool.close)
    closing.start()
    may_start.set()
    closing.join(END_TIMEOUT_S)
    assert not closing.is_alive()


DRIVER = """
    import os, sys
    from pathlib import Path
    from penstock.engine.pools.threads import Threads
    from tests.engine.pools.handlers import Diary, Reports, opener, order, pass_gate, process_pool

    folder = Path(sys.argv[1])
    threads, reports = Threads(), Reports()
    pool = process_pool(opener(Diary(folder / "diary")), 2, threads, reports.emit)
    tasks = [order(f"start_child_and_wait {folder}/gate-1"), order("parts 100")]
    try:
        for task in tasks:
            pool.submit(task)
        reports.next()
        pass_gate(f"{folder}/gate-2")
        reports.next()
    finally:
        pool.close()
        threads.close()
"""


@pytest.fixture
def driver(tmp_path: Path, gates: Gates) -> Iterator[subprocess.Popen[bytes]]:
    """Another process with two workers, one busy, one with a task at rest; the busy one has a child."""
    inside, ready = gates.make(), gates.make()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        gates.open(inside)
        gates.open(ready)
        yield process
        process.kill()


def test_workers_end_with_a_driver_that_is_killed(driver: subprocess.Popen[bytes], diary: Diary) -> None:
    workers = pids(diary, "open")
    assert len(workers) == 2
    assert all(psutil.pid_exists(pid) for pid in workers)
    driver.kill()
    driver.wait()
    wait_for_end(*workers, *pids(diary, "child"))


def test_ctrl_c_is_for_the_driver_which_ends_its_workers(driver: subprocess.Popen[bytes], diary: Diary) -> None:
    """The terminal sends the signal to the whole process group; workers must not add their own tracebacks."""
    os.killpg(driver.pid, signal.SIGINT)
    _, errors = driver.communicate(timeout=END_TIMEOUT_S)
    assert errors.count(b"KeyboardInterrupt") == 1
    assert b"worker" not in errors
    wait_for_end(*pids(diary, "open"), *pids(diary, "child"))
    assert diary.lines("close") == ["close"], "the one that was idle"

"""Whether a function holds the GIL, judged from what its tasks took: no thread runs here."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.engine.pools.gil import GilWatch
from penstock.events.cpu_clock import wanted_cpu_s

TASK_S = 0.1


def watched(
    num_workers: int,
    cpu_share: float,
    seconds: float = 2.0,
    watch: GilWatch | None = None,
    now: float = 100.0,
    task_s: float = TASK_S,
) -> GilWatch:
    """Return a watch that saw workers side by side whose tasks ran on a core for a share of the time they took."""
    watch = watch or GilWatch()
    end = now + seconds
    while now < end:
        for _ in range(num_workers):
            watch.note_start(now)
        now += task_s
        for _ in range(num_workers):
            watch.note_end(now, task_s, task_s * cpu_share)
    return watch


@pytest.mark.parametrize(
    ("num_workers", "cpu_share"),
    [
        pytest.param(2, 0.5, id="two take turns"),
        pytest.param(8, 1 / 8, id="eight take turns"),
        pytest.param(32, 2 / 32, id="a part of the work releases it"),
    ],
)
def test_threads_that_share_a_core_between_them_are_held_back(num_workers: int, cpu_share: float) -> None:
    assert watched(num_workers, cpu_share).is_held_back


@pytest.mark.parametrize(
    ("num_workers", "cpu_share"),
    [
        pytest.param(2, 1.0, id="numpy"),
        pytest.param(2, 0.8, id="numpy with a little Python"),
        pytest.param(2, 0.05, id="calls of a server"),
        pytest.param(64, 0.01, id="many calls of a server"),
        pytest.param(1, 1.0, id="one worker"),
        pytest.param(1, 0.5, id="one worker that reads a disk"),
    ],
)
def test_others_are_not(num_workers: int, cpu_share: float) -> None:
    assert not watched(num_workers, cpu_share).is_held_back


def test_tasks_that_are_over_at_once_are_not_sent_to_processes() -> None:
    assert not watched(2, 0.5, task_s=0.002).is_held_back


def test_a_moment_is_not_enough() -> None:
    assert not watched(2, 0.5, seconds=0.5).is_held_back


def test_a_function_that_stops_holding_it_is_not_held_back_any_more() -> None:
    assert not watched(2, 1.0, watch=watched(2, 0.5), now=200.0).is_held_back


def test_the_clock_counts_work_and_not_sleep() -> None:
    """A busy machine lets a thread wait after it has slept, which counts: so the shortest of some waits decides."""
    worked: list[float] = []
    slept: list[float] = []

    def work() -> None:
        started = wanted_cpu_s()
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        worked.append(wanted_cpu_s() - started)
        for _ in range(8):
            before = wanted_cpu_s()
            threading.Event().wait(0.2)
            slept.append(wanted_cpu_s() - before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert worked[0] >= 0.04
    assert min(slept) < 0.1

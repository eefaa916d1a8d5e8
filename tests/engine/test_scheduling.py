"""Which stage goes next, when a queue is fed, what is expected of a stage: functions of numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import mean

import pytest

from penstock.config import task_share
from penstock.engine.pacing import MAX_PACED_ROWS, PACED_TASK_S, RowPace, paced_rows
from penstock.engine.scheduling import is_queue_short, num_admitted, pick_stage
from penstock.engine.task_costs import FIRST_GROWTH, GrowthEstimate


@dataclass
class Candidate:
    """A stage that may run and fits, unless said otherwise."""

    name: str
    has_input: bool = True
    has_part: bool = False
    has_capacity: bool = True
    is_wanted: bool = True
    reads_on: bool = False
    nbytes_ahead: int = 1
    nbytes_expected: int = 10


def fits(name: str) -> Candidate:
    return Candidate(name)


def too_big(name: str, nbytes_ahead: int = 1) -> Candidate:
    return Candidate(name, nbytes_expected=1_000, nbytes_ahead=nbytes_ahead)


def part(name: str) -> Candidate:
    return Candidate(name, has_input=False, has_part=True)


@pytest.mark.parametrize(
    ("stages", "is_idle", "picked"),
    [
        pytest.param([fits("a"), fits("b"), fits("c")], False, "c", id="the most downstream goes first"),
        pytest.param([fits("a"), Candidate("b", has_input=False)], False, "a", id="not without input"),
        pytest.param([fits("a"), Candidate("b", has_capacity=False)], False, "a", id="not without a free worker"),
        pytest.param([fits("a"), Candidate("b", is_wanted=False)], False, "a", id="not if the next has enough"),
        pytest.param([fits("a"), too_big("b")], False, "a", id="not beyond the budget"),
        pytest.param([fits("a"), Candidate("b", nbytes_expected=100)], False, "b", id="up to the budget"),
        pytest.param([fits("a"), too_big("b", nbytes_ahead=0)], False, "b", id="always with nothing ahead"),
        pytest.param([too_big("a"), too_big("b")], False, None, id="nothing fits: wait for what runs"),
        pytest.param([too_big("a"), too_big("b")], True, "b", id="nothing fits, nothing runs: the budget gives way"),
        pytest.param([Candidate("a", is_wanted=False)], True, "a", id="nothing runs: wanted or not"),
        pytest.param([Candidate("a", has_input=False), Candidate("b", has_capacity=False)], True, None, id="not able"),
        pytest.param([too_big("a"), part("b")], False, None, id="a part of a batch waits for what runs"),
        pytest.param([part("a"), too_big("b")], True, "a", id="nothing runs: a part of a batch before the budget"),
        pytest.param([Candidate("a", reads_on=True), fits("b")], False, "a", id="an open file is read on first"),
        pytest.param([Candidate("a", reads_on=True, nbytes_ahead=95), fits("b")], False, "b", id="within the budget"),
        pytest.param([], True, None, id="no stages"),
    ],
)
def test_pick_stage(stages: list[Candidate], is_idle: bool, picked: str | None) -> None:
    choice = pick_stage(stages, free_bytes=100, is_idle=is_idle)
    assert (choice and choice.name) == picked


@pytest.mark.parametrize("free_bytes", [0, -50])
def test_a_stage_that_gives_nothing_runs_whatever_is_free(free_bytes: int) -> None:
    """A budget that is overdrawn stops what needs memory; an output of no bytes needs none."""
    stage = Candidate("filter", nbytes_expected=0)
    assert pick_stage([stage], free_bytes, is_idle=False) == (stage if free_bytes == 0 else None)


@pytest.mark.parametrize(
    ("num_tasks", "num_takers", "num_feeders", "is_short"),
    [
        (0, 1, 1, True),
        (2, 1, 1, True),
        (3, 1, 1, False),
        (8, 1, 8, True),  # many slow feeders: what they give next comes late
        (10, 1, 8, False),
        (16, 8, 1, True),
        (17, 8, 1, False),
    ],
)
def test_is_queue_short(num_tasks: int, num_takers: int, num_feeders: int, is_short: bool) -> None:
    assert is_queue_short(num_tasks, num_takers, num_feeders) is is_short


def test_tasks_that_come_count_once_the_takers_have_enough() -> None:
    assert is_queue_short(3, 2, 8, num_coming=100)
    assert is_queue_short(4, 2, 8, num_coming=7)
    assert not is_queue_short(4, 2, 8, num_coming=8)


def test_quick_feeders_keep_the_queue_shorter() -> None:
    quick, slow = {"taker_s": 0.1, "feeder_s": 0.04}, {"taker_s": 0.1, "feeder_s": 2.0}
    assert is_queue_short(5, 2, 8, **quick)
    assert not is_queue_short(6, 2, 8, **quick)
    assert not is_queue_short(3, 2, 8, num_coming=3, **quick)
    assert is_queue_short(3, 2, 8, feeder_s=0.04)
    assert not is_queue_short(4, 2, 8, feeder_s=0.04)
    assert is_queue_short(11, 2, 8, **slow)
    assert is_queue_short(3, 2, 8, num_coming=100, **slow)


def estimate(total_in: int, total_out: int) -> GrowthEstimate:
    growth = GrowthEstimate()
    if total_in:
        growth.add_output(total_in, total_out)
    return growth


@pytest.mark.parametrize(
    ("nbytes_in", "total_in", "total_out", "expected"),
    [
        (100, 0, 0, 100 * FIRST_GROWTH),  # nothing known: the worst
        (0, 0, 0, 0),
        (100, 10, 0, 0),  # it gave nothing so far
        (100, 10, 10, 100),
        (100, 10, 500, 5_000),
        (100, 500, 10, 2),
        (1, 500, 10, 1),  # a part of a byte is a byte
        (10**15, 10**15, 3 * 10**15, 3 * 10**15),  # no rounding where bytes are many
    ],
)
def test_expected_output(nbytes_in: int, total_in: int, total_out: int, expected: int) -> None:
    assert estimate(total_in, total_out).output_of(nbytes_in) == expected


GB = 10**9


@pytest.mark.parametrize(
    ("share", "total_in", "total_out", "most"),
    [
        (GB, 0, 0, GB // FIRST_GROWTH),  # nothing known: the worst
        (GB, 10, 0, GB),  # what shrinks is bound by its input
        (GB, 10, 10, GB),
        (GB, 10, 500, GB // 50),
        (GB, 1, 10**6, GB // 10**6),  # rows of some bytes that give megabytes
        (0, 10, 10, 1),
    ],
)
def test_most_input(share: int, total_in: int, total_out: int, most: int) -> None:
    assert estimate(total_in, total_out).most_input(share) == most


@pytest.mark.parametrize("num_cores", [1, 4, 64])
def test_tasks_on_all_cores_leave_room_for_what_waits(num_cores: int) -> None:
    copies = 3  # of an output, as a process has them
    assert copies * num_cores * task_share(GB, num_cores) < GB / 2


@pytest.mark.parametrize(
    ("num_rows", "busy_s", "wanted"),
    [
        (32, PACED_TASK_S, 32),  # just right
        (32, PACED_TASK_S / 2, 64),
        (32, PACED_TASK_S * 4, 8),
        (32, 60.0, 1),  # a row takes longer than a task should
        (32, 0.0, 256),  # too fast to be measured: eight times as many
        (1, 0.0, 8),
        (MAX_PACED_ROWS, 0.001, MAX_PACED_ROWS),
        (0, 0.0, 1),
    ],
)
def test_paced_rows(num_rows: int, busy_s: float, wanted: int) -> None:
    assert paced_rows(num_rows, busy_s) == wanted


@pytest.mark.parametrize("row_s", [1e-7, 1e-4, 0.003, 0.02, 2.0])
def test_pacing_settles(row_s: float) -> None:
    """From any start, a few tasks are enough to find the size that takes a moment."""
    num_rows, pace = 32, RowPace()
    for _ in range(8):
        num_rows = pace.next_rows(num_rows, num_rows * row_s)
    assert num_rows == max(1, min(MAX_PACED_ROWS, round(PACED_TASK_S / row_s))) or num_rows * row_s == pytest.approx(
        PACED_TASK_S, rel=0.2
    )


@pytest.mark.parametrize(
    ("task_s", "row_s", "least", "most"),
    [
        (0.2, 0.001, 200, 1000),  # thousands of columns: half of the time and more is that of the rows
        (0.0, 0.001, 50, 250),
        (0.0, 1.0, 1, 2),  # slow rows: nothing is gained by larger tasks
    ],
)
def test_pacing_tells_the_cost_of_a_task_from_that_of_its_rows(
    task_s: float, row_s: float, least: int, most: int
) -> None:
    """Durations vary by half, as on a busy machine."""
    random, pace, sizes = Random(0), RowPace(), [32]
    for _ in range(200):
        durations = [task_s] + [row_s] * sizes[-1]
        sizes.append(pace.next_rows(sizes[-1], sum(random.lognormvariate(0, 0.5) * each for each in durations)))
    assert least <= mean(sizes[8:]) <= most


@pytest.mark.parametrize(
    ("waiting", "running", "num_started"),
    [
        pytest.param([60], [], 1, id="fits"),
        pytest.param([60], [40], 1, id="fits exactly"),
        pytest.param([61], [40], 0, id="waits for what runs"),
        pytest.param([500], [], 1, id="too large for the node: alone"),
        pytest.param([500, 1], [], 1, id="nothing beside a task that is too large"),
        pytest.param([500], [1], 0, id="too large: not beside another"),
        pytest.param([30, 30, 30, 30], [], 3, id="as many as fit"),
        pytest.param([90, 5], [20], 0, id="none overtakes the first"),
        pytest.param([], [40], 0, id="none waits"),
    ],
)
def test_a_node_admits_tasks_within_its_budget(waiting: list[int], running: list[int], num_started: int) -> None:
    assert num_admitted(waiting, len(running), sum(running), budget=100) == num_started

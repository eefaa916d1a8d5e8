"""How bundles become tasks: cut and joined by row counts, in order, none lost or doubled."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given, strategies as st

from penstock.contracts import Bundle, Task
from penstock.engine.in_flight import InFlight
from penstock.engine.inbox import Gate
from penstock.engine.stage_input import StageInput
from penstock.engine.task_costs import LEAST_FOOTPRINT
from penstock.engine.task_sizes import ExactRows, LimitedRows, MeasuredRows, PacedRows, task_sizes
from penstock.plan.stages import AtMost, Cut, Evenly, Exactly, Gathered, Inbox as Policy, Measured, Paced, Whole

SIZES = st.lists(st.integers(1, 50), max_size=30)


def bundles_of(sizes: list[int]) -> list[Bundle]:
    """Return bundles of numbered rows that weigh ten bytes each."""
    first = 0
    bundles = []
    for size in sizes:
        bundles.append(Bundle(range(first, first + size), size, size * 10))
        first += size
    return bundles


def rows_of(task: tuple[Bundle, ...]) -> list[int]:
    return [row for bundle in task for row in bundle.handle[bundle.offset : bundle.offset + bundle.num_rows]]


class Input(StageInput):
    """The input of a stage with one upstream stage and a policy, as the tests look at it."""

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        in_flight = InFlight(LEAST_FOOTPRINT, is_ordered=False)
        super().__init__(None, task_sizes(policy, clock), in_flight, clock, 1, None)

    @property
    def num_tasks(self) -> int:
        return self.next_task.num_ready

    def close(self) -> None:
        self.close_one(None)

    def taken(self, most_rows: int | None = None) -> tuple[Bundle, ...]:
        item = self.take(most_rows).item
        assert isinstance(item, tuple)
        return item

    def note_task(self, num_rows: int, busy_s: float) -> None:
        self.learn(Task((), 0, 0, num_rows, busy_s=busy_s))

    def set_rows(self, num_rows: int) -> None:
        """Set the rows of the next tasks, where they are measured."""
        if isinstance(self.sizes, MeasuredRows):
            self.sizes.search.num_rows = num_rows
        else:
            assert isinstance(self.sizes, ExactRows | LimitedRows | PacedRows)
            self.sizes.rows_per_task = num_rows
        self._next = None


def filled(policy: Policy, sizes: list[int], clock: Callable[[], float] = time.monotonic) -> Input:
    waiting = Input(policy, clock)
    for bundle in bundles_of(sizes):
        waiting.push(bundle)
    return waiting


def drained(waiting: Input) -> list[list[int]]:
    tasks = []
    while waiting.num_tasks:
        expected_nbytes = waiting.next_nbytes
        task = waiting.taken()
        assert sum(bundle.nbytes for bundle in task) == expected_nbytes
        tasks.append(rows_of(task))
    return tasks


def sizes_of(tasks: list[list[int]]) -> list[int]:
    return [len(task) for task in tasks]


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        (Whole(), [7, 7, 6, 5]),  # 20 rows in three, then what is small enough
        (AtMost(6), [6, 6, 6, 2, 5]),
        (Paced(), [7, 7, 6, 5]),  # seven: none is a sliver
        (Exactly(12), [12, 12, 1]),  # promised
        (Gathered(200), [20, 5]),
        (Evenly(2), [13, 12]),
    ],
)
def test_tasks_are_cut_to_what_memory_suits_unless_their_size_is_promised(policy: Policy, sizes: list[int]) -> None:
    waiting = filled(policy, [20, 5])
    waiting.close()
    if isinstance(waiting.sizes, PacedRows):
        waiting.set_rows(6)
    waiting.limit_tasks(75)
    assert sizes_of(drained(waiting)) == sizes


def test_a_row_that_is_too_large_is_a_task_all_the_same() -> None:
    waiting = filled(Whole(), [3])
    waiting.limit_tasks(1)
    assert drained(waiting) == [[0], [1], [2]]


@dataclass(frozen=True)
class Step:
    """Something that happens to an inbox: a bundle comes, a task is taken, or the pace changes."""

    push: int = 0
    takes: int = 0
    rows_per_task: int | None = None


STEPS = st.lists(
    st.builds(Step, st.integers(0, 50), st.integers(0, 4), st.none() | st.integers(1, 60)),
    max_size=30,
)


@pytest.mark.parametrize(("row_s", "last_rows"), [(1e-4, 1024), (0.001, 250), (0.1, 4)])
def test_tasks_grow_to_the_rows_of_a_moment_and_shrink_when_rows_wait(row_s: float, last_rows: int) -> None:
    now = [0.0]
    waiting = filled(AtMost(4, quick_rows=1024), [200_000], clock=lambda: now[0])

    def sizes(num_tasks: int, row_s: float) -> list[int]:
        found = []
        for _ in range(num_tasks):
            found.append(sum(bundle.num_rows for bundle in waiting.taken()))
            now[0] += row_s * found[-1]
            waiting.note_task(found[-1], now[0])
        return found

    growing = sizes(15, row_s)
    assert growing[0] == 4
    assert growing[-1] == pytest.approx(last_rows, abs=1)
    assert all(later <= 4 * earlier for earlier, later in itertools.pairwise(growing))
    assert sizes(40, 0.2)[-1] == 4


def test_tasks_of_others_stay_as_they_are() -> None:
    waiting = filled(AtMost(4), [200])
    waiting.note_task(4, 1e-9)
    assert sum(bundle.num_rows for bundle in waiting.taken()) == 4


POLICIES = st.one_of(
    st.just(Whole()),
    st.builds(Exactly, st.integers(1, 60), st.booleans()),
    st.builds(AtMost, st.integers(1, 60)),
    st.builds(Gathered, st.integers(1, 500)),
    st.just(Paced()),
    st.builds(Measured, st.integers(1, 60)),
    st.builds(Evenly, st.integers(1, 12)),
)


@given(POLICIES, STEPS)
def test_rows_come_out_in_order_none_lost_or_doubled(policy: Policy, steps: list[Step]) -> None:
    waiting = Input(policy)
    num_pushed, taken = 0, list[int]()
    for step in steps:
        if step.push:
            waiting.push(Bundle(range(num_pushed, num_pushed + step.push), step.push, step.push * 10))
            num_pushed += step.push
        if step.rows_per_task is not None:
            if isinstance(policy, Exactly) and policy.is_cut_later:
                waiting.set_rows(step.rows_per_task * policy.num_rows)
            elif isinstance(policy, Paced | Measured):
                waiting.set_rows(step.rows_per_task)
        for _ in range(step.takes):
            if waiting.num_tasks or (waiting.has_part and step.takes > 2):
                taken += rows_of(waiting.taken())
        assert waiting.inbox.num_rows == num_pushed - len(taken)
        assert waiting.inbox.nbytes == 10 * waiting.inbox.num_rows
    waiting.close()
    for rows in drained(waiting):
        taken += rows
    assert taken == list(range(num_pushed))
    assert (waiting.inbox.num_rows, waiting.inbox.nbytes) == (0, 0)


@given(POLICIES, SIZES)
def test_no_task_is_empty_and_their_number_is_never_overstated(policy: Policy, sizes: list[int]) -> None:
    waiting = filled(policy, sizes)
    waiting.close()
    while promised := waiting.num_tasks:
        assert waiting.taken()
        assert waiting.num_tasks >= promised - 1


@given(SIZES, st.integers(1, 60))
def test_exactly(sizes: list[int], num_rows: int) -> None:
    waiting = filled(Exactly(num_rows), sizes)
    assert sizes_of(drained(waiting)) == [num_rows] * (sum(sizes) // num_rows)
    waiting.close()
    assert sizes_of(drained(waiting)) == ([sum(sizes) % num_rows] if sum(sizes) % num_rows else [])


@given(SIZES, st.integers(1, 60), st.integers(1, 9), st.integers(1, 500))
def test_a_task_that_its_worker_cuts_has_whole_batches(
    sizes: list[int], num_rows: int, num_batches: int, nbytes: int
) -> None:
    waiting = filled(Exactly(num_rows, is_cut_later=True), sizes)
    waiting.set_rows(num_rows * num_batches)
    waiting.limit_tasks(nbytes)
    tasks = sizes_of(drained(waiting))
    assert all(size % num_rows == 0 and size <= num_rows * num_batches for size in tasks)
    assert all(size == num_rows or size * 10 <= nbytes for size in tasks)
    assert sum(tasks) == sum(sizes) - sum(sizes) % num_rows
    waiting.close()
    assert sizes_of(drained(waiting)) == ([sum(sizes) % num_rows] if sum(sizes) % num_rows else [])


def test_the_batches_of_a_task_follow_their_duration() -> None:
    waiting = filled(Exactly(10, is_cut_later=True), [10_000])
    taken = list[int]()
    for batch_s in (0.001, 0.001, 0.001, 0.5, 0.5):
        num_rows = sum(bundle.num_rows for bundle in waiting.taken())
        waiting.note_task(num_rows, batch_s * num_rows / 10)
        taken.append(num_rows)
    assert taken == [10, 80, 200, 200, 10]
    waiting.set_rows(200)
    assert [sum(bundle.num_rows for bundle in waiting.taken(most)) for most in (35, 5)] == [30, 10]


@given(SIZES, st.integers(1, 60))
def test_at_most_cuts_and_never_joins(sizes: list[int], num_rows: int) -> None:
    expected = [part for size in sizes for part in [num_rows] * (size // num_rows) + [size % num_rows] if part]
    assert sizes_of(drained(filled(AtMost(num_rows), sizes))) == expected


@given(SIZES, st.lists(st.integers(1, 60), min_size=1))
def test_paced_follows_its_pace(sizes: list[int], paces: list[int]) -> None:
    waiting = filled(Paced(), sizes)
    tasks = []
    while waiting.num_tasks:
        pace = paces[len(tasks) % len(paces)]
        waiting.set_rows(pace)
        tasks.append(rows_of(waiting.taken()))
        assert len(tasks[-1]) <= 1.5 * pace
    starts = {bundle.handle[0] for bundle in bundles_of(sizes)}
    assert starts <= {task[0] for task in tasks}, "a task reaches across bundles"


def test_paced_tasks_of_a_bundle_are_about_alike() -> None:
    waiting = filled(Paced(), [41, 100])
    waiting.set_rows(31)
    assert sizes_of(drained(waiting)) == [41, 34, 33, 33]
    assert isinstance(waiting.sizes, PacedRows)
    waiting.note_task(33, 0.05)
    assert waiting.sizes.rows_per_task == 66
    waiting.note_task(33, 0.01)
    assert waiting.sizes.rows_per_task == 66, "half of the planned rows show too little"


@given(SIZES, st.integers(1, 60))
def test_measured_joins_and_cuts_to_the_size_found(sizes: list[int], num_rows: int) -> None:
    waiting = filled(Measured(1000), sizes)
    waiting.set_rows(num_rows)
    assert sizes_of(drained(waiting)) == [num_rows] * (sum(sizes) // num_rows)
    rest = sum(sizes) % num_rows
    assert waiting.has_part == bool(rest)
    waiting.close()
    assert sizes_of(drained(waiting)) == ([rest] if rest else [])


def test_a_part_of_a_measured_batch_may_leave() -> None:
    waiting = filled(Measured(1000), [2, 3])
    assert (waiting.num_tasks, waiting.has_part, waiting.next_nbytes) == (0, True, 50)
    assert rows_of(waiting.taken()) == [0, 1, 2, 3, 4]
    assert not waiting.has_part


def test_heavy_rows_make_small_measured_batches() -> None:
    waiting = filled(Measured(1000), [50])
    waiting.set_rows(40)
    assert isinstance(waiting.sizes, MeasuredRows)
    waiting.sizes.search.fit(
        memory_bytes=400, num_workers=2
    )  # a quarter of it, for two: 50 bytes each, and a row weighs ten
    assert sizes_of(drained(waiting)) == [5] * 10


@given(SIZES, st.integers(1, 12))
@example([1, 1], 5)
def test_evenly(sizes: list[int], num_parts: int) -> None:
    waiting = filled(Evenly(num_parts), sizes)
    assert waiting.num_tasks == 0, "rows are held until the last has come"
    waiting.close()
    parts = sizes_of(drained(waiting))
    assert len(parts) == min(num_parts, sum(sizes))
    assert not parts or max(parts) - min(parts) <= 1


@given(SIZES)
def test_whole_keeps_bundles(sizes: list[int]) -> None:
    assert sizes_of(drained(filled(Whole(), sizes))) == sizes


def test_an_incomplete_batch_waits_for_the_end() -> None:
    waiting = filled(Exactly(10), [9])
    assert waiting.num_tasks == 0
    waiting.close()
    assert waiting.num_tasks == 1


def test_bundles_that_need_no_cut_are_passed_on_as_they_are() -> None:
    (bundle,) = bundles_of([10])
    waiting = Input(Exactly(10))
    waiting.push(bundle)
    assert waiting.taken() == (bundle,)


def test_clear_drops_everything() -> None:
    waiting = filled(Evenly(3), [5, 5])
    waiting.clear()
    assert (waiting.num_tasks, waiting.inbox.num_rows, waiting.inbox.nbytes, waiting.inbox.is_closed) == (0, 0, 0, True)


@pytest.mark.parametrize("sizes", [[7], [3, 1, 5]])
def test_bytes_that_do_not_divide_do_not_go_astray(sizes: list[int]) -> None:
    waiting = Input(AtMost(2))
    for size in sizes:
        waiting.push(Bundle(range(size), size, nbytes=5))
    while waiting.num_tasks:
        waiting.taken()
        assert waiting.inbox.nbytes >= 0
    assert waiting.inbox.nbytes == 0


@given(SIZES, st.none() | st.integers(0, 300), st.integers(0, 300))
def test_gate_cuts(sizes: list[int], num_rows: int | None, offset: int) -> None:
    gate = Gate(Cut(num_rows, offset))
    passed: list[int] = []
    for bundle in bundles_of(sizes):
        if gate.is_satisfied:
            break
        part = gate.pass_on(bundle)
        if part is not None:
            assert part.num_rows > 0
            assert part.nbytes == 10 * part.num_rows
            passed += rows_of((part,))
    end = None if num_rows is None else offset + num_rows
    assert passed == list(range(sum(sizes)))[offset:end]
    assert gate.is_satisfied == (num_rows is not None and len(passed) == num_rows)


def test_gate_of_other_policies_lets_all_through() -> None:
    gate = Gate(Whole())
    (bundle,) = bundles_of([4])
    assert gate.pass_on(bundle) is bundle
    assert not gate.is_satisfied


def test_gathered_joins_small_bundles_and_leaves_large_ones_whole() -> None:
    waiting = filled(Gathered(100), [1, 1, 1])
    assert waiting.num_tasks == 0
    waiting.close()
    assert waiting.num_tasks == 1  # what is there goes
    assert sum(bundle.num_rows for bundle in waiting.taken()) == 3
    open_input = Input(Gathered(100))
    open_input.push(Bundle("small", 1, 60))
    assert open_input.num_tasks == 0
    open_input.push(Bundle("large", 5, 500))
    assert [bundle.handle for bundle in open_input.taken()] == ["small", "large"]


def test_a_bundle_that_is_a_task_is_gathered_with_no_other() -> None:
    waiting = Input(Gathered(100))
    for name, nbytes, is_task in [
        ("a", 60, False),
        ("b", 60, True),
        ("c", 60, False),
        ("d", 60, False),
        ("e", 1, False),
    ]:
        waiting.push(Bundle(name, 1, nbytes, is_task=is_task))
    waiting.close()
    tasks = []
    while waiting.num_tasks:
        tasks.append("".join(bundle.handle for bundle in waiting.taken()))
    assert tasks == ["a", "b", "cd", "e"]

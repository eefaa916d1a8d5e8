"""How bundles become tasks: cut and joined by row counts, in order, none lost or doubled."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given, strategies as st

from penstock.contracts import Bundle
from penstock.engine.inbox import Gate, Inbox
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


def filled(policy: Policy, sizes: list[int]) -> Inbox:
    inbox = Inbox(policy)
    for bundle in bundles_of(sizes):
        inbox.push(bundle)
    return inbox


def drained(inbox: Inbox) -> list[list[int]]:
    tasks = []
    while inbox.num_tasks:
        expected_nbytes = inbox.next_nbytes
        task = inbox.take()
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
    inbox = filled(policy, [20, 5])
    inbox.close()
    inbox.rows_per_task = max(inbox.rows_per_task, 6)
    inbox.max_task_nbytes = 75
    assert sizes_of(drained(inbox)) == sizes


def test_a_row_that_is_too_large_is_a_task_all_the_same() -> None:
    inbox = filled(Whole(), [3])
    inbox.max_task_nbytes = 1
    assert drained(inbox) == [[0], [1], [2]]


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


def test_tasks_that_take_no_time_grow_and_shrink_again_when_they_wait() -> None:
    inbox = filled(AtMost(4, quick_rows=16), [200])
    sizes = []
    for busy_s in (1e-5, 1e-5, 1e-5, 0.5, 0.5):
        sizes.append(sum(bundle.num_rows for bundle in inbox.take()))
        inbox.note_task(sizes[-1], busy_s, 0, 0)
    assert sizes == [4, 16, 16, 16, 4]


def test_tasks_of_others_stay_as_they_are() -> None:
    inbox = filled(AtMost(4), [200])
    inbox.note_task(4, 1e-9, 0, 0)
    assert sum(bundle.num_rows for bundle in inbox.take()) == 4


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
    inbox = Inbox(policy)
    num_pushed, taken = 0, list[int]()
    for step in steps:
        if step.push:
            inbox.push(Bundle(range(num_pushed, num_pushed + step.push), step.push, step.push * 10))
            num_pushed += step.push
        if step.rows_per_task is not None:
            if isinstance(policy, Paced):
                inbox.rows_per_task = step.rows_per_task
            if isinstance(policy, Exactly) and policy.is_cut_later:
                inbox.rows_per_task = step.rows_per_task * policy.num_rows
            if inbox.size_search is not None:
                inbox.size_search.num_rows = step.rows_per_task
        for _ in range(step.takes):
            if inbox.num_tasks or (inbox.has_part and step.takes > 2):
                taken += rows_of(inbox.take())
        assert inbox.num_rows == num_pushed - len(taken)
        assert inbox.nbytes == 10 * inbox.num_rows
    inbox.close()
    for rows in drained(inbox):
        taken += rows
    assert taken == list(range(num_pushed))
    assert (inbox.num_rows, inbox.nbytes) == (0, 0)


@given(POLICIES, SIZES)
def test_no_task_is_empty_and_their_number_is_never_overstated(policy: Policy, sizes: list[int]) -> None:
    inbox = filled(policy, sizes)
    inbox.close()
    while promised := inbox.num_tasks:
        assert inbox.take()
        assert inbox.num_tasks >= promised - 1


@given(SIZES, st.integers(1, 60))
def test_exactly(sizes: list[int], num_rows: int) -> None:
    inbox = filled(Exactly(num_rows), sizes)
    assert sizes_of(drained(inbox)) == [num_rows] * (sum(sizes) // num_rows)
    inbox.close()
    assert sizes_of(drained(inbox)) == ([sum(sizes) % num_rows] if sum(sizes) % num_rows else [])


@given(SIZES, st.integers(1, 60), st.integers(1, 9), st.integers(1, 500))
def test_a_task_that_its_worker_cuts_has_whole_batches(
    sizes: list[int], num_rows: int, num_batches: int, nbytes: int
) -> None:
    inbox = filled(Exactly(num_rows, is_cut_later=True), sizes)
    inbox.rows_per_task, inbox.max_task_nbytes = num_rows * num_batches, nbytes
    tasks = sizes_of(drained(inbox))
    assert all(size % num_rows == 0 and size <= num_rows * num_batches for size in tasks)
    assert all(size == num_rows or size * 10 <= nbytes for size in tasks)
    assert sum(tasks) == sum(sizes) - sum(sizes) % num_rows
    inbox.close()
    assert sizes_of(drained(inbox)) == ([sum(sizes) % num_rows] if sum(sizes) % num_rows else [])


def test_the_batches_of_a_task_follow_their_duration() -> None:
    inbox = filled(Exactly(10, is_cut_later=True), [10_000])
    taken = list[int]()
    for batch_s in (0.001, 0.001, 0.001, 0.5, 0.5):
        num_rows = sum(bundle.num_rows for bundle in inbox.take())
        inbox.note_task(num_rows, batch_s * num_rows / 10, 0, 0)
        taken.append(num_rows)
    assert taken == [10, 80, 200, 200, 10]
    inbox.rows_per_task = 200
    assert [sum(bundle.num_rows for bundle in inbox.take(most_rows=most)) for most in (35, 5)] == [30, 10]


@given(SIZES, st.integers(1, 60))
def test_at_most_cuts_and_never_joins(sizes: list[int], num_rows: int) -> None:
    expected = [part for size in sizes for part in [num_rows] * (size // num_rows) + [size % num_rows] if part]
    assert sizes_of(drained(filled(AtMost(num_rows), sizes))) == expected


@given(SIZES, st.lists(st.integers(1, 60), min_size=1))
def test_paced_follows_its_pace(sizes: list[int], paces: list[int]) -> None:
    inbox = filled(Paced(), sizes)
    tasks = []
    while inbox.num_tasks:
        inbox.rows_per_task = paces[len(tasks) % len(paces)]
        tasks.append(rows_of(inbox.take()))
        assert len(tasks[-1]) <= 1.5 * inbox.rows_per_task
    starts = {bundle.handle[0] for bundle in bundles_of(sizes)}
    assert starts <= {task[0] for task in tasks}, "a task reaches across bundles"


def test_paced_tasks_of_a_bundle_are_about_alike() -> None:
    inbox = filled(Paced(), [41, 100])
    inbox.rows_per_task = 31
    assert sizes_of(drained(inbox)) == [41, 34, 33, 33]
    inbox.note_task(33, 0.05, 0, 0)
    assert inbox.rows_per_task == 66
    inbox.note_task(33, 0.01, 0, 0)
    assert inbox.rows_per_task == 66, "half of the planned rows show too little"


@given(SIZES, st.integers(1, 60))
def test_measured_joins_and_cuts_to_the_size_found(sizes: list[int], num_rows: int) -> None:
    inbox = filled(Measured(1000), sizes)
    assert inbox.size_search is not None
    inbox.size_search.num_rows = num_rows
    assert sizes_of(drained(inbox)) == [num_rows] * (sum(sizes) // num_rows)
    rest = sum(sizes) % num_rows
    assert inbox.has_part == bool(rest)
    inbox.close()
    assert sizes_of(drained(inbox)) == ([rest] if rest else [])


def test_a_part_of_a_measured_batch_may_leave() -> None:
    inbox = filled(Measured(1000), [2, 3])
    assert (inbox.num_tasks, inbox.has_part, inbox.next_nbytes) == (0, True, 50)
    assert rows_of(inbox.take()) == [0, 1, 2, 3, 4]
    assert not inbox.has_part


def test_heavy_rows_make_small_measured_batches() -> None:
    inbox = filled(Measured(1000), [50])
    assert inbox.size_search is not None
    inbox.size_search.num_rows = 40
    inbox.size_search.fit(
        memory_bytes=400, num_workers=2
    )  # a quarter of it, for two: 50 bytes each, and a row weighs ten
    assert sizes_of(drained(inbox)) == [5] * 10


@given(SIZES, st.integers(1, 12))
@example([1, 1], 5)
def test_evenly(sizes: list[int], num_parts: int) -> None:
    inbox = filled(Evenly(num_parts), sizes)
    assert inbox.num_tasks == 0, "rows are held until the last has come"
    inbox.close()
    parts = sizes_of(drained(inbox))
    assert len(parts) == min(num_parts, sum(sizes))
    assert not parts or max(parts) - min(parts) <= 1


@given(SIZES)
def test_whole_keeps_bundles(sizes: list[int]) -> None:
    assert sizes_of(drained(filled(Whole(), sizes))) == sizes


def test_an_incomplete_batch_waits_for_the_end() -> None:
    inbox = filled(Exactly(10), [9])
    assert inbox.num_tasks == 0
    inbox.close()
    assert inbox.num_tasks == 1


def test_bundles_that_need_no_cut_are_passed_on_as_they_are() -> None:
    (bundle,) = bundles_of([10])
    inbox = Inbox(Exactly(10))
    inbox.push(bundle)
    assert inbox.take() == (bundle,)


def test_clear_drops_everything() -> None:
    inbox = filled(Evenly(3), [5, 5])
    inbox.clear()
    assert (inbox.num_tasks, inbox.num_rows, inbox.nbytes, inbox.is_closed) == (0, 0, 0, True)


@pytest.mark.parametrize("sizes", [[7], [3, 1, 5]])
def test_bytes_that_do_not_divide_do_not_go_astray(sizes: list[int]) -> None:
    inbox = Inbox(AtMost(2))
    for size in sizes:
        inbox.push(Bundle(range(size), size, nbytes=5))
    while inbox.num_tasks:
        inbox.take()
        assert inbox.nbytes >= 0
    assert inbox.nbytes == 0


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
    inbox = filled(Gathered(100), [1, 1, 1])
    assert inbox.num_tasks == 0
    inbox.close()
    assert inbox.num_tasks == 1  # what is there goes
    assert sum(bundle.num_rows for bundle in inbox.take()) == 3
    open_inbox = Inbox(Gathered(100))
    open_inbox.push(Bundle("small", 1, 60))
    assert open_inbox.num_tasks == 0
    open_inbox.push(Bundle("large", 5, 500))
    assert [bundle.handle for bundle in open_inbox.take()] == ["small", "large"]


def test_a_bundle_that_is_a_task_is_gathered_with_no_other() -> None:
    inbox = Inbox(Gathered(100))
    for name, nbytes, is_task in [
        ("a", 60, False),
        ("b", 60, True),
        ("c", 60, False),
        ("d", 60, False),
        ("e", 1, False),
    ]:
        inbox.push(Bundle(name, 1, nbytes, is_task=is_task))
    inbox.close()
    tasks = []
    while inbox.num_tasks:
        tasks.append("".join(bundle.handle for bundle in inbox.take()))
    assert tasks == ["a", "b", "cd", "e"]

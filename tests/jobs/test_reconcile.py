"""A job that is interrupted anywhere, loses files, inputs and rows, and is resumed: each row exists once."""

from __future__ import annotations

import contextlib
import random

from hypothesis import given, settings, strategies as st

from penstock.contracts import Origin
from penstock.engine.lineage import Kind
from penstock.jobs.reconcile import CutFile, reconcile
from penstock.jobs.state import JobPart, JobState, ReadKey
from penstock.types.row_ranges import RowRange
from tests.jobs.simulation import CrashError, Run, Source, World

KINDS = st.lists(st.sampled_from(["rows", "lot"]), max_size=4).map(tuple)


def new_world(seed: int, kinds: tuple[Kind, ...], can_cut: bool) -> World:
    dice = random.Random(seed)
    world = World(dice, kinds, can_cut)
    world.sources = [Source(number, 0, dice.choice((0, 1, 5, 20, 50))) for number in range(dice.randint(1, 4))]
    return world


def run(
    world: World, *, stale: frozenset[int] = frozenset(), redo: bool = False, crash_after: int | None = None
) -> None:
    state, valid = world.reconcile(stale, redo)
    Run(world, state, valid, crash_after).finish()


def crash_some(world: World, num_runs: int) -> None:
    for _ in range(num_runs):
        try:
            run(world, crash_after=world.dice.randint(0, 60))
        except CrashError:
            continue


@settings(max_examples=150)
@given(st.integers(0, 2**32), KINDS, st.booleans(), st.integers(0, 3))
def test_every_row_exists_once_after_any_crash(
    seed: int, kinds: tuple[Kind, ...], can_cut: bool, num_crashes: int
) -> None:
    world = new_world(seed, kinds, can_cut)
    crash_some(world, num_crashes)
    run(world)
    assert world.found() == world.expected()
    calls = +world.num_calls
    run(world)
    assert world.found() == world.expected()
    assert world.num_calls == calls, "nothing was left to do"


@settings(max_examples=150)
@given(st.integers(0, 2**32), KINDS, st.booleans())
def test_lost_files_and_changed_inputs(seed: int, kinds: tuple[Kind, ...], can_cut: bool) -> None:
    world = new_world(seed, kinds, can_cut)
    dice = world.dice
    for _ in range(3):
        crash_some(world, dice.randint(0, 1))
        if dice.random() < 0.3:
            run(world)
        stale = set()
        match dice.choice(("lose", "damage", "change", "remove", "tear")):
            case "lose":
                for name in dice.sample(sorted(world.files), min(2, len(world.files))):
                    del world.files[name]
            case "damage":
                for name in dice.sample(sorted(world.files), min(2, len(world.files))):
                    world.files[name].append((9, 9, 9))
            case "change":
                changed = dice.choice(world.sources)
                changed.version += 1
                changed.length = dice.choice((0, 3, 30))
                stale = {number for key, number in world.state.reads.items() if key.input == changed.origin[0]}
            case "remove":
                removed = dice.choice(world.sources)
                world.sources = [each for each in world.sources if each is not removed]
                stale = {number for key, number in world.state.reads.items() if key.input == removed.origin[0]}
                if not world.sources:
                    world.sources = [Source(7, 0, 10)]
            case "tear":
                if world.journal:
                    world.journal[-1] = world.journal[-1][:-2]
        with contextlib.suppress(CrashError):
            run(world, stale=frozenset(stale), crash_after=dice.choice((None, 5, 40)))
    run(world)
    assert world.found() == world.expected()


@settings(max_examples=100)
@given(st.integers(0, 2**32), KINDS, KINDS, st.booleans())
def test_rows_that_failed(seed: int, before: tuple[Kind, ...], after: tuple[Kind, ...], can_cut: bool) -> None:
    world = new_world(seed, (*before, "lot", *after), can_cut)
    world.failing, world.failing_stage = set(world.dice.sample(range(50), 10)), len(before)
    crash_some(world, 2)
    run(world)
    assert world.found() == world.expected()
    failed = world.expected_failures()
    assert {failure.error.input for failure in world.state.failures} == {str(row) for row in failed}
    world.failing = set(world.dice.sample(sorted(world.failing), 3))  # the others would do now
    try:
        run(world, redo=True, crash_after=world.dice.choice((3, 30, 300)))
    except CrashError:
        run(world)
    assert world.found() == world.expected()


# --- by hand ---


def file(name: str, rows: int) -> dict[str, object]:
    return {"path": name, "rows": rows, "nbytes": rows, "schema": b""}


def state(*parts: JobPart, lots: dict[int, tuple[Origin, ...]] | None = None, length: int = 20) -> JobState:
    return JobState({ReadKey(0, "x", ""): 0}, {0: length}, list(parts), lots or {})


def test_a_lost_file_takes_its_rows_and_no_others() -> None:
    parts = JobPart((file("a", 5), file("b", 5)), (Origin(0, 0, 10),)), JobPart((file("c", 10),), (Origin(0, 10, 10),))
    valid = reconcile(state(*parts), has_file=lambda file: file["path"] != "b", can_cut=True)
    assert valid.done == {0: [RowRange(0, 5), RowRange(10, 20)]}
    assert [[each["path"] for each in files if isinstance(each, dict)] for files, _ in valid.parts] == [["a"], ["c"]]
    assert [each["path"] for each in valid.gone] == ["b"]


def test_a_part_that_cannot_be_cut_is_lost_as_a_whole() -> None:
    parts = JobPart((file("a", 5), file("b", 5)), (Origin(0, 0, 10),)), JobPart((file("c", 10),), (Origin(0, 10, 10),))
    valid = reconcile(state(*parts), has_file=lambda file: file["path"] != "b", can_cut=False)
    assert valid.done == {0: [RowRange(10, 20)]}
    assert [each["path"] for each in valid.gone] == ["a", "b"]


def test_a_row_to_redo_is_cut_out() -> None:
    part = JobPart((file("a", 10),), (Origin(0, 0, 10),))
    valid = reconcile(state(part), has_file=lambda _: True, can_cut=True, redo=[Origin(0, 4, 1)])
    assert valid.parts == [
        ([CutFile(file("a", 10), (RowRange(0, 4), RowRange(5, 10)))], (Origin(0, 0, 4), Origin(0, 5, 5)))
    ]
    assert valid.done == {0: [RowRange(0, 4), RowRange(5, 10)]}


def test_a_lot_that_lost_a_row_is_redone_with_its_inputs() -> None:
    lots = {1: (Origin(0, 0, 5),), 2: (Origin(0, 5, 5), Origin(1, None, 2))}
    part = JobPart((file("a", 3), file("b", 4)), (Origin(1, None, 3), Origin(2, None, 4)))
    valid = reconcile(state(part, lots=lots), has_file=lambda file: file["path"] != "b", can_cut=True)
    assert valid.done == {}
    assert valid.parts == []
    assert valid.done_lots == {}


def test_an_unfinished_lot_is_cut_out() -> None:
    part = JobPart((file("a", 8),), (Origin(0, 10, 5), Origin(3, None, 3)))
    valid = reconcile(state(part), has_file=lambda _: True, can_cut=True)
    assert valid.parts == [([CutFile(file("a", 8), (RowRange(0, 5),))], (Origin(0, 10, 5),))]
    assert valid.done == {0: [RowRange(10, 15)]}

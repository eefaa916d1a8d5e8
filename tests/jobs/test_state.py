"""The state of a journal, also of a damaged one; unfinished rows; the origins of the rows of tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from penstock.contracts import Bundle, Origin, Report, Task
from penstock.engine.lineage import Kind, Lineage, LineageUpdate, Lot, TrackedRead
from penstock.events.events import RowError
from penstock.jobs.journal import packed, unpacked
from penstock.jobs.state import Failure, JobPart, JobState, ReadKey, UnfinishedRows, as_ranges, complement
from penstock.types.row_ranges import RowRange

ERROR = RowError("f", "{}", "ValueError", "no", "traceback", 3)
FILE = {"path": "k=1/é.parquet", "rows": 5, "nbytes": 100, "schema": b"\x00\xff"}


def told() -> tuple[JobState, list[bytes]]:
    """Return an state, and the lines of the journal that it was told in."""
    state, lines = JobState(), []
    state.reads[ReadKey(0, "a.parquet", "row group 0")] = 0
    update = LineageUpdate(failed=[(Origin(0, 3, 1), ERROR)])
    lines.append(packed(state.add(update, JobPart((FILE,), (Origin(0, 0, 3), Origin(0, 3, 1), Origin(0, 5, 1))))))
    state.reads[ReadKey(0, "b.parquet", "")] = 1
    update = LineageUpdate(ends={0: 6}, done_lots=[Lot(7, (Origin(1, 0, 2), Origin(1, 2, 3)))])
    lines.append(packed(state.add(update, JobPart((FILE,), (Origin(7, None, 5),)))))
    return state, lines


def test_a_journal_is_read_as_it_was_written() -> None:
    state, lines = told()
    assert state.reads == {ReadKey(0, "a.parquet", "row group 0"): 0, ReadKey(0, "b.parquet", ""): 1}
    assert state.ends == {0: 6}
    assert state.parts[0] == JobPart((FILE,), (Origin(0, 0, 4), Origin(0, 5, 1)))
    assert state.done_lots == {7: (Origin(1, 0, 5),)}
    assert state.failures == [Failure(Origin(0, 3, 1), ERROR)]
    assert (state.num_rows, state.next_lot, state.is_empty) == (10, 8, False)
    assert JobState.of(unpacked(lines)) == state
    assert JobState.of(unpacked([packed(state.entry())])) == state
    assert JobState.of([]).is_empty


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_line_ends_the_journal(cut: int) -> None:
    _, lines = told()
    whole = JobState.of(unpacked(lines[:1]))
    assert JobState.of(unpacked([lines[0], lines[1][:-cut]])) == whole
    torn = bytearray(lines[1])
    torn[-cut] ^= 1
    assert JobState.of(unpacked([lines[0], bytes(torn), lines[0]])) == whole


@dataclass
class Numbers:
    """Implements ``ReadTask``: the numbers from 0, in batches of three."""

    length: int
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.length, 3):
            yield pa.record_batch({"a": range(start, min(start + 3, self.length))})


def ranges_of(done: set[int]) -> list[RowRange]:
    return as_ranges(Origin(0, row, 1) for row in done).get(0, [])


@given(st.integers(0, 20), st.sets(st.integers(0, 19)), st.booleans())
def test_unfinished_rows_are_read(length: int, done: set[int], is_length_known: bool) -> None:
    done = {row for row in done if row < length}
    wanted = complement(ranges_of(done), length if is_length_known else None)
    read = TrackedRead(0, Numbers(length), wanted, None, None)
    values = [value for batch in read.read() for value in batch.column(0).to_pylist()] if wanted else []
    assert values == [row for row in range(length) if row not in done]


def test_reads_are_recognized() -> None:
    @dataclass
    class Named(Numbers):
        origin: tuple[str, str] = ("", "")

    state = JobState(reads={ReadKey(0, "b", "1"): 4}, ends={4: 10})
    left = UnfinishedRows(state, {4: [RowRange(0, 10)]})
    assert left.register(0, 0, Named(5, origin=("a", "1"))) == (0, [RowRange(0, None)])
    assert left.register(0, 1, Named(5, origin=("b", "1"))) == (4, [])
    assert left.register(0, 4, Named(5, origin=("c", "1"))) == (5, [RowRange(0, None)])
    second = 2**32  # the number of a read does not depend on what other sources have given so far
    assert left.register(1, 1, Numbers(5)) == (second + 1, [RowRange(0, None)])
    assert left.register(1, 0, Named(5, origin=("b", "1"))) == (second, [RowRange(0, None)])
    assert state.reads[ReadKey(1, "", "1")] == second + 1


# --- lineage ---


def lineage() -> Lineage:
    return Lineage(UnfinishedRows(JobState(), {}), ())


def task_of(*origins: Origin, first_row: int = 0) -> Task:
    num_rows = sum(origin.num_rows for origin in origins)
    return Task((Bundle(None, num_rows, 1, origins=origins),), first_row, 1, num_rows)


def given_by(
    tracked: Lineage, kind: Kind, task: Task, num_rows: int, *failed: int, is_done: bool = True
) -> tuple[Origin, ...]:
    output = Bundle(None, num_rows, 1) if num_rows else None
    errors = tuple(RowError("f", "", "E", "", "", position=task.first_row + row) for row in failed)
    bundle = tracked.note(kind, task, Report(task, output, is_done, errors=errors))
    return () if bundle is None else bundle.origins


def test_rows_are_tracked_over_several_outputs() -> None:
    tracked, task = lineage(), task_of(Origin(0, 10, 4), Origin(1, 0, 4))
    assert given_by(tracked, "rows", task, 3, is_done=False) == (Origin(0, 10, 3),)
    assert given_by(tracked, "rows", task, 5, 4) == (Origin(0, 13, 1), Origin(1, 0, 4))
    update = tracked.take_update()
    assert [origin for origin, _ in update.failed] == [Origin(1, 0, 1)]
    assert not tracked.take_update()


def test_a_lot_is_done_when_all_its_rows_are_written() -> None:
    tracked, task = lineage(), task_of(Origin(0, 0, 5))
    (first,) = given_by(tracked, "lot", task, 4, is_done=False)
    assert first == Origin(0, None, 4)
    tracked.written([first])
    assert not tracked.take_update().done_lots, "more of it may come"
    (second,) = given_by(tracked, "lot", task, 2)
    tracked.written([second._replace(num_rows=1)])
    assert not tracked.take_update().done_lots
    tracked.written([second._replace(num_rows=1)])
    assert [(lot.number, lot.origins) for lot in tracked.take_update().done_lots] == [(0, (Origin(0, 0, 5),))]


def test_an_inner_lot_is_done_before_its_outer_lot() -> None:
    tracked = lineage()
    outer = given_by(tracked, "lot", task_of(Origin(0, 0, 5)), 6)
    half = tuple(origin._replace(num_rows=3) for origin in outer)
    first = given_by(tracked, "lot", task_of(*half), 2)
    assert given_by(tracked, "lot", task_of(*half), 0) == (), "a lot of nothing"
    assert [lot.number for lot in tracked.take_update().done_lots] == [2]
    tracked.written(first)
    assert [lot.number for lot in tracked.take_update().done_lots] == [1, 0]


@given(st.integers(0, 2**32))
def test_reads_report_their_number_of_rows(seed: int) -> None:
    dice = random.Random(seed)
    length = dice.randint(0, 20)
    done = {row for row in range(length) if dice.random() < 0.4}
    tracked = Lineage(UnfinishedRows(JobState(reads={ReadKey(0, "", "0"): 0}), {0: ranges_of(done)}), ())
    for read in tracked.reads([Numbers(length)]):
        assert isinstance(read, TrackedRead)
        task = Task(read, 0, 0)
        origins = [each for batch in read.read() for each in given_by(tracked, "read", task, len(batch), is_done=False)]
        assert given_by(tracked, "read", task, 0) == ()
        rows = [row for _, start, count in origins if start is not None for row in range(start, start + count)]
        assert rows == [row for row in range(length) if row not in done]
        assert tracked.take_update().ends == {0: length}

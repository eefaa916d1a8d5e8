"""A job without an engine: lineage, state and reconciliation are real; workers, files and crashes are random.

A row of an input is the number of its file, the version of that, and its place. What a stage makes of a row is the row
itself, once, several times or never, which depends on nothing but the row. So what a finished job must hold can be told
without any of the code that is tested.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from penstock.contracts import Bundle, Report, Task
from penstock.engine.lineage import Kind, Lineage, TrackedRead
from penstock.events.events import RowError
from penstock.jobs.journal import packed, unpacked
from penstock.jobs.reconcile import CutFile, Reconciled, reconcile
from penstock.jobs.state import JobPart, JobState, UnfinishedRows

Row = tuple[int, int, int]  # file, version, place


@dataclass
class Source:
    """Implements ``ReadTask``."""

    number: int
    version: int
    length: int
    num_rows: int | None = None
    nbytes: int | None = None

    @property
    def origin(self) -> tuple[str, str]:
        return f"file {self.number}", "all"

    def read(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.length, 7):
            yield pa.record_batch({"place": range(start, min(start + 7, self.length))})


def num_made(stage: int, kind: Kind, row: Row) -> int:
    """Return how many rows a stage makes of a row, where nothing fails."""
    return (row[2] * 7 + row[0] + stage) % 3 if kind == "lot" else 1


@dataclass
class World:
    """What outlives a run: the inputs, the journal, the files; and the rows on which functions fail today."""

    dice: random.Random
    kinds: tuple[Kind, ...]  # of the stages between read and write
    can_cut: bool
    sources: list[Source] = field(default_factory=list)
    journal: list[bytes] = field(default_factory=list)
    files: dict[str, list[Row]] = field(default_factory=dict)
    failing: set[int] = field(default_factory=set)  # places of rows
    failing_stage: int = -1
    num_files_made: int = 0
    num_calls: Counter[Row] = field(default_factory=Counter)

    def expected(self) -> Counter[Row]:
        rows = [(each.number, each.version, place) for each in self.sources for place in range(each.length)]
        return Counter({row: count for row in rows if (count := self._count(row))})

    def fails(self, stage: int, row: Row) -> bool:
        return stage == self.failing_stage and row[2] in self.failing

    def expected_failures(self) -> set[Row]:
        rows = [(each.number, each.version, place) for each in self.sources for place in range(each.length)]
        return {row for row in rows if row[2] in self.failing and self._count(row, self.failing_stage)}

    def _count(self, row: Row, num_stages: int | None = None) -> int:
        """Return how many rows the first stages make of a row."""
        count = 1
        for stage, kind in enumerate(self.kinds[:num_stages]):
            count *= 0 if self.fails(stage, row) else num_made(stage, kind, row)
        return count

    def found(self) -> Counter[Row]:
        return Counter(row for rows in self.files.values() for row in rows)

    @property
    def state(self) -> JobState:
        return JobState.of(unpacked(self.journal))

    def new_file(self, rows: Sequence[Row]) -> dict[str, Any]:
        self.num_files_made += 1
        name = f"{self.num_files_made}"
        self.files[name] = list(rows)
        return {"path": name, "rows": len(rows), "nbytes": len(rows), "schema": b"s"}

    def reconcile(self, stale: Iterable[int] = (), redo: bool = False) -> tuple[JobState, Reconciled]:
        """Take the job up again, as ``Job`` does."""
        old = self.state
        origins = [failure.origin for failure in old.failures if failure.origin is not None] if redo else []
        valid = reconcile(
            old,
            has_file=lambda file: len(self.files.get(file["path"], ())) == file["rows"],
            can_cut=self.can_cut,
            stale_reads=set(stale),
            redo=origins,
        )
        state = valid.state(old, set(stale), self._cut)
        self.journal = [packed(state.entry())]
        state = self.state
        names = {file["path"] for file in state.files}
        self.files = {name: rows for name, rows in self.files.items() if name in names}
        return state, valid

    def _cut(self, file: CutFile) -> dict[str, Any]:
        rows = self.files[file.file["path"]]
        return self.new_file([row for start, stop in file.keep for row in rows[start:stop]])


class CrashError(Exception):
    """The process is gone."""


class Run:
    """One run: tasks of all stages are begun, carried on and ended in any order."""

    def __init__(self, world: World, state: JobState, valid: Reconciled, crash_after: int | None) -> None:
        self._world, self._dice, self._state = world, world.dice, state
        self._kinds: tuple[Kind, ...] = ("read", *world.kinds, "write")
        self._lineage = Lineage(UnfinishedRows(state, valid.done), (), state.next_lot)
        self._steps_left = crash_after
        self._inboxes: list[list[Bundle]] = [[] for _ in self._kinds]
        self._taken = [0] * len(self._kinds)
        self._running: list[Iterator[None]] = []
        self._reads = list(self._lineage.reads(world.sources))
        self._dice.shuffle(self._reads)

    def finish(self) -> None:
        """Run to the end, or to the crash."""
        while True:
            choices = self._choices()
            if not choices:
                break
            if self._steps_left == 0:
                raise CrashError
            self._steps_left = None if self._steps_left is None else self._steps_left - 1
            self._dice.choice(choices)()
        assert not self._lineage._lots, "every lot is done at the end"
        if update := self._lineage.take_update():
            self._append(self._state.add(update))

    def _choices(self) -> list[Callable[[], object]]:
        choices: list[Callable[[], object]] = []
        if self._reads:
            choices.append(lambda: self._running.append(self._read(self._reads.pop())))
        for stage in range(1, len(self._kinds)):
            if self._inboxes[stage]:
                choices.append(lambda stage=stage: self._running.append(self._work(stage)))  # type: ignore[misc]
        for task in self._running:
            choices.append(lambda task=task: self._carry_on(task))  # type: ignore[misc]
        return choices

    def _carry_on(self, task: Iterator[None]) -> None:
        try:
            next(task)
        except StopIteration:
            self._running.remove(task)

    def _append(self, entry: dict[str, Any]) -> None:
        self._world.journal.append(packed(entry))
        assert orjson.loads(self._world.journal[-1][9:])

    def _report(self, stage: int, task: Task, rows: Sequence[Row], errors: Sequence[RowError], is_done: bool) -> None:
        output = Bundle(list(rows), len(rows), len(rows)) if rows else None
        given = self._lineage.note(self._kinds[stage], task, Report(task, output, is_done, errors=tuple(errors)))
        if given is not None:
            assert sum(origin.num_rows for origin in given.origins) == given.num_rows
            self._inboxes[stage + 1].append(given)

    def _read(self, read: Any) -> Iterator[None]:
        assert isinstance(read, TrackedRead)
        assert isinstance(read.task, Source)
        source, task = read.task, Task(read, 0, nbytes=0)
        for batch in read.read():
            rows = [(source.number, source.version, place) for place in batch.column(0).to_pylist()]
            self._report(0, task, rows, (), False)
            yield
        self._report(0, task, (), (), True)

    def _take(self, stage: int) -> Task:
        """Make a task of some rows that wait, cut and joined at random; the first ones first, or any."""
        inbox, bundles = self._inboxes[stage], []
        for _ in range(self._dice.randint(1, 3)):
            if not inbox:
                break
            bundle = inbox.pop(self._dice.choice((0, self._dice.randrange(len(inbox)))))
            length = self._dice.choice((bundle.num_rows, self._dice.randint(1, bundle.num_rows)))
            bundles.append(bundle.slice(0, length))
            if length < bundle.num_rows:
                inbox.append(bundle.slice(length, bundle.num_rows - length))
        num_rows = sum(bundle.num_rows for bundle in bundles)
        task = Task(tuple(bundles), self._taken[stage], num_rows, num_rows)
        self._taken[stage] += num_rows
        return task

    def _work(self, stage: int) -> Iterator[None]:
        task, kind = self._take(stage), self._kinds[stage]
        assert isinstance(task.item, tuple)
        given = [row for each in task.item for row in each.handle[each.offset : each.offset + each.num_rows]]
        yield
        if kind == "write":
            self._write(task, given)
            return
        made: list[Row] = []
        errors: list[RowError] = []
        for index, row in enumerate(given):
            self._world.num_calls[row] += 1
            if self._world.fails(stage - 1, row):
                errors.append(RowError("f", str(row), "E", "", "", position=task.first_row + index))
            else:
                made += [row] * num_made(stage - 1, kind, row)
            if self._dice.random() < 0.1 and (made or errors):
                self._report(stage, task, made, errors, False)
                made, errors = [], []
                yield
        self._report(stage, task, made, errors, True)

    def _write(self, task: Task, rows: Sequence[Row]) -> None:
        """Make files of a task's rows, and note that in the journal; a crash may come in between."""
        assert isinstance(task.item, tuple)
        origins = tuple(origin for bundle in task.item for origin in bundle.origins)
        rest, files = list(rows), []
        if not self._world.can_cut:
            rest.sort(key=lambda row: row[2] % 4)  # partitions: rows lie in another order than they came
        while rest:
            length = self._dice.randint(1, len(rest))
            files.append(self._world.new_file(rest[:length]))
            rest = rest[length:]
        if self._steps_left is not None and self._dice.random() < 0.05:
            raise CrashError
        self._lineage.note("write", task, Report(task, None, True))
        self._lineage.written(origins)
        self._append(self._state.add(self._lineage.take_update(), JobPart(tuple(files), origins)))

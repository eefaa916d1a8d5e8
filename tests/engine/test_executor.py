"""The executor lets go of everything, whatever goes wrong and wherever."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from penstock.contracts import Bundle, Emit, Report, Task
from penstock.engine.executor import Executor
from penstock.engine.resources import Cores
from penstock.engine.workers import PoolChoice
from penstock.events.events import Event, QueryFinished, QueryStarted, StageFinished
from penstock.plan.stages import Cut, Read, Stage, Transform, Work
from penstock.protocols import ReadRequest
from penstock.types import Schema


class Rows:
    """The data of a bundle."""

    alive: ClassVar[weakref.WeakSet[Rows]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)


@dataclass
class Pool:
    """Answers at once: a read with as many rows as it says, anything else with what it was given."""

    name: str
    emit: Emit
    journal: list[str]
    fails: str = ""
    capacity: int = 2

    def submit(self, task: Task) -> None:
        if self.fails == "submit":
            raise KeyboardInterrupt
        error = ValueError("bad row") if self.fails == "task" else None
        output = Bundle(Rows(), 10, 100) if not isinstance(task.item, tuple) else task.item[0]
        self.emit(Report(task, None if error else output, is_done=True, error=error))

    def finish(self) -> None:
        error = OSError("disk full") if self.fails == "finish" else None
        self.emit(Report(None, None, is_done=True, error=error))

    def close(self) -> None:
        self.journal.append(f"close {self.name}")
        if self.fails == "close":
            raise OSError("cannot close")


@dataclass
class Query:
    """A read and two more stages, of which ``fails`` says what goes wrong where."""

    fails: dict[str, str] = field(default_factory=dict)
    journal: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    name: str = "source"
    can_filter: bool = False
    num_reads: int = 50

    def schema(self) -> Schema:
        return Schema([])

    def read_tasks(self, request: ReadRequest) -> Iterator[Any]:
        if self.fails.get("source") == "at once":
            raise FileNotFoundError("no such folder")
        return self._read_tasks()

    def _read_tasks(self) -> Iterator[Any]:
        try:
            for number in range(self.num_reads):
                if number == 20 and self.fails.get("source") == "midway":
                    raise FileNotFoundError("gone")
                yield SimpleNamespace(num_rows=None, nbytes=None)
        finally:
            self.journal.append("close source")

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def make_pool(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        if self.fails.get(stage.name) == "make":
            raise TypeError("cannot pickle")
        return PoolChoice(Pool(stage.name, emit, self.journal, self.fails.get(stage.name, "")), takes_core=True)

    def run(self, *more: Stage) -> Iterator[Bundle]:
        stages = (
            Stage("a", Read(self, ReadRequest())),
            Stage("b", Transform(()), inputs=(0,)),
            Stage("c", Transform(()), inputs=(1,)),
            *more,
        )
        return Executor(stages, self.make_pool, memory_bytes=10**6, cores=Cores(4), subscribers=[self]).run()

    @property
    def outcome(self) -> BaseException | None:
        assert [type(event) for event in self.events].count(QueryFinished) == 1
        last = self.events[-1]
        assert isinstance(last, QueryFinished)
        return last.error


ALL_CLOSED = {"close a", "close b", "close c", "close source"}


def test_a_query_that_ends() -> None:
    query = Query()
    assert sum(bundle.num_rows for bundle in query.run()) == 500
    assert set(query.journal) == ALL_CLOSED
    assert query.outcome is None
    assert isinstance(query.events[0], QueryStarted)
    assert [event.stage for event in query.events if isinstance(event, StageFinished)] == [0, 1, 2]


def test_a_finished_task_is_released_before_the_next_report() -> None:
    rows = Query(num_reads=1).run()
    next(rows)
    assert not Rows.alive


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        ({"b": "task"}, ValueError),
        ({"b": "finish"}, OSError),
        ({"c": "submit"}, KeyboardInterrupt),
        ({"source": "midway"}, FileNotFoundError),
    ],
)
def test_everything_is_closed_after_an_error(fails: dict[str, str], error: type[BaseException]) -> None:
    query = Query(fails)
    with pytest.raises(error):
        list(query.run())
    assert set(query.journal) == ALL_CLOSED
    assert isinstance(query.outcome, error)


@pytest.mark.parametrize("stage", ["a", "b", "c"])
@pytest.mark.parametrize("also", [{}, {"c": "submit"}], ids=["", "after another error"])
def test_a_pool_that_fails_to_close_does_not_keep_the_others_open(stage: str, also: dict[str, str]) -> None:
    query = Query({**also, stage: "close"})
    with pytest.raises((OSError, KeyboardInterrupt)):
        list(query.run())
    assert set(query.journal) == ALL_CLOSED
    assert isinstance(query.events[-1], QueryFinished)


@pytest.mark.parametrize(
    ("fails", "closed"),
    [
        ({"b": "make"}, {"close a"}),
        ({"source": "at once"}, set()),
        ({"a": "make"}, set()),
    ],
)
def test_a_query_that_cannot_be_opened(fails: dict[str, str], closed: set[str]) -> None:
    query = Query(fails)
    with pytest.raises((TypeError, FileNotFoundError)):
        next(query.run())
    assert set(query.journal) == closed


def test_closing_the_iterator_cancels() -> None:
    query = Query()
    bundles = query.run()
    next(bundles)
    bundles.close()  # type: ignore[attr-defined]
    assert set(query.journal) == ALL_CLOSED
    assert query.outcome is None


def test_an_iterator_that_was_never_started_opened_nothing() -> None:
    query = Query()
    query.run().close()  # type: ignore[attr-defined]
    assert query.journal == []


@pytest.mark.parametrize("num_rows", [0, 25])
def test_a_limit_closes_what_feeds_it_at_once(num_rows: int) -> None:
    query = Query()
    bundles = query.run(Stage("limit", None, inputs=(2,), inbox=Cut(num_rows, 0)))
    assert sum(bundle.num_rows for bundle in bundles) == num_rows
    assert {"close a", "close b", "close c"} <= set(query.journal)
    assert ("close source" in query.journal) is (num_rows > 0), "a listing that was never begun has nothing to close"
    assert query.outcome is None


@pytest.mark.parametrize("is_ordered", [True, False])
def test_concat_takes_its_inputs_one_after_another_if_ordered(is_ordered: bool) -> None:
    query, started = Query(), list[str]()

    class Watched(Pool):
        def submit(self, task: Task) -> None:
            started.append(self.name)
            super().submit(task)

    stages = (
        Stage("a", Read(query, ReadRequest())),
        Stage("b", Read(query, ReadRequest())),
        Stage("c", Read(query, ReadRequest())),
        Stage("concat", None, inputs=(0, 1, 2)),
    )
    executor = Executor(
        [replace(stage, is_ordered=is_ordered) for stage in stages],
        lambda stage, work, emit: PoolChoice(Watched(stage.name, emit, query.journal), takes_core=True),
        memory_bytes=10**6,
        cores=Cores(2),
    )
    assert sum(bundle.num_rows for bundle in executor.run()) == 1500
    assert (started == sorted(started)) is is_ordered

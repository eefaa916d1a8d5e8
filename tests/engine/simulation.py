"""The real executor on simulated workers and a virtual clock: nothing waits, so a thousand workers fit in a test.

Only time and work are made up. Stages, inboxes, scheduling and order are the engine's own. Rows are numbered, so that
it can be checked that each arrives once; bytes are counted here, apart from the executor's own books.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty
from typing import Any

from penstock.contracts import Bundle, Emit, Report, Task
from penstock.engine.executor import Executor
from penstock.engine.resources import Cores
from penstock.engine.task_costs import LEAST_FOOTPRINT, Footprint
from penstock.engine.workers import PoolChoice
from penstock.plan.stages import Cut, Inbox, Read, Stage, Transform, Whole, Work
from penstock.protocols import ReadRequest, Subscriber
from penstock.types import Schema


class DeadlockError(Exception):
    """The executor waits for a report, and none will ever come."""


class Clock:
    """Virtual time: things happen in the order of their times, then of their making."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._numbers = itertools.count()
        self._coming: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, delay_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._coming, (self.now_s + delay_s, next(self._numbers), happen))

    def advance(self) -> None:
        """Jump to the next thing that happens."""
        if not self._coming:
            raise DeadlockError
        self.now_s, _, happen = heapq.heappop(self._coming)
        happen()

    def pass_time(self, duration_s: float) -> None:
        end_s = self.now_s + duration_s
        while self._coming and self._coming[0][0] <= end_s:
            self.advance()
        self.now_s = end_s


class Mailbox:
    """Reports for the executor. Waiting for one lets time pass."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: deque[Any] = deque()

    def put(self, item: Any, /) -> None:
        self._items.append(item)

    def get(self, *, timeout: float | None = None) -> Any:
        while not self._items:
            self._clock.advance()
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()


@dataclass(frozen=True)
class SimulatedRead:
    """A part of a source: numbered rows of equal weight."""

    first_row: int
    num_rows: int | None
    nbytes: int | None = None

    def read(self) -> Iterator[Any]:
        raise AssertionError("simulated workers do not read")


@dataclass(frozen=True)
class SimulatedSource:
    rows_per_read: tuple[int, ...]
    name: str = "numbers"
    can_filter: bool = False

    def schema(self) -> Schema:
        return Schema([])

    def read_tasks(self, request: ReadRequest) -> Iterator[SimulatedRead]:
        first_row = 0
        for num_rows in self.rows_per_read:
            yield SimulatedRead(first_row, num_rows)
            first_row += num_rows


@dataclass(frozen=True)
class Load:
    """What the workers of one stage do: ``nbytes_per_row`` is what a row weighs when they are done with it."""

    capacity: int = 1
    nbytes_per_row: int = 1
    duration_s: Callable[[random.Random], float] = lambda rng: 1.0
    num_outputs: int = 1  # of each task, one after the other
    inbox: Inbox = field(default_factory=Whole)
    is_ordered: bool = True
    takes_core: bool = False
    footprint: Footprint = LEAST_FOOTPRINT
    work: Work = field(default_factory=lambda: Transform(()))
    keeps: Callable[[int], bool] = lambda row: True


class SimulatedPool:
    """Implements ``WorkerPool`` in virtual time, and checks that it is used as its contract says."""

    def __init__(self, load: Load, world: World, emit: Emit) -> None:
        self.capacity = load.capacity
        self.load = load
        self.started: list[tuple[float, int]] = []  # when each task was begun, and its first row
        self.rows_taken: list[int] = []
        self.num_submitted = 0
        self.largest_output = self.largest_input = 0
        self.busy: list[tuple[float, float]] = []
        self.is_closed = False
        self._world = world
        self._emit = emit
        self._left: dict[Task, deque[Bundle]] = {}
        self._running: set[Task] = set()
        self._is_finishing = False

    def submit(self, task: Task) -> None:
        assert task not in self._running, "submitted while it runs"
        assert not self.is_closed, "submitted after close"
        assert not self._is_finishing, "submitted after finish"
        if task not in self._left:
            self.started.append((self._world.clock.now_s, task.first_row))
            self.largest_input = max(self.largest_input, task.nbytes)
            self.rows_taken += rows_of(task)
            self._left[task] = deque(self._outputs_of(task))
            self._world.hold(self.load.footprint.num_inputs * task.nbytes)
        assert len(self._left) <= self.capacity, "more tasks than capacity"
        self.num_submitted += 1
        self._running.add(task)
        self._world.hold(self._nbytes_of_copies(task))
        duration_s = self.load.duration_s(self._world.rng)
        self.busy.append((self._world.clock.now_s, self._world.clock.now_s + duration_s))
        self._world.clock.after(duration_s, partial(self._report, task, duration_s))

    def finish(self) -> None:
        assert not self._left, "finished while tasks are held"
        self._is_finishing = True
        self._world.clock.after(0.0, partial(self._emit, Report(None, None, is_done=True)))

    def close(self) -> None:
        self.is_closed = True

    def busy_share(self, start_s: float, end_s: float) -> float:
        """Return how much of the workers' time was spent on tasks."""
        worked_s = sum(max(0.0, min(end, end_s) - max(start, start_s)) for start, end in self.busy)
        return worked_s / (self.capacity * (end_s - start_s))

    def _report(self, task: Task, busy_s: float) -> None:
        if self.is_closed:
            return
        self._running.remove(task)
        outputs = self._left[task]
        self._world.let_go(self._nbytes_of_copies(task))
        output = outputs.popleft() if outputs else None
        is_done = not outputs
        if output is not None:
            self.largest_output = max(self.largest_output, output.nbytes)
            self._world.hold(output.nbytes)
        if is_done:
            del self._left[task]
            self._world.let_go((1 + self.load.footprint.num_inputs) * task.nbytes)
        self._emit(Report(task, output, is_done, busy_s))

    def _nbytes_of_copies(self, task: Task) -> int:
        """Return what is held of the next output, besides itself, while it is made."""
        outputs = self._left[task]
        return (self.load.footprint.num_outputs - 1) * outputs[0].nbytes if outputs else 0

    def _outputs_of(self, task: Task) -> Iterator[Bundle]:
        rows = [row for row in rows_of(task) if self.load.keeps(row)]
        for part in range(self.load.num_outputs):
            # whole rows, as even as can be
            mine = rows[part * len(rows) // self.load.num_outputs : (part + 1) * len(rows) // self.load.num_outputs]
            if mine:
                yield Bundle(mine, len(mine), len(mine) * self.load.nbytes_per_row)


def rows_of(task: Task) -> list[int]:
    if isinstance(task.item, SimulatedRead):
        return list(range(task.item.first_row, task.item.first_row + (task.item.num_rows or 0)))
    assert isinstance(task.item, tuple)
    return [row for bundle in task.item for row in bundle.handle[bundle.offset : bundle.offset + bundle.num_rows]]


class World:
    """One simulated query: a read, then stages one after another, then maybe a limit."""

    def __init__(
        self,
        rows_per_read: Sequence[int],
        loads: Sequence[Load],
        *,
        memory_bytes: int = 10**12,
        num_cores: int = 10**6,
        most_task_nbytes: int | None = None,
        limit: int | None = None,
        limit_after: int | None = None,  # index of the stage that the limit follows; the last
        seed: int = 0,
        subscribers: Sequence[Subscriber] = (),
        is_read_gradually: bool = False,
    ) -> None:
        self.clock = Clock()
        self.rng = random.Random(seed)
        self.nbytes_held = self.most_held = 0
        self.pools: list[SimulatedPool] = []
        self._loads = loads
        stages: list[Stage] = []
        for index, load in enumerate(loads):
            source = SimulatedSource(tuple(rows_per_read))
            work: Work = load.work if stages else Read(source, ReadRequest())
            inputs = (len(stages) - 1,) if stages else ()
            stages.append(Stage(str(index), work, inputs, load.inbox, is_ordered=load.is_ordered))
            if limit is not None and index == (len(loads) - 1 if limit_after is None else limit_after):
                stages.append(Stage("limit", None, (len(stages) - 1,), Cut(limit, 0)))
        self.executor = Executor(
            stages,
            self._make_pool,
            memory_bytes=memory_bytes,
            cores=Cores(num_cores),
            most_task_nbytes=most_task_nbytes,
            clock=lambda: self.clock.now_s,
            mailbox=Mailbox(self.clock),
            subscribers=subscribers,
            is_read_gradually=is_read_gradually,
        )

    def run(self, consume_s: float = 0.0, num_read: int | None = None) -> list[int]:
        """Return the rows as they arrive, to the end or until ``num_read`` have come; a bundle lasts ``consume_s``."""
        rows: list[int] = []
        bundles = self.executor.run()
        for bundle in bundles:
            self.let_go(bundle.nbytes)
            rows += bundle.handle[bundle.offset : bundle.offset + bundle.num_rows]
            if num_read is not None and len(rows) >= num_read:
                break
            self.clock.pass_time(consume_s)
        bundles.close()
        assert all(pool.is_closed for pool in self.pools)
        return rows

    def hold(self, nbytes: int) -> None:
        self.nbytes_held += nbytes
        self.most_held = max(self.most_held, self.nbytes_held)

    def let_go(self, nbytes: int) -> None:
        self.nbytes_held -= nbytes

    def _make_pool(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        load = self._loads[int(stage.name)]
        pool = SimulatedPool(load, self, emit)
        self.pools.append(pool)
        return PoolChoice(pool, load.takes_core, load.footprint)

"""The engine's loop: dispatch work to pools, collect what they report, hand bundles on. It never touches their data."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from penstock.engine.cancellation import current_cancellation
from penstock.engine.lineage import Lineage
from penstock.engine.scheduling import LEAST_FOOTPRINT, Footprint, pick_stage, task_share
from penstock.engine.stage import CpuSlots, StageState
from penstock.errors import QueryCancelledError
from penstock.observe.events import (
    BundleProduced,
    Event,
    QueryFinished,
    QueryStarted,
    RowsFailed,
    StageFinished,
    StageInfo,
)
from penstock.plan.stages import Read, Stage, Work, WriteOut
from penstock.protocols import Bundle, Emit, Report, Subscriber, Task, WorkerPool


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool for a stage; ``takes_core`` says that its tasks compete for the driver machine's cores.

    ``footprint`` says what a task holds of that machine's memory while it runs.
    """

    pool: WorkerPool
    takes_core: bool
    footprint: Footprint = LEAST_FOOTPRINT


num_in_hand: ContextVar[int] = ContextVar("penstock_num_in_hand", default=2)
"""How many of the last results the reader of a query still holds: what it was given, maybe in a form of its own too."""

MakePool = Callable[[Stage, Work, Emit], PoolChoice]


class Mailbox(Protocol):
    """Where reports wait for the driver, as a ``SimpleQueue``; a simulation lets time pass in ``get`` instead."""

    def put(self, item: tuple[StageState, Report], /) -> None: ...

    def get(self, *, timeout: float | None = None) -> tuple[StageState, Report]: ...

    def get_nowait(self) -> tuple[StageState, Report]: ...


class Executor:
    """Runs stages to their end. ``run`` may be called once; closing its iterator cancels the query.

    The caller's thread is the driver. Pools report from their own threads into one mailbox.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        make_pool: MakePool,
        *,
        memory_bytes: int,
        num_cores: int,
        subscribers: Sequence[Subscriber] = (),
        lineage: Lineage | None = None,
        clock: Callable[[], float] = time.monotonic,
        mailbox: Mailbox | None = None,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._subscribers = subscribers
        self._lineage = lineage
        self._clock = clock
        self._mailbox: Mailbox = mailbox or SimpleQueue()
        self._results: deque[Bundle] = deque()
        self._nbytes_given: deque[int] = deque(maxlen=num_in_hand.get())
        self._share = task_share(memory_bytes, num_cores)
        self._cpu = CpuSlots(num_cores)
        self._stages: list[StageState] = []
        self._make_pool = make_pool
        self._specs = stages

    def run(self) -> Generator[Bundle, None, None]:
        """Yield the last stage's bundles. Everything is released when the iterator ends, fails or is closed."""
        error: BaseException | None = None
        try:
            self._open()
            while not self._stages[-1].is_done or self._results:
                self._dispatch()
                if self._results:
                    yield self._take_result()
                elif not self._stages[-1].is_done:
                    self._await_report()
                self._collect()
        except GeneratorExit:
            raise
        except BaseException as exc:
            error = exc
            raise
        finally:
            try:
                self._close()
            finally:
                self._publish(QueryFinished(error, self._clock()))

    def _open(self) -> None:
        for index, stage in enumerate(self._specs):
            self._stages.append(self._opened(index, stage))
        for state in self._stages:
            for position, upstream in enumerate(state.stage.inputs):
                self._stages[upstream].downstream = state
                if position and state.stage.is_ordered:
                    self._wait_for(upstream, self._stages[state.stage.inputs[position - 1]])
        cancellation = current_cancellation.get()
        if cancellation is not None:
            cancellation.on_request(self._cancel)
        infos = tuple(
            StageInfo(
                state.index,
                state.stage.name,
                writes=state.stage.inputs[0] if isinstance(state.stage.work, WriteOut) else None,
            )
            for state in self._stages
        )
        self._publish(QueryStarted(infos, self._clock()))
        for state in self._stages:
            if state.pool is None and state.gate.is_satisfied:  # limit(0)
                self._stop_upstream(state)
                self._mark_done(state)

    def _opened(self, index: int, stage: Stage) -> StageState:
        state = StageState(index, stage, self._share, self._clock)
        state.lineage = self._lineage
        if stage.work is None:
            return state
        if isinstance(stage.work, Read):
            tasks = stage.work.source.read_tasks(stage.work.request)
            state.reads = iter(tasks if self._lineage is None else self._lineage.reads(tasks))
        choice = self._make_pool(stage, stage.work, partial(self._report, state))  # last: whoever has it must close it
        state.pool = choice.pool
        state.footprint = choice.footprint
        state.cpu = self._cpu if choice.takes_core else None
        if state.inbox.growth is not None:
            state.inbox.growth.fit(self._memory_bytes, choice.pool.capacity)
        return state

    def _wait_for(self, index: int, earlier: StageState) -> None:
        """Let no stage that feeds ``index`` start before ``earlier`` is done."""
        state = self._stages[index]
        if state.after is None:  # in a concat within a concat the inner order is set first, and implies the outer
            state.after = earlier
        for upstream in state.stage.inputs:
            self._wait_for(upstream, earlier)

    def _report(self, state: StageState, report: Report) -> None:
        self._mailbox.put((state, report))

    def _cancel(self) -> None:
        """Make ``run`` end; called from another thread."""
        self._report(self._stages[-1], Report(None, None, True, error=QueryCancelledError("the query was stopped")))

    def _dispatch(self) -> None:
        """Give the pools all the work that memory and workers allow, the most downstream first."""
        for state in self._stages:
            self._close_if_exhausted(state)
        while True:
            free_bytes = self._memory_bytes - sum(state.nbytes_held for state in self._stages) - sum(self._nbytes_given)
            is_idle = not self._results and not any(state.is_working for state in self._stages)
            picked = pick_stage(self._stages, free_bytes, is_idle)
            if picked is None:
                return
            self._submit(picked, picked.next_task())

    def _submit(self, state: StageState, task: Task) -> None:
        if state.cpu is not None:
            state.cpu.num_free -= 1
        assert state.pool is not None
        state.pool.submit(task)

    def _await_report(self) -> None:
        """Wait for a report, but no longer than rows may wait to be written."""
        now = self._clock()
        due = [at - now for state in self._stages if not state.is_finishing and (at := state.due_at_s) is not None]
        try:
            state, report = self._mailbox.get(timeout=min((left for left in due if left > 0), default=None))
        except Empty:
            return
        self._receive(state, report)

    def _collect(self) -> None:
        """Take all reports that have come, without waiting for more."""
        while True:
            try:
                state, report = self._mailbox.get_nowait()
            except Empty:
                return
            self._receive(state, report)

    def _receive(self, state: StageState, report: Report) -> None:
        if state.is_done:
            return
        if report.task is not None and state.cpu is not None:
            state.cpu.num_free += 1
        if report.error is not None:
            raise report.error
        if report.errors:
            self._publish(RowsFailed(state.index, report.errors))
            state.tolerance.add(report.errors, state.num_rows_taken)
        output = report.output
        if output is not None:
            self._publish(BundleProduced(state.index, output.num_rows, output.nbytes, report.busy_s))
        if report.task is not None:
            for bundle in state.receive(report.task, report):
                self._deliver(state, bundle)
            return
        if output is not None:
            self._deliver(state, output)
        if report.is_done:
            state.tolerance.check(state.num_rows_taken)
            self._mark_done(state)

    def _deliver(self, state: StageState, bundle: Bundle) -> None:
        """Hand a bundle to the next stage, or to the user after the last."""
        if bundle.num_rows == 0 or state.is_done:
            return
        taker = state.downstream
        if taker is None:
            self._results.append(bundle)
            state.nbytes_untaken += bundle.nbytes
        elif taker.pool is not None:
            taker.inbox.push(bundle)
        else:
            passed = taker.gate.pass_on(bundle)
            if passed is not None:
                self._deliver(taker, passed)
            if taker.gate.is_satisfied:
                self._stop_upstream(taker)
                self._mark_done(taker)

    def _take_result(self) -> Bundle:
        bundle = self._results.popleft()
        self._stages[-1].nbytes_untaken -= bundle.nbytes
        self._nbytes_given.append(bundle.nbytes)
        return bundle

    def _close_if_exhausted(self, state: StageState) -> None:
        if state.is_done or state.is_finishing or not state.is_exhausted:
            return
        if state.pool is None:
            self._mark_done(state)
        else:
            state.is_finishing = True
            state.pool.finish()

    def _mark_done(self, state: StageState) -> None:
        if state.is_done:
            return
        state.is_done = True
        self._publish(StageFinished(state.index, self._clock(), state.batch_rows))
        taker = state.downstream
        if taker is not None:
            taker.num_open_inputs -= 1
            if taker.num_open_inputs == 0:
                taker.inbox.close()
                self._close_if_exhausted(taker)

    def _stop_upstream(self, state: StageState) -> None:
        """Cancel all that feeds ``state``: its rows are no longer wanted."""
        for index in state.stage.inputs:
            upstream = self._stages[index]
            if not upstream.is_done:
                self._stop_upstream(upstream)
                if upstream.cpu is not None:
                    upstream.cpu.num_free += upstream.num_running
                upstream.cancel()
                if upstream.pool is not None:
                    upstream.pool.close()

    def _close(self) -> None:
        """Let go of everything, also where closing one of the pools fails."""
        with ExitStack() as closing:
            for state in self._stages:
                closing.callback(state.cancel)
                if state.pool is not None:
                    closing.callback(state.pool.close)

    def _publish(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber.on_event(event)

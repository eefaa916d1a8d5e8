"""The engine's loop: dispatch work to pools, collect what they report, hand bundles on. It never touches their data."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from penstock.events import BundleProduced, Event, QueryFinished, QueryStarted, StageFinished, StageInfo
from penstock.execution.scheduling import pick_stage
from penstock.execution.stage import CpuSlots, StageState
from penstock.plan.stages import Read, Stage, Work
from penstock.protocols import Bundle, Emit, Report, Subscriber, Task, WorkerPool


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool for a stage; ``takes_core`` says that its tasks compete for the driver machine's cores."""

    pool: WorkerPool
    takes_core: bool


MakePool = Callable[[Stage, Work, Emit], PoolChoice]


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._subscribers = subscribers
        self._clock = clock
        self._mailbox: SimpleQueue[tuple[StageState, Report]] = SimpleQueue()
        self._results: deque[Bundle] = deque()
        self._cpu = CpuSlots(num_cores)
        self._stages: list[StageState] = []
        self._make_pool = make_pool
        self._specs = stages

    def run(self) -> Iterator[Bundle]:
        """Yield the last stage's bundles. Everything is released when the iterator ends, fails or is closed."""
        error: BaseException | None = None
        try:
            self._open()
            while True:
                self._dispatch()
                while self._results:
                    yield self._results.popleft()
                if self._stages[-1].is_done:
                    return
                self._collect()
        except GeneratorExit:
            raise
        except BaseException as exc:
            error = exc
            raise
        finally:
            self._close()
            self._publish(QueryFinished(error, self._clock()))

    def _open(self) -> None:
        for index, stage in enumerate(self._specs):
            self._stages.append(self._opened(index, stage))
        for state in self._stages:
            for position, upstream in enumerate(state.stage.inputs):
                self._stages[upstream].downstream = state
                if position and state.stage.is_ordered:
                    self._wait_for(upstream, self._stages[state.stage.inputs[position - 1]])
        infos = tuple(StageInfo(state.index, state.stage.name) for state in self._stages)
        self._publish(QueryStarted(infos, self._clock()))
        for state in self._stages:
            if state.pool is None and state.gate.is_satisfied:  # limit(0)
                self._stop_upstream(state)
                self._mark_done(state)

    def _opened(self, index: int, stage: Stage) -> StageState:
        state = StageState(index, stage)
        if stage.work is None:
            return state
        choice = self._make_pool(stage, stage.work, partial(self._report, state))
        state.pool = choice.pool
        state.cpu = self._cpu if choice.takes_core else None
        if isinstance(stage.work, Read):
            state.reads = iter(stage.work.source.read_tasks(stage.work.request))
        return state

    def _wait_for(self, index: int, earlier: StageState) -> None:
        """Let no stage that feeds ``index`` start before ``earlier`` is done."""
        state = self._stages[index]
        state.after = earlier
        for upstream in state.stage.inputs:
            self._wait_for(upstream, earlier)

    def _report(self, state: StageState, report: Report) -> None:
        self._mailbox.put((state, report))

    def _dispatch(self) -> None:
        """Give the pools all the work that memory and workers allow, the most downstream first."""
        for state in self._stages:
            self._close_if_exhausted(state)
        while True:
            free_bytes = self._memory_bytes - sum(state.nbytes_held for state in self._stages)
            is_idle = not any(state.num_running or state.is_finishing for state in self._stages)
            state = pick_stage(self._stages, free_bytes, is_idle)
            if state is None:
                return
            self._submit(state, state.next_task())

    def _submit(self, state: StageState, task: Task) -> None:
        if state.cpu is not None:
            state.cpu.num_free -= 1
        assert state.pool is not None
        state.pool.submit(task)

    def _collect(self) -> None:
        """Wait for one report, then take all that have come meanwhile."""
        state, report = self._mailbox.get()
        while True:
            self._receive(state, report)
            try:
                state, report = self._mailbox.get_nowait()
            except Empty:
                return

    def _receive(self, state: StageState, report: Report) -> None:
        if state.is_done:
            return
        if report.task is not None and state.cpu is not None:
            state.cpu.num_free += 1
        if report.error is not None:
            raise report.error
        if report.output is not None:
            state.note_output(report.output)
            self._publish(BundleProduced(state.index, report.output.num_rows, report.output.nbytes, report.busy_s))
            self._keep_or_deliver(state, report.task, report.output)
        if report.task is None:
            if report.is_done:
                self._mark_done(state)
            return
        if report.is_done:
            state.note_done(report.task, report.busy_s)
        else:
            state.resting.append(report.task)
        if state.stage.is_ordered:
            for bundle in state.release():
                self._deliver(state, bundle)

    def _keep_or_deliver(self, state: StageState, task: Task | None, output: Bundle) -> None:
        if task is None or not state.stage.is_ordered:
            self._deliver(state, output)
        else:
            task.outputs.append(output)
            state.nbytes_unreleased += output.nbytes

    def _deliver(self, state: StageState, bundle: Bundle) -> None:
        """Hand a bundle to the next stage, or to the user after the last."""
        if bundle.num_rows == 0 or state.is_done:
            return
        taker = state.downstream
        if taker is None:
            self._results.append(bundle)
        elif taker.pool is not None:
            taker.inbox.push(bundle)
        else:
            passed = taker.gate.pass_on(bundle)
            if passed is not None:
                self._deliver(taker, passed)
            if taker.gate.is_satisfied:
                self._stop_upstream(taker)
                self._mark_done(taker)

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
        self._publish(StageFinished(state.index, self._clock()))
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
                upstream.is_done = True
                upstream.inbox.clear()
                if upstream.cpu is not None:
                    upstream.cpu.num_free += upstream.num_running
                if upstream.pool is not None:
                    upstream.pool.close()

    def _close(self) -> None:
        for state in self._stages:
            if state.pool is not None:
                state.pool.close()

    def _publish(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber.on_event(event)

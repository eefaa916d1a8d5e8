"""The engine's loop: dispatch tasks to pools, collect their reports, deliver bundles. It never touches the data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from queue import Empty, SimpleQueue

from penstock.config import task_share
from penstock.contracts import Bundle, Emit, QueryController, Report, RowWatcher
from penstock.engine.cancellation import Cancellation
from penstock.engine.lineage import Lineage
from penstock.engine.read_groups import in_groups
from penstock.engine.read_queue import ReadQueue
from penstock.engine.resources import Cores, QueryResources, Results
from penstock.engine.sampling import INTERVAL_S, Sampler, stage_info
from penstock.engine.scheduling import Candidate, pick_stage
from penstock.engine.stage import StageState
from penstock.engine.workers import PoolChoice
from penstock.errors import QueryCancelledError, QueryStalledError
from penstock.events import events
from penstock.events.call_gate import CallGate
from penstock.plan.stages import Exactly, Read, Stage, Transform, Work
from penstock.protocols import Subscriber

log = logging.getLogger("penstock.engine")

MakePool = Callable[[Stage, Work, Emit], PoolChoice]

END_TIMEOUT_S = 30.0  # for calls in flight when a query ends by an error or Ctrl-C
END_NOTICE_S = 1.0  # from then on a warning says why the query has not ended
END_CHECK_S = 0.02

NUM_RESULTS_HELD = 2  # copies that a reader holds: the result that it works on, and a copy in another format


class Executor:
    """Runs the stages of one query. Call ``run`` once; closing its iterator cancels the query.

    The caller's thread is the driver. Pools report from their own threads into one mailbox. ``num_ahead`` results are
    taken before they are needed. With ``is_read_gradually`` the reader may stop at any row, so stages of calls start
    with few rows, and take more as results are read.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        make_pool: MakePool,
        *,
        memory_bytes: int,
        cores: Cores,
        most_task_nbytes: int | None = None,
        subscribers: Sequence[Subscriber] = (),
        lineage: Lineage | None = None,
        cancellation: Cancellation | None = None,
        gate: CallGate | None = None,
        num_ahead: int = 0,
        is_read_gradually: bool = False,
        clock: Callable[[], float] = time.monotonic,
        mailbox: SimpleQueue[tuple[int, Report]] | None = None,
        stall_timeout_s: float = 0.0,
        measure: Callable[[], events.Measures] = events.Measures,
    ) -> None:
        self._specs = stages
        self._make_pool = make_pool
        self._subscribers = subscribers
        self._row_watchers = [each for each in subscribers if isinstance(each, RowWatcher)]
        self._cancellation = cancellation
        self._gate = gate or CallGate()
        self._clock = clock
        self._mailbox = mailbox or SimpleQueue[tuple[int, Report]]()  # reports, each with the index of its stage
        # The reader's own results, the results taken ahead, and the one that waits to join them.
        num_unused = num_ahead + 1 if num_ahead else 0
        self._results = Results(NUM_RESULTS_HELD + num_unused, num_unused, _cut_rows(stages[-1]))
        self._least_read = 1 if is_read_gradually else None
        task_nbytes = min(task_share(memory_bytes, cores.num_cores), most_task_nbytes or memory_bytes)
        self._resources = QueryResources(memory_bytes, task_nbytes, cores, self._results, clock, lineage)
        self._stages: list[StageState] = []
        self._candidates: list[Candidate] = []
        self._stall_timeout_s = stall_timeout_s or None
        self._progress_at_s = 0.0
        self._is_paused = False
        self._sampler = Sampler(memory_bytes, clock, measure)

    def run(self) -> Generator[Bundle, None, None]:
        """Yield the last stage's bundles. Everything is released when the iterator ends, fails or is closed."""
        error: BaseException | None = None
        try:
            self._open()
            self._progress_at_s = self._clock()
            while not self._stages[-1].is_done or self._results:
                self._dispatch()
                if (sample := self._sampler.sample_if_due(self._stages, self._results.nbytes)) is not None:
                    self._publish(sample)
                has_result = bool(self._results)
                if has_result:
                    given_at_s = self._clock()
                    yield self._results.take()
                    self._progress_at_s = self._clock()
                    self._sampler.reader_s += self._progress_at_s - given_at_s
                for state, report in self._collect(may_wait=not has_result):
                    self._deliver(state, report)
                    del report  # it holds batches, and the next report may take long
                self._check_progress()
        except GeneratorExit as exc:
            error = _interrupt_behind(exc)
            if self._cancellation is not None and self._cancellation.is_program_over:
                error = QueryCancelledError("The program has ended.")
            if self._resources.lineage is not None:  # parts of a job are never left early: the job has failed
                self._await_calls()
            raise
        except BaseException as exc:
            error = exc
            self._await_calls(is_interrupted=isinstance(exc, KeyboardInterrupt))
            raise
        finally:
            try:
                self._close()
            finally:
                self._publish(self._sampler.sample(self._stages, 0))
                self._publish(events.QueryFinished(error, self._clock()))
                # No cycle keeps the batches and sources of the query.
                self._cancellation = None  # it refers to this executor
                for state in self._stages:
                    state.downstream = None
                for _ in self._collect(may_wait=False):
                    pass

    # --- the three parts of a step ---

    def _dispatch(self) -> None:
        """Start all tasks that memory and workers allow, of the most downstream stage first."""
        for state in self._stages:
            self._finish_if_exhausted(state)
        while not self._is_paused:
            nbytes_held, is_idle = self._results.nbytes, not self._results
            for state in self._stages:
                nbytes_held += state.nbytes_held
                is_idle = is_idle and not state.is_working
            picked = pick_stage(self._candidates, self._resources.memory_bytes - nbytes_held, is_idle)
            if picked is None:
                return
            picked.stage.submit_next()

    def _collect(self, *, may_wait: bool) -> Iterator[tuple[StageState, Report]]:
        """Yield the reports that have arrived; with ``may_wait``, wait for the first one."""
        try:
            if may_wait and not self._stages[-1].is_done:
                index, report = self._mailbox.get(timeout=self._seconds_until_due())
                yield self._stages[index], report
            while True:
                index, report = self._mailbox.get_nowait()
                yield self._stages[index], report
        except Empty:
            return

    def _deliver(self, state: StageState, report: Report) -> None:
        """Pass the output of a report to the next stage or the reader, and its events to the subscribers."""
        if state.is_done:
            return
        if report.task is not None or report.output is not None or report.busy_s:
            self._progress_at_s = self._clock()
        if report.error is not None and not state.is_tolerated(report):
            raise report.error
        if report.errors:
            self._publish(events.RowsFailed(state.index, report.errors))
        if (output := report.output) is not None:
            self._publish(events.BundleProduced(state.index, output.num_rows, output.nbytes, report.busy_s))
        elif report.busy_s:
            self._publish(events.BundleProduced(state.index, 0, 0, report.busy_s))
        for watcher in self._row_watchers:
            watcher.on_rows(state.index, self._specs[state.index].work, report)
        for bundle in state.receive(report):
            self._hand_on(state, bundle)
        if report.task is None and report.is_done:
            self._mark_done(state)

    # --- the control of the query: called from other threads ---

    def set_paused(self, is_paused: bool) -> None:
        self._is_paused = self._sampler.is_paused = is_paused
        self._gate.set_open(not is_paused)
        self._progress_at_s = self._clock()  # a pause is not a stall
        self._wake()

    def num_under_way(self) -> tuple[int, int]:
        num_tasks = sum(
            state.num_running
            for state in self._stages
            if not state.is_done and state.workers is not None and not state.workers.is_gated
        )
        return self._gate.num_in_flight, num_tasks

    def cancel(self) -> None:
        error = QueryCancelledError("the query was stopped")
        put_report(self._mailbox, len(self._stages) - 1, Report(None, None, True, error=error))

    def limit_tasks(self, stage: int, max_running: int) -> None:
        workers = self._stages[stage].workers
        if workers is not None:
            workers.max_running = max(max_running, 1)
        self._wake()

    def _wake(self) -> None:
        """Wake the driver, so that it checks again what it may do."""
        put_report(self._mailbox, len(self._stages) - 1, Report(None, None, is_done=False))

    # --- inside ---

    def _open(self) -> None:
        infos = tuple(stage_info(index, stage) for index, stage in enumerate(self._specs))
        self._publish(events.QueryStarted(infos, self._clock()))
        for index, stage in enumerate(self._specs):
            self._stages.append(self._opened(index, stage))
        for state in reversed(self._stages):
            state.limit_to_reader(self._least_read)
        self._candidates = list(map(Candidate, self._stages))
        if self._cancellation is not None:
            self._cancellation.on_request(self.cancel)
        for subscriber in self._subscribers:
            if isinstance(subscriber, QueryController):
                subscriber.on_control(self)
        self._sampler.start()
        for state in self._stages:
            self._stop_if_satisfied(state)  # limit(0)

    def _opened(self, index: int, stage: Stage) -> StageState:
        inputs = [self._stages[number] for number in stage.inputs]
        if stage.work is None:
            return StageState(index, stage, self._resources, inputs)
        reads = None
        if isinstance(stage.work, Read):
            tasks = stage.work.source.read_tasks(stage.work.request)
            lineage = self._resources.lineage
            reads = ReadQueue(in_groups(tasks) if lineage is None else lineage.reads(tasks), stage.work)
        choice = self._make_pool(stage, stage.work, partial(put_report, self._mailbox, index))
        return StageState(index, stage, self._resources, inputs, choice, reads)

    def _seconds_until_due(self) -> float:
        """Return the time until gathered rows must be written, or until the next sample."""
        now = self._clock()
        return min([INTERVAL_S, *(at - now for state in self._stages if (at := state.due_at_s) > now)])

    def _check_progress(self) -> None:
        """Raise QueryStalledError if no report has arrived for too long."""
        if self._is_paused:
            self._progress_at_s = self._clock()
        if self._stall_timeout_s is None or self._clock() < self._progress_at_s + self._stall_timeout_s:
            return
        running = "; ".join(state.description for state in self._stages if state.is_working)
        raise QueryStalledError(
            f"No worker has produced anything for {self._stall_timeout_s:g} s (stall_timeout), so the query stops: "
            f"{running}. If such tasks are normal, set a longer stall_timeout."
        )

    def _hand_on(self, state: StageState, bundle: Bundle) -> None:
        """Hand a bundle to the next stage, or to the reader after the last."""
        if state.is_done:
            return
        if bundle.num_rows == 0:
            state.empty_output = bundle
            return
        taker = state.downstream
        if taker is None:
            self._results.put(bundle)
        elif taker.gate is None:
            taker.input.push(bundle)
        else:
            passed = taker.gate.pass_on(bundle)
            if passed is not None:
                self._publish(events.BundleProduced(taker.index, passed.num_rows, passed.nbytes, 0.0))
                self._hand_on(taker, passed)
            self._stop_if_satisfied(taker)

    def _stop_if_satisfied(self, state: StageState) -> None:
        """Cancel everything upstream of a limit that has all its rows."""
        if state.gate is not None and state.gate.is_satisfied:
            self._close_inputs(state)
            self._mark_done(state)

    def _close_inputs(self, state: StageState) -> None:
        for upstream in state.inputs:
            if not upstream.is_done:
                self._close_inputs(upstream)
                upstream.close()
                self._publish(events.StageFinished(upstream.index, self._clock(), upstream.batch_rows))

    def _finish_if_exhausted(self, state: StageState) -> None:
        if state.is_done or state.is_finishing or state.must_wait or not state.input.is_at_end:
            return
        if not state.finish():
            self._mark_done(state)

    def _mark_done(self, state: StageState) -> None:
        if state.is_done:
            return
        state.is_done = True
        self._publish(events.StageFinished(state.index, self._clock(), state.batch_rows))
        empty = None if state.num_rows_out else state.empty_output
        if (taker := state.downstream) is not None:
            taker.close_input(empty)
            self._finish_if_exhausted(taker)
        elif empty is not None:
            self._results.put(empty)

    def _await_calls(self, is_interrupted: bool = False) -> None:
        """Start no call, and wait for running calls whose answers a ledger keeps. Ctrl-C ends the wait."""
        self._gate.shut()
        began_s, is_told = self._clock(), False
        try:
            while (num_calls := self._gate.num_stored_in_flight) and not self._is_hurried:
                waited_s = self._clock() - began_s
                if waited_s >= END_TIMEOUT_S:
                    log.warning("%d calls in flight had no answer after %g s and are given up", num_calls, waited_s)
                    return
                if waited_s >= END_NOTICE_S and not is_told:
                    is_told, left_s = True, END_TIMEOUT_S - waited_s
                    text = "waiting up to %.0f s for answers of %d calls in flight; Ctrl-C ends the wait"
                    log.warning(text, left_s, num_calls)
                if (sample := self._sampler.sample_if_due(self._stages, self._results.nbytes)) is not None:
                    self._publish(sample)
                time.sleep(END_CHECK_S)
        except KeyboardInterrupt:
            if not is_interrupted:
                raise

    @property
    def _is_hurried(self) -> bool:
        return self._cancellation is not None and self._cancellation.is_hurried

    def _close(self) -> None:
        with ExitStack() as closing:  # if one stage fails to close, the others are still closed
            for state in self._stages:
                closing.callback(state.close)

    def _publish(self, event: events.Event) -> None:
        for subscriber in self._subscribers:
            subscriber.on_event(event)


def _interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the Ctrl-C that made a reader close its query, None if the reader just stopped."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def _cut_rows(last: Stage) -> int | None:
    """Return the batch size of a reader that cuts the last stage's output into batches; None for others."""
    match last.work, last.inbox:
        case Transform(()), Exactly(num_rows, True):
            return num_rows
        case _:
            return None


def put_report(mailbox: SimpleQueue[tuple[int, Report]], index: int, report: Report) -> None:
    """Send a report of a stage's pool. Pools do not refer to the executor, so that it is freed with the query."""
    mailbox.put((index, report))

"""One running stage: its inbox, its tasks in flight and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from penstock.contracts import Bundle, CountsCalls, DescribesTasks, EndOfInput, Report, Task, WorkerPool
from penstock.engine.batch_size import TASK_COST_S
from penstock.engine.error_limit import ErrorLimit
from penstock.engine.in_flight import InFlight
from penstock.engine.inbox import Gate, Inbox
from penstock.engine.lineage import is_row_preserving, kind_of
from penstock.engine.read_queue import ReadQueue
from penstock.engine.reader_limit import FIRST_ROWS, ReaderLimit
from penstock.engine.resources import QueryResources
from penstock.engine.scheduling import (
    FIRST_GROWTH,
    LEAST_FOOTPRINT,
    Footprint,
    GrowthEstimate,
    is_queue_short,
    usual_duration,
)
from penstock.errors import PenstockError
from penstock.events.events import CallCounts
from penstock.plan.stages import CallBatch, CallUdf, Gathered, Inbox as Policy, RunRelation, Stage, Work, WriteOut

MAX_DESCRIBED = 10  # tasks in an error message


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool for a stage. With ``takes_core`` its tasks compete for the cores of the driver's machine.

    ``footprint`` is what a task holds of that machine's memory while it runs. A task costs the engine ``task_cost_s``,
    so a stage that gathers rows for its tasks waits for at least ``gathered_nbytes``. With ``is_gated`` the calls of
    its tasks wait at the gate of the query.
    """

    pool: WorkerPool
    takes_core: bool
    footprint: Footprint = LEAST_FOOTPRINT
    task_cost_s: float = TASK_COST_S
    gathered_nbytes: int = 0
    is_gated: bool = False


class StageState:
    """Accounting for one stage. The executor moves bundles, the pool does the work.

    A stage without a pool is a gate: bundles pass through at once. ``reads`` are the tasks of a stage that reads.
    """

    def __init__(
        self,
        index: int,
        stage: Stage,
        resources: QueryResources,
        inputs: Sequence[StageState],
        choice: PoolChoice | None = None,
        reads: ReadQueue | None = None,
    ) -> None:
        self.index = index
        self.stage = stage
        self.inputs = inputs
        self.downstream: StageState | None = None  # takes the outputs; None for the last stage
        self.inbox = Inbox(_gathering(stage.inbox, choice), resources.clock)
        self.gate = Gate(stage.inbox) if choice is None else None
        self.max_running: int | None = None  # tasks at once, if the user has set it while the query runs
        self.num_rows_taken = 0
        self.empty_output: Bundle | None = None  # has the columns of a result without rows
        self._empty_input: Bundle | None = None
        self.is_finishing = self.is_done = self.is_cut_off = False
        self._resources = resources
        self._pool = choice.pool if choice else None
        self.is_gated = choice is not None and choice.is_gated
        self._cores = resources.cores if choice and choice.takes_core else None
        footprint = choice.footprint if choice else LEAST_FOOTPRINT
        self._footprint = replace(footprint, num_inputs=footprint.num_inputs + self.inbox.joins_bundles)
        self._reads = reads
        self._in_flight = InFlight(self._footprint, is_ordered=stage.is_ordered)
        self._rows = self._in_flight if self.gate is None else self.gate  # counts the rows in and out
        self._growth = GrowthEstimate(_first_growth(stage))
        self._error_limit = ErrorLimit(stage.work)
        self._kind = kind_of(stage.work)
        self._keeps_rows = self._kind in ("rows", "write") and is_row_preserving(getattr(stage.work, "steps", ()))
        self._num_open_inputs = len(inputs)
        self._needs_end = isinstance(stage.work, RunRelation)  # a last task follows the input
        self._after: StageState | None = None  # must be done before this stage starts
        self._reader_limit: ReaderLimit  # set by ``limit_to_reader``
        self._usual_task_s: float | None = None
        self.inbox.max_task_nbytes = self._growth.most_input(resources.task_nbytes)
        if self.inbox.size_search is not None:
            task_cost_s = choice.task_cost_s if choice else TASK_COST_S
            num_copies = 1 + self._footprint.num_inputs
            self.inbox.size_search.fit(resources.memory_bytes // num_copies, self.num_workers, task_cost_s)
        for upstream in inputs:
            upstream.downstream = self
        if stage.is_ordered or isinstance(stage.work, RunRelation):  # these take their inputs one after another
            for earlier, later in pairwise(inputs):
                later.start_after(earlier)

    def start_after(self, earlier: StageState) -> None:
        """Let neither this stage nor those that feed it start before ``earlier`` is done."""
        if self._after is None:  # in nested concats the inner order is set first, and implies the outer
            self._after = earlier
        for upstream in self.inputs:
            upstream.start_after(earlier)

    def limit_to_reader(self, least_read: int | None) -> None:
        """Take only as many rows as the stages after this one, or a reader of ``least_read`` rows, will need.

        None stands for a reader of all rows. The stages after this one are limited before it.
        """
        taker = self.downstream
        earlier = [] if taker is None else takewhile(lambda each: each is not self, taker.inputs)  # as in a concat
        self._reader_limit = ReaderLimit(
            self.stage,
            self._rows,
            None if taker is None else taker._reader_limit,
            [each._rows for each in earlier],
            self._resources.results,
            least_read,
        )
        self._in_flight.tracks_settled_rows = self._reader_limit.may_stop_early

    # --- the view of ``pick_stage`` ---

    @property
    def has_input(self) -> bool:
        """A task waits, or a resting task can continue."""
        if self.is_done or self.is_finishing or self._must_wait:
            return False
        return self._in_flight.resting is not None or self._has_new_input

    @property
    def has_part(self) -> bool:
        """Rows wait, but fewer than a task should have."""
        return self.inbox.has_part and not (self.is_done or self.is_finishing or self._must_wait)

    @property
    def has_capacity(self) -> bool:
        """A worker is free."""
        if self._cores is not None and self._cores.num_free < 1:
            return False
        return self._in_flight.resting is not None or self._in_flight.num_running < self.num_workers

    @property
    def is_wanted(self) -> bool:
        """The queue of the next stage is short, and the reader needs more rows."""
        allowed = self._reader_limit.num_rows_allowed(self.num_rows_taken)
        if allowed is not None and self._in_flight.resting is None and allowed < self.inbox.least_rows:
            return False
        taker = self.downstream
        while taker is not None and taker._pool is None:
            taker = taker.downstream
        if taker is None:
            return True
        num_tasks = taker.inbox.num_tasks
        num_coming = self._in_flight.num_rows_running * num_tasks // max(taker.inbox.num_rows, 1)
        durations = taker._usual_task_s, self._usual_task_s
        return is_queue_short(num_tasks, taker.num_workers, self.num_workers, num_coming, *durations)

    @property
    def nbytes_ahead(self) -> int:
        """Bytes between this stage and the end: its own outputs and all that later stages hold."""
        own = 0 if self._in_flight.is_head_resting else self._in_flight.nbytes
        return own + self._nbytes_downstream

    @property
    def nbytes_expected(self) -> int:
        """Expected size of the next output, with the copies of its input."""
        num_copies = self._footprint.num_inputs
        if not num_copies or self._in_flight.resting is not None or not self.inbox.num_rows:
            return self._next_output_nbytes
        return self._next_output_nbytes + num_copies * self.inbox.next_nbytes

    @property
    def num_workers(self) -> int:
        """Tasks that can run at once, if cores are free."""
        capacity = 0 if self._pool is None else self._pool.capacity
        return capacity if self.max_running is None else min(capacity, self.max_running)

    # --- the executor's view ---

    @property
    def num_rows_out(self) -> int:
        return self._rows.num_rows_out

    @property
    def nbytes_held(self) -> int:
        """Everything that this stage keeps alive, with the expected outputs of its running tasks."""
        return self.inbox.nbytes + self._in_flight.nbytes

    @property
    def nbytes_coming(self) -> int:
        """The part of ``nbytes_held`` that is only expected."""
        return self._in_flight.nbytes_expected

    @property
    def num_running(self) -> int:
        return self._in_flight.num_running

    def total_rows(self, inputs: Sequence[tuple[int, bool] | None]) -> tuple[int, bool] | None:
        """Return the rows that this stage will give, or write, and whether the number is exact; None if unknown so far.

        ``inputs`` are those of the stages that feed it.
        """
        if self.is_done and not self.is_cut_off and not isinstance(self.stage.work, WriteOut):
            return self.num_rows_out, True
        if self._reads is not None:
            return self._reads.total_rows(self.num_rows_out)
        known = [each for each in inputs if each is not None]
        if len(known) < len(inputs):
            return None
        num_rows_in, is_exact = sum(num_rows for num_rows, _ in known), all(is_exact for _, is_exact in known)
        if self.gate is not None:
            return self.gate.total_rows(num_rows_in), is_exact
        if self._keeps_rows:
            return num_rows_in, is_exact
        num_done = self.num_rows_taken - self._in_flight.num_rows_running
        if isinstance(self.stage.work, CallBatch) and not num_done:
            return num_rows_in, False  # most functions of batches give as many rows as they take
        if isinstance(self.stage.work, RunRelation) or not num_done:
            return None
        return round(self.num_rows_out * num_rows_in / num_done), False

    def call_counts(self, inputs: Sequence[tuple[int, bool] | None]) -> CallCounts | None:
        """Return the calls so far, None if its pool does not count them, or a call may give several rows."""
        pool: object = self._pool
        if not isinstance(pool, CountsCalls) or self._kind != "rows":
            return None
        known, counter = [each for each in inputs if each is not None], pool.call_counter
        is_known = len(known) == len(inputs)
        return CallCounts(
            counter.num_answered,
            counter.num_failed,
            0 if self.is_done else counter.num_in_flight,
            sum(num_rows for num_rows, _ in known) if is_known else None,
            is_known and all(is_exact for _, is_exact in known),
            counter.num_replies,
            counter.reply_s,
            counter.reply_s2,
            tuple(counter.reply_times),
        )

    def count_rows_ahead(self, until_s: float) -> None:
        """Look for the number of rows to read until a time, unless the reader may stop before the end."""
        if self._reads is not None and not self.is_done and not self._reader_limit.may_stop_early:
            self._reads.look_ahead(until_s, self._resources.clock)

    @property
    def is_working(self) -> bool:
        """A report will come without anything being submitted."""
        return not self.is_done and (self._in_flight.num_running > 0 or self.is_finishing)

    @property
    def is_exhausted(self) -> bool:
        """No task is in flight and none can come."""
        if self._in_flight or self._must_wait or (self._reads is None and self._num_open_inputs):
            return False
        return not self._has_new_input

    @property
    def due_at_s(self) -> float | None:
        """The time at which an incomplete task must leave."""
        return None if self.is_finishing else self.inbox.due_at_s

    @property
    def batch_rows(self) -> int | None:
        """The batch size found by measurement, if the rows sufficed to find one."""
        search = self.inbox.size_search
        return search.num_rows if search is not None and search.is_settled else None

    @property
    def description(self) -> str:
        """The tasks of this stage that run, for an error message."""
        pool: object = self._pool
        tasks = pool.described_tasks()[:MAX_DESCRIBED] if isinstance(pool, DescribesTasks) else []
        return "; ".join([f"{self.stage.name!r} has {self.num_running} running tasks", *tasks])

    def submit_next(self) -> None:
        """Give the pool one task: the oldest that rests, or a new one."""
        expected = self._next_output_nbytes
        task = self._in_flight.start(None if self._in_flight.resting is not None else self._new_task(), expected)
        if self._cores is not None:
            self._cores.num_busy += 1
        assert self._pool is not None
        self._pool.submit(task)

    def receive(self, report: Report) -> Sequence[Bundle]:
        """Record a report and return the outputs to pass on. Raise TooManyErrorsError past the error limit."""
        num_rows_done = report.task.num_rows if report.task is not None and report.is_done else 0
        self._error_limit.add(report.errors, num_rows_done, self.num_rows_taken)
        if report.task is None:
            if report.is_done:
                self._error_limit.check(self.num_rows_taken)
            return () if report.output is None else (report.output,)
        return self._receive_task(report.task, report)

    def close_input(self, empty: Bundle | None) -> None:
        """Record that one of the inputs is done; ``empty`` has its columns if it had no rows.

        A stage without any rows processes the columns alone, unless its result is known only by a call.
        """
        if empty is not None and self.gate is not None:
            self.empty_output = empty
        elif empty is not None and not _has_unknown_result(self.stage.work):
            self._empty_input = replace(empty, origins=())
        self._num_open_inputs -= 1
        if self._num_open_inputs == 0:
            self.inbox.close()

    def is_tolerated(self, report: Report) -> bool:
        """Return whether a report is a failure on columns without rows, whose types may be wrong.

        For example, ``np.array([])`` is float64.
        """
        is_empty = report.task is not None and isinstance(report.task.item, tuple) and not report.task.num_rows
        return is_empty and isinstance(report.error, PenstockError) and not isinstance(self.stage.work, WriteOut)

    def finish(self) -> bool:
        """Ask the workers for what they still hold. Return False for a stage without workers."""
        if self._pool is None:
            return False
        self.is_finishing = True
        self._pool.finish()
        return True

    def close(self) -> None:
        """Drop everything and stop the workers. May be called twice."""
        self.is_cut_off = self.is_cut_off or not self.is_done
        self.is_done = True
        if self._cores is not None:
            self._cores.num_busy -= self._in_flight.num_running
        self.inbox.clear()
        self._in_flight.clear()
        with ExitStack() as closing:
            if self._pool is not None:
                closing.callback(self._pool.close)
            if self._reads is not None:
                closing.callback(self._reads.close)

    def _receive_task(self, task: Task, report: Report) -> Sequence[Bundle]:
        if self._cores is not None:
            self._cores.num_busy -= 1
        lineage = self._resources.lineage
        task.busy_s += report.busy_s
        output = report.output if lineage is None else lineage.note(self._kind, task, report)
        if output is not None:
            self._growth.add_output(task.nbytes, output.nbytes)
            self.inbox.note_output(output.num_rows, output.nbytes)
        if report.is_done and self._reads is not None and not isinstance(task.item, tuple | EndOfInput):
            self._reads.note_done(task.item)
        if report.is_done and task.num_rows:
            self._growth.add_task(task.nbytes)
            self._usual_task_s = usual_duration(self._usual_task_s, task.busy_s)
            self.inbox.note_task(task.num_rows, task.busy_s, task.nbytes, self._growth.output_of(task.nbytes))
        self.inbox.max_task_nbytes = self._growth.most_input(self._resources.task_nbytes)
        released = self._in_flight.stop(task, output, is_done=report.is_done)
        return released if lineage is None or self._kind != "read" else lineage.in_lots(released)

    def _new_task(self) -> Task:
        if self._reads is not None:
            return Task(self._reads.take(), 0, nbytes=0)
        if self._is_columns_alone and self._empty_input is not None:
            item, self._empty_input = (self._empty_input,), None
            return Task(item, 0, nbytes=0)
        if not self.inbox.num_rows:
            self._needs_end = False
            return Task(EndOfInput(), self.num_rows_taken, nbytes=0)
        allowed = self._reader_limit.num_rows_allowed(self.num_rows_taken)
        if allowed is not None and allowed <= 0:  # nothing else can be done
            allowed = max(self.num_rows_taken, FIRST_ROWS)
        bundles = self.inbox.take(allowed)
        num_rows, nbytes = sum(b.num_rows for b in bundles), sum(b.nbytes for b in bundles)
        task = Task(bundles, self.num_rows_taken, nbytes, num_rows)
        self.num_rows_taken += num_rows
        return task

    @property
    def _is_columns_alone(self) -> bool:
        return self._empty_input is not None and not self.num_rows_taken and not self.inbox.num_rows

    @property
    def _must_wait(self) -> bool:
        return self._after is not None and not self._after.is_done

    @property
    def _has_new_input(self) -> bool:
        if self._reads is None:
            if self.inbox.num_tasks > 0 or self.inbox.is_part_due(is_idle=not self._in_flight.num_running):
                return True
            return (self._needs_end or self._is_columns_alone) and self.inbox.is_closed and not self._in_flight
        return self._reads.has_task

    @property
    def _next_output_nbytes(self) -> int:
        """Expected bytes that the next task holds while it makes its next output."""
        if self._reads is not None:
            nbytes = self._growth.output_of_read()
        elif self._in_flight.resting is None and not self.inbox.num_rows:
            nbytes = 0
        else:
            resting = self._in_flight.resting
            nbytes = self._growth.output_of(self.inbox.next_nbytes if resting is None else resting.nbytes)
        return nbytes * self._footprint.num_outputs

    @property
    def _nbytes_downstream(self) -> int:
        taker = self.downstream
        return self._resources.results.nbytes_waiting if taker is None else taker.nbytes_held + taker._nbytes_downstream


def _gathering(policy: Policy, choice: PoolChoice | None) -> Policy:
    if choice is None or not isinstance(policy, Gathered) or policy.seconds is not None:
        return policy
    return replace(policy, nbytes=max(policy.nbytes, choice.gathered_nbytes))


def _has_unknown_result(work: Work | None) -> bool:
    return isinstance(work, CallBatch) or (isinstance(work, CallUdf) and work.call.udf.target.is_generator)


def _first_growth(stage: Stage) -> int:
    initial = stage.work.call.udf.builtin.initial_growth if isinstance(stage.work, CallUdf) else None
    return initial or FIRST_GROWTH

"""One running stage: what waits for it, what its tasks cost, and which of them are in flight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise, takewhile

from penstock.contracts import Bundle, Report, Task
from penstock.engine.error_limit import ErrorLimit
from penstock.engine.in_flight import InFlight
from penstock.engine.inbox import Gate
from penstock.engine.lineage import kind_of
from penstock.engine.read_queue import ReadQueue
from penstock.engine.reader_limit import FIRST_ROWS, ReaderLimit
from penstock.engine.resources import QueryResources
from penstock.engine.stage_input import StageInput
from penstock.engine.task_costs import FIRST_GROWTH, LEAST_FOOTPRINT, TaskCosts
from penstock.engine.task_sizes import MeasuredRows, task_sizes
from penstock.engine.workers import PoolChoice, Workers
from penstock.errors import PenstockError
from penstock.plan.stages import (
    CallBatch,
    CallUdf,
    Exactly,
    Gathered,
    Inbox as Policy,
    Measured,
    RunRelation,
    Stage,
    WriteOut,
)


class StageState:
    """One stage of a running query. The executor moves bundles, the workers do the work.

    A stage without workers is a gate: bundles pass through at once. ``reads`` are the tasks of a stage that reads.
    ``scheduling.Candidate`` says why its next task starts or not.
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
        self.gate = Gate(stage.inbox) if choice is None else None
        self.workers = None if choice is None else Workers(choice, resources.cores)
        self.is_finishing = self.is_done = self.is_cut_off = False
        self.empty_output: Bundle | None = None  # has the columns of a result without rows
        self.costs = _costs(stage, choice)
        self.in_flight = InFlight(self.costs.footprint, is_ordered=stage.is_ordered)
        sizes = task_sizes(_gathering(stage.inbox, choice), resources.clock)
        self.input = StageInput(stage.work, sizes, self.in_flight, resources.clock, len(inputs), reads)
        self.resources = resources
        self._error_limit = ErrorLimit(stage.work) if isinstance(stage.work, CallUdf | CallBatch) else None
        self._kind = kind_of(stage.work)
        self._after: StageState | None = None  # must be done before this stage starts
        self.reader_limit: ReaderLimit  # set by ``limit_to_reader``, as is the next
        self.is_limited = False  # the reader may stop before the stage has taken all rows
        self.input.limit_tasks(self.costs.growth.most_input(resources.task_nbytes))
        if choice is not None and isinstance(sizes, MeasuredRows):
            num_copies = 1 + self.costs.footprint.num_inputs
            sizes.search.fit(resources.memory_bytes // num_copies, self.num_workers, choice.task_cost_s)
        for upstream in inputs:
            upstream.downstream = self
        if stage.is_ordered or isinstance(stage.work, RunRelation):  # these take their inputs one after another
            for earlier, later in pairwise(inputs):
                later.start_after(earlier)

    def start_after(self, earlier: StageState) -> None:
        """Let neither this stage nor the stages that feed it start before ``earlier`` is done."""
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
        self.reader_limit = ReaderLimit(
            self.stage,
            self._rows,
            None if taker is None else taker.reader_limit,
            [each._rows for each in earlier],
            self.resources.results,
            least_read,
        )
        self.is_limited = self.reader_limit.is_needed
        self.in_flight.tracks_settled_rows = self.reader_limit.may_stop_early

    # --- the state of the stage ---

    @property
    def must_wait(self) -> bool:
        return self._after is not None and not self._after.is_done

    @property
    def next_output_nbytes(self) -> int:
        """Expected bytes that the next task holds while it makes its next output."""
        resting = self.in_flight.resting
        is_read = self.input.reads is not None
        return self.costs.nbytes_of_output(self.input.next_nbytes if is_read or resting is None else resting.nbytes)

    @property
    def num_workers(self) -> int:
        """The number of tasks that can run at once, if cores are free."""
        return 0 if self.workers is None else self.workers.capacity

    @property
    def num_running(self) -> int:
        return self.in_flight.num_running

    @property
    def num_rows_taken(self) -> int:
        return self.input.inbox.num_rows_taken

    @property
    def num_rows_out(self) -> int:
        return self._rows.num_rows_out

    @property
    def nbytes_held(self) -> int:
        """The bytes that this stage keeps alive, including the expected outputs of its running tasks."""
        return self.input.inbox.nbytes + self.in_flight.nbytes

    @property
    def is_working(self) -> bool:
        """True if a report will come without a new submission."""
        return not self.is_done and (self.num_running > 0 or self.is_finishing)

    @property
    def due_at_s(self) -> float:
        """The time at which an incomplete task must leave."""
        return math.inf if self.is_finishing else self.input.next_task.due_at_s

    @property
    def batch_rows(self) -> int | None:
        """The batch size found by measurement; None if the rows did not suffice."""
        sizes = self.input.sizes
        return sizes.search.num_rows if isinstance(sizes, MeasuredRows) and sizes.search.is_settled else None

    @property
    def description(self) -> str:
        """The tasks of this stage that run, for an error message."""
        tasks = [] if self.workers is None else self.workers.described_tasks
        return "; ".join([f"{self.stage.name!r} has {self.num_running} running tasks", *tasks])

    @property
    def _rows(self) -> Gate | InFlight:
        """The counter of the rows in and out."""
        return self.in_flight if self.gate is None else self.gate

    # --- the actions of the executor ---

    def count_rows_ahead(self, until_s: float) -> None:
        """Look for the number of rows to read until a time, unless the reader may stop before the end."""
        reads = self.input.reads
        if reads is not None and not self.is_done and not self.reader_limit.may_stop_early:
            reads.look_ahead(until_s, self.resources.clock)

    def submit_next(self) -> None:
        """Give a worker one task: the oldest that rests, or a new one."""
        assert self.workers is not None
        expected = self.next_output_nbytes
        task = None if self.in_flight.resting is not None else self._new_task()
        self.workers.submit(self.in_flight.start(task, expected))

    def receive(self, report: Report) -> Sequence[Bundle]:
        """Record a report and return the outputs to pass on. Raise TooManyErrorsError past the error limit."""
        if self._error_limit is not None:
            num_rows_done = report.task.num_rows if report.task is not None and report.is_done else 0
            self._error_limit.add(report.errors, num_rows_done, self.num_rows_taken)
            if report.task is None and report.is_done:
                self._error_limit.check(self.num_rows_taken)
        if report.task is not None:
            return self._receive_task(report.task, report)
        return () if report.output is None else (report.output,)

    def close_input(self, empty: Bundle | None) -> None:
        """Record that one of the inputs is done; ``empty`` has its columns if it had no rows."""
        if self.gate is not None:
            self.empty_output, empty = empty or self.empty_output, None
        self.input.close_one(empty)

    def is_tolerated(self, report: Report) -> bool:
        """Return True for a failure on columns without rows, whose types may be wrong.

        For example, ``np.array([])`` is float64.
        """
        is_empty = report.task is not None and isinstance(report.task.item, tuple) and not report.task.num_rows
        return is_empty and isinstance(report.error, PenstockError) and not isinstance(self.stage.work, WriteOut)

    def finish(self) -> bool:
        """Ask the workers for what they still hold. Return False for a stage without workers."""
        if self.workers is None:
            return False
        self.is_finishing = True
        self.workers.finish()
        return True

    def close(self) -> None:
        """Drop everything and stop the workers. May be called twice."""
        self.is_cut_off = self.is_cut_off or not self.is_done
        self.is_done = True
        num_running = self.num_running
        self.input.clear()
        self.in_flight.clear()
        with ExitStack() as closing:
            if self.workers is not None:
                closing.callback(self.workers.close, num_running)
            if self.input.reads is not None:
                closing.callback(self.input.reads.close)

    def _new_task(self) -> Task:
        if not self.is_limited:
            return self.input.take(None)
        allowed = self.reader_limit.num_rows_allowed(self.num_rows_taken)
        return self.input.take(
            allowed if allowed > 0 else max(self.num_rows_taken, FIRST_ROWS)
        )  # 0: nothing else can run

    def _receive_task(self, task: Task, report: Report) -> Sequence[Bundle]:
        assert self.workers is not None
        self.workers.note_stopped()
        lineage = self.resources.lineage
        task.busy_s += report.busy_s
        output = report.output if lineage is None else lineage.note(self._kind, task, report)
        if output is not None:
            self.costs.learn_output(task, output)
        if report.is_done and task.num_rows:
            self.costs.learn(task)
        if report.is_done:
            self.input.learn(task)
        self.input.limit_tasks(self.costs.growth.most_input(self.resources.task_nbytes))
        released = self.in_flight.stop(task, output, is_done=report.is_done)
        return released if lineage is None or self._kind != "read" else lineage.in_lots(released)


def _costs(stage: Stage, choice: PoolChoice | None) -> TaskCosts:
    footprint = LEAST_FOOTPRINT if choice is None else choice.footprint
    joins_bundles = isinstance(stage.inbox, Exactly | Measured)  # which copies them
    growth = stage.work.call.udf.builtin.initial_growth if isinstance(stage.work, CallUdf) else None
    return TaskCosts(replace(footprint, num_inputs=footprint.num_inputs + joins_bundles), growth or FIRST_GROWTH)


def _gathering(policy: Policy, choice: PoolChoice | None) -> Policy:
    if choice is None or not isinstance(policy, Gathered) or policy.seconds is not None:
        return policy
    return replace(policy, nbytes=max(policy.nbytes, choice.gathered_nbytes))

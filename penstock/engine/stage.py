"""The running state of one stage: what waits, what is in flight, what was measured."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from penstock.engine.error_limit import Tolerance
from penstock.engine.inbox import Gate, Inbox
from penstock.engine.lineage import Lineage, kind_of
from penstock.engine.scheduling import (
    FIRST_INFLATION,
    LEAST_FOOTPRINT,
    PACED_TASK_S,
    expected_output,
    gathering_s,
    is_queue_short,
    most_input,
    paced_rows,
)
from penstock.plan.stages import CallUdf, Gathered, Stage
from penstock.protocols import Bundle, ReadTask, Report, Task, WorkerPool

MAX_LULL_S = 1.0
LULL_FACTOR = 4
"""For as many times as long as its last task took, at most ``MAX_LULL_S``, an idle stage waits for a batch to fill up.
A slow stage before it then costs little time, and the many small calls little of the machine."""
FIRST_READ_NBYTES = 16 * 2**20  # what a read is taken to give before the first one has


class CpuSlots:
    """How many tasks may compute at once, over all the stages that share the machine's cores."""

    def __init__(self, num_slots: int) -> None:
        self.num_free = num_slots


class StageState:
    """Bookkeeping only: the executor moves bundles, the pool does the work.

    ``downstream`` is the stage that takes the outputs, None for the last. ``after`` is a stage that must be done
    before this one starts, which keeps the inputs of a concat in order. ``share`` is what a task's output may take.
    """

    def __init__(self, index: int, stage: Stage, share: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.index = index
        self.stage = stage
        self.kind = kind_of(stage.work)
        self.lineage: Lineage | None = None  # where account is kept of which rows become what
        self.pool: WorkerPool | None = None  # None: bundles only pass through the gate
        self.cpu: CpuSlots | None = None  # None: its tasks do not compete for cores
        self.footprint = LEAST_FOOTPRINT
        self.inbox = Inbox(stage.inbox)
        self.inbox.most_nbytes = most_input(share, 0, 0)
        self.gate = Gate(stage.inbox)
        self.tolerance = Tolerance(stage.work)
        self.downstream: StageState | None = None
        self.after: StageState | None = None
        self.num_open_inputs = len(stage.inputs)
        self._share = share
        spec = stage.work.call.udf if isinstance(stage.work, CallUdf) else None
        self._first_growth = spec.builtin.initial_growth or FIRST_INFLATION if spec else FIRST_INFLATION
        self.reads: Iterator[ReadTask] | None = None
        self._next_read: ReadTask | None = None
        self.in_flight: dict[Task, int] = {}  # numbered as submitted; with order kept, until their outputs have gone on
        self.resting: list[tuple[int, Task]] = []  # a heap: gave an output, wait to be carried on, the oldest first
        self._numbers = itertools.count()
        self._coming: dict[Task, int] = {}  # the tasks that run, and what each is expected to give next
        self._clock = clock
        self._lull_until_s = 0.0  # an incomplete batch waits until then
        self._began_at_s = self._taken_at_s = clock()  # the stage, and its last task
        self.num_rows_taken = 0
        self.nbytes_running = 0  # inputs of tasks in flight, with the copies that their workers make of them
        self.nbytes_coming = 0
        self.nbytes_unreleased = 0  # outputs kept back for the sake of order
        self.nbytes_untaken = 0  # outputs of the last stage that wait for the user
        self.total_in = 0
        self.total_out = 0
        self.num_outputs = 0
        self.is_finishing = False
        self.is_done = False

    # --- what the scheduler asks ---

    @property
    def has_input(self) -> bool:
        if self.is_done or self.is_finishing or self._must_wait:
            return False
        return bool(self.resting) or self._has_new_input

    @property
    def has_part(self) -> bool:
        return not (self.is_done or self.is_finishing or self._must_wait) and self.inbox.has_part

    @property
    def has_capacity(self) -> bool:
        if self.cpu is not None and self.cpu.num_free < 1:
            return False
        if self.resting:
            return True
        return self.pool is not None and self.num_running < self.pool.capacity

    @property
    def is_wanted(self) -> bool:
        taker = self._taker
        if taker is None or taker.pool is None or self.pool is None:
            return True
        return is_queue_short(taker.inbox.num_tasks, taker.pool.capacity, self.pool.capacity)

    @property
    def nbytes_ahead(self) -> int:
        own = 0 if self._is_head_resting else self.nbytes_unreleased + self.nbytes_running + self.nbytes_coming
        return own + self.nbytes_untaken + (self.downstream.nbytes_from_here if self.downstream else 0)

    @property
    def nbytes_expected(self) -> int:
        copied = 0 if self.resting or self.reads is not None else self.footprint.num_inputs * self.inbox.next_nbytes
        return copied + self._nbytes_of_next_output

    # --- what the executor does ---

    @property
    def batch_rows(self) -> int | None:
        """The batch size that was found, if one was looked for and the rows sufficed."""
        growth = self.inbox.growth
        return growth.num_rows if growth is not None and growth.is_settled else None

    @property
    def nbytes_held(self) -> int:
        """Everything this stage keeps alive, with what its running tasks are expected to give."""
        own = self.nbytes_unreleased + self.nbytes_running + self.nbytes_coming
        return self.inbox.nbytes + own + self.nbytes_untaken

    @property
    def nbytes_from_here(self) -> int:
        further = self.downstream.nbytes_from_here if self.downstream else 0
        return self.nbytes_held + further

    @property
    def is_exhausted(self) -> bool:
        """Whether no task is in flight and none can come."""
        if self.in_flight or self._has_new_input or self._must_wait:
            return False
        return self.reads is not None or self.num_open_inputs == 0

    @property
    def num_running(self) -> int:
        return len(self._coming)

    @property
    def is_working(self) -> bool:
        """Whether a report will come without anything being submitted."""
        return not self.is_done and (bool(self._coming) or self.is_finishing)

    def next_task(self) -> Task:
        """Return the task to submit now: one that rests, the oldest first, or a new one."""
        expected = self._nbytes_of_next_output
        task = heapq.heappop(self.resting)[1] if self.resting else self._new_task()
        self._coming[task] = expected
        self.nbytes_coming += expected
        return task

    def receive(self, task: Task, report: Report) -> Sequence[Bundle]:
        """Take note of what a task gave, and that it rests or is done; return the outputs that may go on."""
        self.nbytes_coming -= self._coming.pop(task)
        task.busy_s += report.busy_s
        output = report.output if self.lineage is None else self.lineage.note(self.kind, task, report)
        if output is not None:
            self._note_output(task, output)
        if report.is_done:
            self._note_done(task)
        else:
            heapq.heappush(self.resting, (self.in_flight[task], task))
        return self._release(self.in_flight if self.stage.is_ordered else (task,))

    def cancel(self) -> None:
        """Let go of everything: nothing of this stage is wanted any more."""
        self.is_done = True
        self.inbox.clear()
        self.in_flight.clear()
        self.resting.clear()
        self._coming.clear()
        self.nbytes_running = self.nbytes_coming = self.nbytes_unreleased = 0
        if isinstance(self.reads, Generator):
            self.reads.close()

    def _note_output(self, task: Task, output: Bundle) -> None:
        self.total_in += task.nbytes
        self.total_out += output.nbytes
        self.num_outputs += 1
        self.inbox.most_nbytes = most_input(self._share, self.total_in, self.total_out)
        self.inbox.learn(output.nbytes / max(output.num_rows, 1))
        task.outputs.append(output)
        self.nbytes_unreleased += output.nbytes

    def _note_done(self, task: Task) -> None:
        task.is_done = True
        if not self.num_outputs:
            self.total_in += task.nbytes  # it gave nothing at all, which is worth knowing too
        self.nbytes_running -= self._nbytes_of_input(task)
        if self.inbox.growth is not None:
            nbytes_out = expected_output(task.nbytes, self.total_in, self.total_out)
            self.inbox.growth.note(task.num_rows, task.busy_s, task.nbytes, nbytes_out)
            self._lull_until_s = self._clock() + min(LULL_FACTOR * task.busy_s, MAX_LULL_S)
        elif task.num_rows == self.inbox.rows_per_task or task.busy_s > PACED_TASK_S:
            # A shorter one tells only of slow rows.
            self.inbox.rows_per_task = paced_rows(task.num_rows, task.busy_s)
        self.inbox.note(task.num_rows, task.busy_s)

    def _release(self, tasks: Iterable[Task]) -> Sequence[Bundle]:
        """Return the outputs of the first of ``tasks``, and those of the next once it is done."""
        released: list[Bundle] = []
        gone: list[Task] = []
        for task in tasks:
            released += task.outputs
            task.outputs.clear()
            if not task.is_done:
                break
            gone.append(task)
        for task in gone:
            del self.in_flight[task]
        self.nbytes_unreleased -= sum(bundle.nbytes for bundle in released)
        return released if self.lineage is None or self.kind != "read" else self.lineage.in_lots(released)

    def _new_task(self) -> Task:
        if self.reads is not None:
            read, self._next_read = self._next_read, None
            assert read is not None
            task = Task(read, 0, nbytes=0)
        else:
            bundles = self.inbox.take()
            self._taken_at_s = self._clock()
            num_rows, nbytes = sum(b.num_rows for b in bundles), sum(b.nbytes for b in bundles)
            task = Task(bundles, self.num_rows_taken, nbytes, num_rows)
            self.num_rows_taken += num_rows
            self.nbytes_running += self._nbytes_of_input(task)
        self.in_flight[task] = next(self._numbers)
        return task

    def _nbytes_of_input(self, task: Task) -> int:
        return task.nbytes * (1 + self.footprint.num_inputs)

    @property
    def _nbytes_of_next_output(self) -> int:
        """What the task that is next will hold while it makes its next output."""
        if self.reads is not None:
            nbytes = self.total_out // self.num_outputs if self.num_outputs else FIRST_READ_NBYTES
        else:
            nbytes_in = self.resting[0][1].nbytes if self.resting else self.inbox.next_nbytes
            nbytes = expected_output(nbytes_in, self.total_in, self.total_out, self._first_growth)
        return nbytes * self.footprint.num_outputs

    @property
    def _must_wait(self) -> bool:
        return self.after is not None and not self.after.is_done

    @property
    def _has_new_input(self) -> bool:
        if self.reads is None:
            return self.inbox.num_tasks > 0 or self._is_part_due
        if self._next_read is None:
            self._next_read = next(self.reads, None)
        return self._next_read is not None

    @property
    def _is_part_due(self) -> bool:
        """Whether an incomplete batch has waited long enough while the workers have nothing to do."""
        if self.due_at_s is not None:
            return self._clock() >= self.due_at_s
        return self.inbox.has_part and not self._coming and self._clock() >= self._lull_until_s

    @property
    def due_at_s(self) -> float | None:
        """When rows that wait for others to be written with are written without them; None: there are none."""
        policy = self.stage.inbox
        if not isinstance(policy, Gathered) or policy.seconds is None or not self.inbox.num_rows:
            return None
        return self._taken_at_s + gathering_s(policy.seconds, self._clock() - self._began_at_s)

    @property
    def _taker(self) -> StageState | None:
        """The next stage with workers."""
        taker = self.downstream
        while taker is not None and taker.pool is None:
            taker = taker.downstream
        return taker

    @property
    def _is_head_resting(self) -> bool:
        """Whether the task to be carried on is the one whose outputs all others wait for."""
        return bool(self.resting) and self.resting[0][1] is next(iter(self.in_flight))

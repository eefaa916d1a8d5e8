"""The running state of one stage: what waits, what is in flight, what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.execution.inbox import Gate, Inbox
from penstock.execution.scheduling import expected_output, is_queue_short, paced_rows
from penstock.plan.stages import Stage
from penstock.protocols import Bundle, ReadTask, Task, WorkerPool

FIRST_READ_NBYTES = 16 * 2**20  # what a read is taken to give before the first one has


class CpuSlots:
    """How many tasks may compute at once, over all the stages that share the machine's cores."""

    def __init__(self, num_slots: int) -> None:
        self.num_free = num_slots


class StageState:
    """Bookkeeping only: the executor moves bundles, the pool does the work.

    ``downstream`` is the stage that takes the outputs, None for the last. ``after`` is a stage that must be done
    before this one starts, which keeps the inputs of a concat in order.
    """

    def __init__(self, index: int, stage: Stage) -> None:
        self.index = index
        self.stage = stage
        self.pool: WorkerPool | None = None  # None: bundles only pass through the gate
        self.cpu: CpuSlots | None = None  # None: its tasks do not compete for cores
        self.inbox = Inbox(stage.inbox)
        self.gate = Gate(stage.inbox)
        self.downstream: StageState | None = None
        self.after: StageState | None = None
        self.num_open_inputs = len(stage.inputs)
        self.reads: Iterator[ReadTask] | None = None
        self._next_read: ReadTask | None = None
        self.in_flight: list[Task] = []  # in the order of submission
        self.resting: list[Task] = []  # gave an output, wait to be carried on
        self.num_rows_taken = 0
        self.nbytes_running = 0  # inputs of tasks in flight
        self.nbytes_unreleased = 0  # outputs kept back for the sake of order
        self.total_in = 0
        self.total_out = 0
        self.num_outputs = 0
        self.is_finishing = False
        self.is_done = False

    # --- what the scheduler asks ---

    @property
    def has_input(self) -> bool:
        if self.is_done or self.is_finishing or (self.after is not None and not self.after.is_done):
            return False
        return bool(self.resting) or self._has_new_input

    @property
    def has_capacity(self) -> bool:
        if self.cpu is not None and self.cpu.num_free < 1:
            return False
        if self.resting:
            return True
        return self.pool is not None and len(self.in_flight) < self.pool.capacity

    @property
    def is_wanted(self) -> bool:
        taker = self._taker
        if taker is None or taker.pool is None:
            return True
        return is_queue_short(taker.inbox.num_tasks, taker.pool.capacity)

    @property
    def nbytes_ahead(self) -> int:
        own = 0 if self._is_head_resting else self.nbytes_unreleased + self.nbytes_running
        return own + (self.downstream.nbytes_from_here if self.downstream else 0)

    @property
    def nbytes_expected(self) -> int:
        if self.reads is not None:
            return self.total_out // self.num_outputs if self.num_outputs else FIRST_READ_NBYTES
        nbytes = self.resting[0].nbytes if self.resting else self.inbox.next_nbytes
        return expected_output(nbytes, self.total_in, self.total_out)

    # --- what the executor does ---

    @property
    def nbytes_held(self) -> int:
        """Everything this stage keeps alive, with what its running tasks are expected to give."""
        num_running = len(self.in_flight) - len(self.resting)
        coming = num_running * self.nbytes_expected if num_running else 0
        return self.inbox.nbytes + self.nbytes_unreleased + self.nbytes_running + coming

    @property
    def nbytes_from_here(self) -> int:
        further = self.downstream.nbytes_from_here if self.downstream else 0
        return self.nbytes_held + further

    @property
    def is_exhausted(self) -> bool:
        """Whether no task is in flight and none can come."""
        if self.in_flight or self._has_new_input:
            return False
        return self.reads is not None or self.num_open_inputs == 0

    @property
    def num_running(self) -> int:
        return len(self.in_flight) - len(self.resting)

    def next_task(self) -> Task:
        """Return the task to submit now: one that rests, the oldest first, or a new one."""
        if self.resting:
            return self.resting.pop(0)
        if self.reads is not None:
            read, self._next_read = self._next_read, None
            assert read is not None
            task = Task(read, 0, nbytes=0)
        else:
            bundles = self.inbox.take()
            num_rows, nbytes = sum(b.num_rows for b in bundles), sum(b.nbytes for b in bundles)
            task = Task(bundles, self.num_rows_taken, nbytes, num_rows)
            self.num_rows_taken += num_rows
            self.nbytes_running += nbytes
        self.in_flight.append(task)
        return task

    def note_output(self, bundle: Bundle) -> None:
        self.total_out += bundle.nbytes
        self.num_outputs += 1

    def note_done(self, task: Task, busy_s: float) -> None:
        task.is_done = True
        if task.num_rows == self.inbox.rows_per_task:
            self.inbox.rows_per_task = paced_rows(task.num_rows, busy_s)
        self.total_in += task.nbytes
        self.nbytes_running -= task.nbytes
        if not self.stage.is_ordered:
            self.in_flight.remove(task)

    def release(self) -> Iterator[Bundle]:
        """Yield the outputs that may go on: those of the oldest task in flight, and of the next once it is done."""
        while self.in_flight:
            head = self.in_flight[0]
            outputs, head.outputs = head.outputs, []
            self.nbytes_unreleased -= sum(bundle.nbytes for bundle in outputs)
            yield from outputs
            if not head.is_done:
                return
            self.in_flight.pop(0)

    @property
    def _has_new_input(self) -> bool:
        if self.reads is None:
            return self.inbox.num_tasks > 0
        if self._next_read is None:
            self._next_read = next(self.reads, None)
        return self._next_read is not None

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
        return bool(self.resting) and self.resting[0] is self.in_flight[0]


"""The rows and reads that wait for the workers of one stage, and the next task made from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from penstock.contracts import Bundle, EndOfInput, Task
from penstock.engine.in_flight import InFlight
from penstock.engine.inbox import Inbox
from penstock.engine.read_queue import ReadQueue
from penstock.engine.task_sizes import NO_TASK, NextTask, TaskSizes
from penstock.plan.stages import CallBatch, CallUdf, RunRelation, Work


class StageInput:
    """Makes the tasks of a stage: reads, rows of its inbox, columns without rows, or the end of the input.

    ``reads`` are the tasks of a stage that reads. A stage that gets no rows processes an empty batch for its columns,
    unless only a call tells its result. The last task of a relation is the end of its input.
    """

    def __init__(
        self,
        work: Work | None,
        sizes: TaskSizes,
        in_flight: InFlight,
        clock: Callable[[], float],
        num_inputs: int,
        reads: ReadQueue | None,
    ) -> None:
        self.inbox = Inbox()
        self.sizes = sizes
        self.reads = reads
        self._in_flight = in_flight
        self._clock = clock
        self._num_open = num_inputs
        self._has_known_result = not _has_unknown_result(work)
        self._needs_end = isinstance(work, RunRelation)
        self._empty: Bundle | None = None
        self._next: NextTask | None = None  # None if it has changed

    @property
    def next_task(self) -> NextTask:
        """The next task of rows in the inbox."""
        if self._next is None:
            self._next = self.sizes.next_task(self.inbox) if self.inbox.num_rows else NO_TASK
        return self._next

    @property
    def next_nbytes(self) -> int | None:
        """Approximate bytes of the next task; None for a read."""
        if self.reads is not None:
            return None
        return self.inbox.nbytes_of(self.next_task.num_rows) if self.inbox.num_rows else 0

    @property
    def has_task(self) -> bool:
        """True if a new task may leave now."""
        if self.reads is not None:
            return self.reads.has_task
        if self.next_task.num_ready or self._is_due:
            return True
        return (self._needs_end or self._is_columns_alone) and self.inbox.is_closed and not self._in_flight

    @property
    def has_part(self) -> bool:
        """True if rows wait that are too few for a task, but may leave as one if nothing better can be done."""
        return not self.next_task.num_ready and self.next_task.idle_at_s < math.inf

    @property
    def is_at_end(self) -> bool:
        """True if no task is in flight and none can come."""
        if self._in_flight or (self.reads is None and self._num_open):
            return False
        return not self.has_task

    def push(self, bundle: Bundle) -> None:
        self.inbox.push(bundle)
        self._next = None

    def close_one(self, empty: Bundle | None) -> None:
        """Record that one of the inputs is done; ``empty`` has its columns if it had no rows."""
        if empty is not None and self._has_known_result:
            self._empty = replace(empty, origins=())
        self._num_open -= 1
        if self._num_open == 0:
            self.inbox.close()
        self._next = None

    def take(self, most_rows: int | None) -> Task:
        """Return the next task. Only called while ``has_task`` or ``has_part``."""
        first_row = self.inbox.num_rows_taken
        if self.reads is not None:
            return Task(self.reads.take(), 0, nbytes=0)
        if self._is_columns_alone and self._empty is not None:
            item, self._empty = (self._empty,), None
            return Task(item, 0, nbytes=0)
        if not self.inbox.num_rows:
            self._needs_end = False
            return Task(EndOfInput(), first_row, nbytes=0)
        bundles = self.inbox.take(self.sizes.next_task(self.inbox, most_rows).num_rows)
        self._next = None
        return Task(bundles, first_row, sum(b.nbytes for b in bundles), sum(b.num_rows for b in bundles))

    def learn(self, task: Task) -> None:
        """Learn from a finished task how large the next tasks should be."""
        if self.reads is not None and not isinstance(task.item, tuple | EndOfInput):
            self.reads.note_done(task.item)
        if task.num_rows:
            self.sizes.learn(task)
            self._next = None

    def limit_tasks(self, max_nbytes: int) -> None:
        """Make tasks of at most this many bytes, unless the policy promises their size."""
        self.inbox.max_task_nbytes = max_nbytes
        self._next = None

    def clear(self) -> None:
        self.inbox.clear()
        self._next = None

    @property
    def _is_due(self) -> bool:
        """True if an incomplete task has waited long enough."""
        due_at_s = self.next_task.due_at_s
        if not self._in_flight.num_running:
            due_at_s = min(due_at_s, self.next_task.idle_at_s)
        return due_at_s < math.inf and due_at_s <= self._clock()

    @property
    def _is_columns_alone(self) -> bool:
        return self._empty is not None and not self.inbox.num_rows_taken and not self.inbox.num_rows


def _has_unknown_result(work: Work | None) -> bool:
    return isinstance(work, CallBatch) or (isinstance(work, CallUdf) and work.call.udf.target.is_generator)

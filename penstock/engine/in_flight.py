"""The tasks of a stage between submission and the release of their last output, and the bytes they hold."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Sequence

from penstock.contracts import Bundle, Task
from penstock.engine.task_costs import Footprint


class InFlight:
    """Tasks that run, rest between two outputs, or wait for an earlier task whose outputs come first."""

    def __init__(self, footprint: Footprint, *, is_ordered: bool) -> None:
        self._num_copies = 1 + footprint.num_inputs
        self._is_ordered = is_ordered
        self._submitted: dict[Task, int] = {}  # numbered in the order of submission
        self._running: dict[Task, int] = {}  # with the expected bytes of the next output
        self._resting: list[tuple[int, Task]] = []  # a heap, the oldest first
        self._numbers = itertools.count()
        self._num_rows_in = self._num_rows_settled = 0
        self._ends: deque[tuple[int, int]] = deque()  # rows out and rows in up to the end of each released task
        self.tracks_settled_rows = False  # only a reader that may stop early needs them
        self.num_rows_out = 0
        self.num_running = 0
        self.num_rows_running = 0  # input rows of running tasks
        self.nbytes = 0  # inputs, with the copies that workers make of them, outputs held back, and expected outputs
        self.nbytes_expected = 0  # next outputs of running tasks

    def __bool__(self) -> bool:
        return bool(self._submitted)

    @property
    def resting(self) -> Task | None:
        return self._resting[0][1] if self._resting else None

    @property
    def is_head_resting(self) -> bool:
        """The next task to resume: all others wait for its outputs."""
        return bool(self._resting) and self._resting[0][1] is next(iter(self._submitted))

    def start(self, task: Task | None, nbytes_expected: int) -> Task:
        """Mark a new task as running, or the oldest resting task if ``task`` is None; return it."""
        if task is None:
            task = heapq.heappop(self._resting)[1]
        else:
            self._submitted[task] = next(self._numbers)
            self.nbytes += task.nbytes * self._num_copies
        self._running[task] = nbytes_expected
        task.nbytes_held = task.nbytes * self._num_copies + nbytes_expected
        self.num_running += 1
        self.num_rows_running += task.num_rows
        self.nbytes += nbytes_expected
        self.nbytes_expected += nbytes_expected
        return task

    def stop(self, task: Task, output: Bundle | None, *, is_done: bool) -> Sequence[Bundle]:
        """Record that a task reported: it rests or is done. Return the outputs to pass on now."""
        nbytes_expected = self._running.pop(task)
        self.num_running -= 1
        self.num_rows_running -= task.num_rows
        self.nbytes -= nbytes_expected
        self.nbytes_expected -= nbytes_expected
        if output is not None:
            task.outputs.append(output)
            self.nbytes += output.nbytes
        if is_done:
            task.is_done = True
            self.nbytes -= task.nbytes * self._num_copies
        else:
            heapq.heappush(self._resting, (self._submitted[task], task))
        return self._release(self._submitted if self._is_ordered else (task,))

    def num_rows_settled(self, num_rows_used: int) -> int:
        """Count the input rows of the first tasks, whose outputs are all among the first ``num_rows_used`` rows."""
        while self._ends and self._ends[0][0] <= num_rows_used:
            _, self._num_rows_settled = self._ends.popleft()
        return self._num_rows_settled

    def clear(self) -> None:
        self._submitted.clear()
        self._running.clear()
        self._resting.clear()
        self.num_running = self.num_rows_running = self.nbytes = self.nbytes_expected = 0

    def _release(self, tasks: Iterable[Task]) -> Sequence[Bundle]:
        """Return the outputs of ``tasks`` up to and including the first one that is not done."""
        released: list[Bundle] = []
        gone: list[Task] = []
        for task in tasks:
            released += task.outputs
            self.num_rows_out += sum(output.num_rows for output in task.outputs)
            task.outputs.clear()
            if not task.is_done:
                break
            gone.append(task)
            if self.tracks_settled_rows:
                self._note_end(task)
        for task in gone:
            del self._submitted[task]
        self.nbytes -= sum(bundle.nbytes for bundle in released)
        return released

    def _note_end(self, task: Task) -> None:
        self._num_rows_in += task.num_rows
        self._ends.append((self.num_rows_out, self._num_rows_in))

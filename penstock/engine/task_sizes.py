"""The sizes of a stage's tasks: one class for each inbox policy, all with the same two methods."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.contracts import Task
from penstock.engine.batch_size import BatchSizeSearch
from penstock.engine.inbox import Inbox
from penstock.engine.pacing import GROUPED_TASK_S, PACED_TASK_S, RowPace, evenly_cut, gathering_s, paced_rows
from penstock.engine.task_costs import RECENT
from penstock.plan.stages import AtMost, Evenly, Exactly, Gathered, Inbox as Policy, Measured, Paced

FIRST_PACED_ROWS = 4  # few: each may give megabytes
FIRST_ROWS = 32  # duration of a task that transfers files
QUICK_TASK_S = 0.25
"""Tasks of API calls grow to the rows that the stage finishes in this time. The rows of a task leave together, so none
waits much longer than this for the others."""
MAX_LULL_S = 1.0
LULL_FACTOR = 4
"""An idle stage waits for an incomplete batch to fill up: this many times the duration of its last task, at most
``MAX_LULL_S``. Small calls while a slow stage feeds it would cost more than the wait."""


class NextTask(NamedTuple):
    """The number of tasks that an inbox could give now, and the rows of the first. Without a ready task the rows are
    too few for one; they leave anyway at ``due_at_s``, or at ``idle_at_s`` if no task of the stage runs.
    """

    num_ready: int
    num_rows: int
    due_at_s: float = math.inf
    idle_at_s: float = math.inf


NO_TASK = NextTask(0, 0)


class TaskSizes(Protocol):
    """Decides how many rows the next task of a stage has, and when it may leave its inbox."""

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        """Return the next task of an inbox that is not empty.

        It has at most ``most_rows``, unless the policy fixes its size.
        """

    def learn(self, task: Task) -> None:
        """Learn from a finished task how many rows the next tasks should have."""


class WholeBundles:
    """Each bundle is a task."""

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        return NextTask(len(inbox.bundles), inbox.fitting(inbox.bundles[0].num_rows))

    def learn(self, task: Task) -> None:
        pass


class ExactRows:
    """Tasks of ``num_rows``; the last may be smaller.

    If the batches are cut later, a task has as many of them as take ``GROUPED_TASK_S`` and fit in memory.
    """

    def __init__(self, policy: Exactly) -> None:
        self._batch_rows = policy.num_rows
        self._is_grouped = policy.is_cut_later
        self.rows_per_task = policy.num_rows

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        num_ready = inbox.num_rows // self.rows_per_task
        if not num_ready and (inbox.is_closed or inbox.num_rows >= self._batch_rows):
            num_ready = 1
        num_rows = min(self.rows_per_task, inbox.num_rows)
        if num_rows > self._batch_rows:
            if inbox.max_task_nbytes is not None:
                num_rows = min(num_rows, inbox.num_rows * inbox.max_task_nbytes // max(inbox.nbytes, 1))
            if most_rows is not None:
                num_rows = min(num_rows, most_rows)
            if num_rows < inbox.num_rows or not inbox.is_closed:  # whole batches, except at the end
                num_rows = max(num_rows - num_rows % self._batch_rows, self._batch_rows)
        return NextTask(num_ready, num_rows)

    def learn(self, task: Task) -> None:
        if self._is_grouped and (task.num_rows == self.rows_per_task or task.busy_s > GROUPED_TASK_S):
            num_batches = paced_rows(-(-task.num_rows // self._batch_rows), task.busy_s, GROUPED_TASK_S)
            self.rows_per_task = num_batches * self._batch_rows


class LimitedRows:
    """Bundles cut to at most ``num_rows``: fewer if their output would be too large, more while the stage is quick."""

    def __init__(self, policy: AtMost, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._noted_at_s = clock()
        self._recent_rows = self._recent_s = 0.0  # decaying sums over finished tasks
        self.rows_per_task = policy.num_rows if policy.nbytes is None else min(FIRST_ROWS, policy.num_rows)

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        num_rows = inbox.fitting(min(self.rows_per_task, inbox.bundles[0].num_rows))
        num_ready = max(len(inbox.bundles), inbox.num_rows // self.rows_per_task)
        return NextTask(num_ready, num_rows if most_rows is None else min(num_rows, most_rows))

    def learn(self, task: Task) -> None:
        policy = self._policy
        if policy.nbytes is not None and task.nbytes_out:
            fitting = policy.nbytes * task.num_rows // task.nbytes_out
            self.rows_per_task = max(1, min(fitting, policy.num_rows))
        if policy.quick_rows is not None:
            in_time = min(self._rows_in(QUICK_TASK_S, task.num_rows), policy.quick_rows)
            self.rows_per_task = max(policy.num_rows, min(in_time, max(self.rows_per_task, 4 * task.num_rows)))

    def _rows_in(self, seconds: float, num_rows: int) -> int:
        """Count ``num_rows`` more finished rows. Return how many the stage finishes in so many seconds."""
        last_s, self._noted_at_s = self._noted_at_s, self._clock()
        self._recent_rows = RECENT * self._recent_rows + num_rows
        self._recent_s = RECENT * self._recent_s + self._noted_at_s - last_s
        return int(seconds * self._recent_rows / max(self._recent_s, 1e-9))


class PacedRows:
    """Bundles cut evenly, so that a task takes about ``PACED_TASK_S``."""

    def __init__(self) -> None:
        self._pace = RowPace()
        self.rows_per_task = FIRST_PACED_ROWS

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        num_rows = inbox.fitting(evenly_cut(inbox.bundles[0].num_rows, self.rows_per_task))
        # A task takes up to half more than its rows, so that none is a sliver.
        num_ready = max(len(inbox.bundles), 2 * inbox.num_rows // (3 * self.rows_per_task))
        return NextTask(num_ready, num_rows if most_rows is None else min(num_rows, most_rows))

    def learn(self, task: Task) -> None:
        # A task of far fewer rows than planned counts only if its rows were slow.
        if task.num_rows > self.rows_per_task // 2 or task.busy_s > PACED_TASK_S:
            self.rows_per_task = self._pace.next_rows(task.num_rows, task.busy_s)


class MeasuredRows:
    """Bundles cut and joined to the size that gives the most rows per second."""

    def __init__(self, search: BatchSizeSearch, clock: Callable[[], float]) -> None:
        self.search = search
        self._clock = clock
        self._lull_until_s = 0.0

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        head = inbox.bundles[0]
        wanted = self.search.rows_within(head.nbytes / head.num_rows)
        num_ready = inbox.num_rows // wanted or int(inbox.is_closed)
        num_rows = inbox.fitting(min(wanted, inbox.num_rows))
        num_rows = num_rows if most_rows is None else min(num_rows, most_rows)
        return NextTask(num_ready, num_rows, idle_at_s=self._lull_until_s)

    def learn(self, task: Task) -> None:
        self.search.note(task.num_rows, task.busy_s, task.nbytes, task.nbytes_out)
        self._lull_until_s = self._clock() + min(LULL_FACTOR * task.busy_s, MAX_LULL_S)


class GatheredBytes:
    """Bundles joined until they hold the bytes of the policy, never cut. With ``seconds`` they wait at most this
    long."""

    def __init__(self, policy: Gathered, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._started_at_s = self._taken_at_s = clock()
        self._ends: deque[int] = deque()  # the ends of the complete tasks, in rows since the start of the query
        self._num_taken = 0  # rows
        self._end = self._nbytes = 0  # of the incomplete task

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        if inbox.num_rows_taken > self._num_taken:
            self._note_taken(inbox)
        self._add_new(inbox)
        if self._ends:
            return NextTask(len(self._ends), self._ends[0] - inbox.num_rows_taken)
        return NextTask(int(inbox.is_closed), inbox.num_rows, self._due_at_s)

    def learn(self, task: Task) -> None:
        pass

    @property
    def _due_at_s(self) -> float:
        seconds = self._policy.seconds
        if seconds is None:
            return math.inf
        return self._taken_at_s + gathering_s(seconds, self._clock() - self._started_at_s)

    def _note_taken(self, inbox: Inbox) -> None:
        """Forget the tasks that have left. An incomplete task leaves only when no complete one waits."""
        self._num_taken, self._taken_at_s = inbox.num_rows_taken, self._clock()
        while self._ends and self._ends[0] <= self._num_taken:
            self._ends.popleft()
        if self._end <= self._num_taken:
            self._end, self._nbytes = self._num_taken, 0

    def _add_new(self, inbox: Inbox) -> None:
        """Add the bundles that have come to the incomplete task, which is complete once it holds enough bytes."""
        num_new, left = 0, inbox.num_rows_taken + inbox.num_rows - self._end
        while left:
            num_new += 1
            left -= inbox.bundles[-num_new].num_rows
        for place in range(len(inbox.bundles) - num_new, len(inbox.bundles)):
            bundle = inbox.bundles[place]
            if bundle.is_task:
                self._complete()
            self._end += bundle.num_rows
            self._nbytes += bundle.nbytes
            if bundle.is_task or self._nbytes >= self._policy.nbytes:
                self._complete()

    def _complete(self) -> None:
        if self._end > (self._ends[-1] if self._ends else self._num_taken):
            self._ends.append(self._end)
        self._nbytes = 0


class EqualParts:
    """All rows, held until the last one comes, in tasks of equal size."""

    def __init__(self, num_parts: int) -> None:
        self._num_parts = num_parts

    def next_task(self, inbox: Inbox, most_rows: int | None = None) -> NextTask:
        if not inbox.is_closed:
            return NO_TASK
        total = inbox.num_rows_taken + inbox.num_rows
        num_parts = min(self._num_parts, total)
        num_left = -(-inbox.num_rows * num_parts // total)
        return NextTask(num_left, inbox.num_rows - (num_left - 1) * total // num_parts)

    def learn(self, task: Task) -> None:
        pass


def task_sizes(policy: Policy, clock: Callable[[], float]) -> TaskSizes:
    """Return the sizes of the tasks of a stage with this policy."""
    match policy:
        case Exactly():
            return ExactRows(policy)
        case AtMost():
            return LimitedRows(policy, clock)
        case Paced():
            return PacedRows()
        case Measured(max_rows, first_rows):
            return MeasuredRows(BatchSizeSearch(max_rows, first_rows), clock)
        case Gathered():
            return GatheredBytes(policy, clock)
        case Evenly(num_parts):
            return EqualParts(num_parts)
        case _:
            return WholeBundles()

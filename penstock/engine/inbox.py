"""The inbox of a stage: bundles wait here and leave as tasks, cut and joined by row counts, never by their data."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable

from penstock.contracts import Bundle
from penstock.engine.batch_size import BatchSizeSearch
from penstock.engine.scheduling import (
    GROUPED_TASK_S,
    PACED_TASK_S,
    RowPace,
    at_most_rows,
    evenly_cut,
    gathering_s,
    paced_rows,
)
from penstock.plan.stages import AtMost, Cut, Evenly, Exactly, Gathered, Inbox as Policy, Measured, Paced

FIRST_PACED_ROWS = 4  # few: each may give megabytes
FIRST_ROWS = 32  # of a task that transfers files
MAX_LULL_S = 1.0
LULL_FACTOR = 4
"""An idle stage waits for an incomplete batch to fill up: this many times the duration of its last task, at most
``MAX_LULL_S``. Small calls while a slow stage feeds it would cost more than the wait."""


class Inbox:
    """A first-in, first-out queue of bundles whose policy decides the size of a task and when it may leave.

    ``max_task_nbytes`` bounds tasks of all policies that promise no exact size.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._bundles: deque[Bundle] = deque()
        self.joins_bundles = isinstance(policy, Exactly | Measured)  # which copies them
        self._is_size_promised = isinstance(policy, Exactly | Evenly | Gathered)
        self._is_size_free = isinstance(policy, AtMost | Paced | Measured)
        self._batch_rows = policy.num_rows if isinstance(policy, Exactly) and policy.is_cut_later else None
        self._num_parts_left = policy.num_parts if isinstance(policy, Evenly) else 0
        self._gathering_s = policy.seconds if isinstance(policy, Gathered) else None
        self._gathered: deque[int] = deque()  # rows of complete tasks
        self._rows_gathering = self._nbytes_gathering = 0  # of the incomplete one
        self._clock = clock
        self._started_at_s = self._taken_at_s = clock()
        self._lull_until_s = 0.0  # an incomplete batch waits until then
        self.rows_per_task = first_rows(policy)
        self._pace = RowPace()
        self.size_search = BatchSizeSearch(policy.max_rows, policy.first_rows) if isinstance(policy, Measured) else None
        self.max_task_nbytes: int | None = None
        self.num_rows = 0
        self.nbytes = 0
        self.is_closed = False

    def push(self, bundle: Bundle) -> None:
        self._bundles.append(bundle)
        self.num_rows += bundle.num_rows
        self.nbytes += bundle.nbytes
        if isinstance(self._policy, Gathered):
            self._gather(bundle, self._policy.nbytes)

    def close(self) -> None:
        """Declare that no more bundles come, which releases an incomplete batch."""
        self.is_closed = True

    def clear(self) -> None:
        """Drop everything and accept nothing more."""
        self._bundles.clear()
        self.num_rows = self.nbytes = 0
        self.is_closed = True

    @property
    def num_tasks(self) -> int:
        """Tasks that could be taken now."""
        if self.joins_bundles:
            return self.num_rows // self._wanted_rows or self._num_rest or self._num_groups
        match self._policy:
            case Gathered():
                return len(self._gathered) or self._num_rest
            case Evenly():
                return min(self._num_parts_left, self.num_rows) if self.is_closed else 0
            case Paced():  # a task takes up to half more than its rows, so that none is a sliver
                return max(len(self._bundles), 2 * self.num_rows // (3 * self.rows_per_task))
            case _:
                return max(len(self._bundles), self.num_rows // self.rows_per_task)

    @property
    def has_part(self) -> bool:
        """Rows wait that are too few for a task, but may leave as one if nothing better can be done."""
        return self.size_search is not None and 0 < self.num_rows < self._wanted_rows

    @property
    def due_at_s(self) -> float | None:
        """The time at which gathered rows are written even if they are few; None without such rows."""
        if self._gathering_s is None or not self.num_rows:
            return None
        return self._taken_at_s + gathering_s(self._gathering_s, self._clock() - self._started_at_s)

    def is_part_due(self, *, is_idle: bool) -> bool:
        """Decide whether an incomplete task has waited long enough."""
        if (due_at_s := self.due_at_s) is not None:
            return self._clock() >= due_at_s
        return is_idle and self.has_part and self._clock() >= self._lull_until_s

    @property
    def next_nbytes(self) -> int:
        """Approximate bytes of the next task. Only valid while ``take`` may be called."""
        num_rows, head = self._next_rows, self._bundles[0]
        if num_rows <= head.num_rows:
            return head.slice(0, num_rows).nbytes
        return self.nbytes * num_rows // self.num_rows

    @property
    def least_rows(self) -> int:
        """The fewest rows that the next task can have."""
        return min(self._policy.num_rows, self.num_rows) if isinstance(self._policy, Exactly) else 1

    def take(self, most_rows: int | None = None) -> tuple[Bundle, ...]:
        """Remove the next task's bundles. Only called while ``num_tasks`` is not zero, or with ``has_part``.

        The task has at most ``most_rows``, unless the policy fixes its size.
        """
        num_rows = self._next_rows
        if most_rows is not None and self._is_size_free:
            num_rows = min(num_rows, most_rows)
        elif most_rows is not None and self._batch_rows is not None:
            num_rows = min(num_rows, max(self._batch_rows, most_rows - most_rows % self._batch_rows))
        self._num_parts_left -= 1
        if self._gathered:
            self._gathered.popleft()
        else:
            self._rows_gathering = self._nbytes_gathering = 0
        self._taken_at_s = self._clock()
        return self._take_rows(num_rows)

    def note_output(self, num_rows: int, nbytes: int) -> None:
        """Learn from one output how many rows fit the bytes that a task may give."""
        if isinstance(self._policy, AtMost) and self._policy.nbytes is not None:
            fitting = int(self._policy.nbytes / max(nbytes / max(num_rows, 1), 1.0))
            self.rows_per_task = max(1, min(fitting, self._policy.num_rows))

    def note_task(self, num_rows: int, busy_s: float, nbytes_in: int, nbytes_out: int) -> None:
        """Learn from a finished task how many rows the next ones should have."""
        if self.size_search is not None:
            self.size_search.note(num_rows, busy_s, nbytes_in, nbytes_out)
            self._lull_until_s = self._clock() + min(LULL_FACTOR * busy_s, MAX_LULL_S)
        elif self._batch_rows is not None:
            if num_rows == self.rows_per_task or busy_s > GROUPED_TASK_S:
                num_batches = paced_rows(-(-num_rows // self._batch_rows), busy_s, GROUPED_TASK_S)
                self.rows_per_task = num_batches * self._batch_rows
        elif isinstance(self._policy, Paced):
            # A task of far fewer rows than planned counts only if its rows were slow.
            if num_rows > self.rows_per_task // 2 or busy_s > PACED_TASK_S:
                self.rows_per_task = self._pace.next_rows(num_rows, busy_s)
        elif isinstance(self._policy, AtMost) and self._policy.quick_rows is not None:
            self.rows_per_task = at_most_rows(self.rows_per_task, num_rows, busy_s, self._policy)

    @property
    def _num_rest(self) -> int:
        return 1 if self.is_closed and self.num_rows else 0

    @property
    def _num_groups(self) -> int:
        return 1 if self._batch_rows is not None and self.num_rows >= self._batch_rows else 0

    @property
    def _wanted_rows(self) -> int:
        """Rows of a task, by the weight of the next rows where the size is found by measurement."""
        if self.size_search is None:
            return self.rows_per_task
        head = self._bundles[0] if self._bundles else None
        return self.size_search.rows_within(head.nbytes / head.num_rows) if head else self.size_search.num_rows

    @property
    def _next_rows(self) -> int:
        """Rows of the next task: at least one, and no more than fit in memory unless a size is promised."""
        num_rows, head = self._policy_rows, self._bundles[0]
        if self._batch_rows is not None and num_rows > self._batch_rows:
            return self._grouped_rows(num_rows, self._batch_rows)
        if self._is_size_promised or self.max_task_nbytes is None or head.nbytes <= self.max_task_nbytes:
            return num_rows
        return max(1, min(num_rows, head.num_rows * self.max_task_nbytes // head.nbytes))

    def _grouped_rows(self, num_rows: int, batch_rows: int) -> int:
        """Return the rows of as many whole batches as fit in memory. The last batch of the input may be smaller."""
        if self.max_task_nbytes is not None:
            num_rows = min(num_rows, max(batch_rows, self.num_rows * self.max_task_nbytes // max(self.nbytes, 1)))
        is_rest = self.is_closed and num_rows == self.num_rows
        return num_rows if is_rest else num_rows - num_rows % batch_rows

    @property
    def _policy_rows(self) -> int:
        if self.joins_bundles:
            return min(self._wanted_rows, self.num_rows)
        match self._policy:
            case Gathered():
                return self._gathered[0] if self._gathered else self.num_rows
            case Evenly():
                return -(-self.num_rows // self._num_parts_left)
            case Paced():
                return evenly_cut(self._bundles[0].num_rows, self.rows_per_task)
            case _:
                return min(self.rows_per_task, self._bundles[0].num_rows)

    def _gather(self, bundle: Bundle, nbytes: int) -> None:
        """Add a bundle to the incomplete task, which is complete once it holds ``nbytes``."""
        if bundle.is_task:
            self._complete()
        self._rows_gathering += bundle.num_rows
        self._nbytes_gathering += bundle.nbytes
        if bundle.is_task or self._nbytes_gathering >= nbytes:
            self._complete()

    def _complete(self) -> None:
        if self._rows_gathering:
            self._gathered.append(self._rows_gathering)
        self._rows_gathering = self._nbytes_gathering = 0

    def _take_rows(self, num_rows: int) -> tuple[Bundle, ...]:
        taken: list[Bundle] = []
        while num_rows and self._bundles:
            head = self._bundles.popleft()
            part = head.slice(0, min(num_rows, head.num_rows))
            if part is not head:
                self._bundles.appendleft(head.slice(part.num_rows, head.num_rows - part.num_rows))
            taken.append(part)
            num_rows -= part.num_rows
            self.num_rows -= part.num_rows
            self.nbytes -= part.nbytes
        if not self._bundles:
            self.nbytes = 0  # proportional slices round; an empty inbox holds nothing
        return tuple(taken)


def first_rows(policy: Policy) -> int:
    """Return how many rows the first task may have; policies without a row count take whole bundles."""
    match policy:
        case Exactly(num_rows, _) | AtMost(num_rows, None):
            return num_rows
        case AtMost(num_rows):
            return min(FIRST_ROWS, num_rows)
        case Paced():
            return FIRST_PACED_ROWS
        case _:
            return sys.maxsize


class Gate:
    """The inbox of a stage without workers: bundles pass at once, cut to the wanted rows."""

    def __init__(self, policy: Policy) -> None:
        self.num_rows_in = self.num_rows_out = 0
        self._to_skip = policy.offset if isinstance(policy, Cut) else 0
        self._to_give = policy.num_rows if isinstance(policy, Cut) else None

    @property
    def is_satisfied(self) -> bool:
        """No further row is wanted."""
        return self._to_give == 0

    @property
    def num_rows_missing(self) -> int | None:
        """Rows that must still come; None without a limit."""
        return None if self._to_give is None else self._to_skip + self._to_give

    def total_rows(self, num_rows_in: int) -> int:
        """Return how many of ``num_rows_in`` rows pass."""
        total = max(self.num_rows_out + num_rows_in - self.num_rows_in - self._to_skip, self.num_rows_out)
        return total if self._to_give is None else min(total, self.num_rows_out + self._to_give)

    def num_rows_settled(self, num_rows_used: int) -> int:
        """Count the rows that passed or were dropped before ``num_rows_used`` rows had been given."""
        return self.num_rows_in - (self.num_rows_out - num_rows_used)

    def pass_on(self, bundle: Bundle) -> Bundle | None:
        """Return the wanted part of a bundle, or None."""
        self.num_rows_in += bundle.num_rows
        skipped = min(self._to_skip, bundle.num_rows)
        self._to_skip -= skipped
        wanted = bundle.num_rows - skipped
        if self._to_give is not None:
            wanted = min(wanted, self._to_give)
            self._to_give -= wanted
        self.num_rows_out += wanted
        return bundle.slice(skipped, wanted) if wanted else None

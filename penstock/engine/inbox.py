"""A stage's inbox: bundles wait here and leave as tasks, cut and joined by their row counts, never by their data."""

from __future__ import annotations

from collections import deque

from penstock.engine.batch_size import Growth
from penstock.engine.scheduling import at_most_rows
from penstock.plan.stages import AtMost, Cut, Evenly, Exactly, Gathered, Inbox as Policy, Measured, Paced
from penstock.protocols import Bundle

FIRST_PACED_ROWS = 32


class Inbox:
    """First in, first out. ``close`` says that no bundle will come any more, which releases an incomplete batch."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._bundles: deque[Bundle] = deque()
        self._num_parts_left = policy.num_parts if isinstance(policy, Evenly) else 0  # counts for Evenly only
        self._num_gathered = 0  # for Gathered: tasks that are complete, and the bytes of the one that is not
        self._nbytes_gathering = 0
        self.rows_per_task = FIRST_PACED_ROWS  # for Paced; set by the stage as it learns what a row takes
        self.most_nbytes: int | None = None  # of a task whose size is not promised; set by the stage likewise
        self.growth = Growth(policy.max_rows) if isinstance(policy, Measured) else None  # told by the stage, too
        # For AtMost; where the rows' size counts, it is the stage that learns how many fit.
        self._most_rows = policy.num_rows if isinstance(policy, AtMost) else 0
        if isinstance(policy, AtMost) and policy.nbytes is not None:
            self._most_rows = min(FIRST_PACED_ROWS, policy.num_rows)
        self.num_rows = 0
        self.nbytes = 0
        self.is_closed = False

    def push(self, bundle: Bundle) -> None:
        self._bundles.append(bundle)
        self.num_rows += bundle.num_rows
        self.nbytes += bundle.nbytes
        if isinstance(self._policy, Gathered):
            self._nbytes_gathering += bundle.nbytes
            if self._nbytes_gathering >= self._policy.nbytes:
                self._num_gathered += 1
                self._nbytes_gathering = 0

    def learn(self, nbytes_a_row: float) -> None:
        """Take note of what a row gives, so that a task gives no more than it may."""
        if isinstance(self._policy, AtMost) and self._policy.nbytes is not None:
            fitting = int(self._policy.nbytes / max(nbytes_a_row, 1.0))
            self._most_rows = max(1, min(fitting, self._policy.num_rows))

    def note(self, num_rows: int, busy_s: float) -> None:
        """Take note of what a task took: rows that wait for nobody may come in larger ones."""
        if isinstance(self._policy, AtMost) and self._policy.quick_rows is not None:
            self._most_rows = at_most_rows(self._most_rows, num_rows, busy_s, self._policy)

    def close(self) -> None:
        self.is_closed = True

    def clear(self) -> None:
        """Drop everything and take nothing more."""
        self._bundles.clear()
        self.num_rows = self.nbytes = 0
        self.is_closed = True

    @property
    def num_tasks(self) -> int:
        """How many tasks could be taken now."""
        match self._policy:
            case Exactly(num_rows):
                return self.num_rows // num_rows or (1 if self.is_closed and self.num_rows else 0)
            case AtMost():
                return max(len(self._bundles), self.num_rows // self._most_rows)
            case Paced():
                return max(len(self._bundles), self.num_rows // self.rows_per_task)
            case Measured():
                return self.num_rows // self._measured_rows or (1 if self.is_closed and self.num_rows else 0)
            case Gathered():
                return self._num_gathered or (1 if self.is_closed and self.num_rows else 0)
            case Evenly():
                return min(self._num_parts_left, self.num_rows) if self.is_closed else 0
            case _:
                return len(self._bundles)

    @property
    def has_part(self) -> bool:
        """Whether rows wait that are too few for a task, but may leave as one if nothing better can be done."""
        return self.growth is not None and 0 < self.num_rows < self._measured_rows

    @property
    def next_nbytes(self) -> int:
        """About how many bytes the next task holds. Only asked while there is one, or a part of one, as ``take``."""
        num_rows, head = self._next_rows, self._bundles[0]
        if num_rows <= head.num_rows:
            return head.slice(0, num_rows).nbytes
        return self.nbytes * num_rows // self.num_rows

    def take(self) -> tuple[Bundle, ...]:
        """Remove the next task's bundles. Only called while ``num_tasks`` is not zero, or with ``has_part``."""
        num_rows = self._next_rows
        self._num_parts_left -= 1
        if self._num_gathered:
            self._num_gathered -= 1
        else:
            self._nbytes_gathering = 0
        return self._take_rows(num_rows)

    @property
    def _next_rows(self) -> int:
        """How many rows the next task has: at least one, and no more than memory suits, unless a size was promised."""
        num_rows, head = self._promised_rows, self._bundles[0]
        is_promised = isinstance(self._policy, Exactly | Evenly | Gathered)
        if is_promised or self.most_nbytes is None or head.nbytes <= self.most_nbytes:
            return num_rows
        return max(1, min(num_rows, head.num_rows * self.most_nbytes // head.nbytes))

    @property
    def _promised_rows(self) -> int:
        match self._policy:
            case Exactly(num_rows):
                return min(num_rows, self.num_rows)
            case AtMost():
                return min(self._most_rows, self._bundles[0].num_rows)
            case Paced():
                return min(self.rows_per_task, self._bundles[0].num_rows)
            case Measured():
                return min(self._measured_rows, self.num_rows)
            case Gathered(nbytes):
                return self._num_rows_within(nbytes)
            case Evenly():
                return -(-self.num_rows // self._num_parts_left)
            case _:
                return self._bundles[0].num_rows

    @property
    def _measured_rows(self) -> int:
        """How many rows a task should have, by what the next rows weigh."""
        assert self.growth is not None
        head = self._bundles[0] if self._bundles else None
        return self.growth.rows_within(head.nbytes / head.num_rows) if head else self.growth.num_rows

    def _num_rows_within(self, nbytes: int) -> int:
        """Return the rows of the first bundles that hold ``nbytes`` together, or of all."""
        num_rows = 0
        for bundle in self._bundles:
            num_rows += bundle.num_rows
            nbytes -= bundle.nbytes
            if nbytes <= 0:
                break
        return num_rows

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


class Gate:
    """The inbox of a stage without workers: bundles pass at once, cut to the wanted rows."""

    def __init__(self, policy: Policy) -> None:
        self._to_skip = policy.offset if isinstance(policy, Cut) else 0
        self._to_give = policy.num_rows if isinstance(policy, Cut) else None

    @property
    def is_satisfied(self) -> bool:
        """Whether no further row is wanted."""
        return self._to_give == 0

    def pass_on(self, bundle: Bundle) -> Bundle | None:
        """Return what is wanted of a bundle, None if nothing is."""
        skipped = min(self._to_skip, bundle.num_rows)
        self._to_skip -= skipped
        wanted = bundle.num_rows - skipped
        if self._to_give is not None:
            wanted = min(wanted, self._to_give)
            self._to_give -= wanted
        return bundle.slice(skipped, wanted) if wanted else None

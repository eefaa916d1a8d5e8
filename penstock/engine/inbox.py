"""The queue of bundles before a stage, and the gate of a stage without workers."""

from __future__ import annotations

from collections import deque

from penstock.contracts import Bundle
from penstock.plan.stages import Cut, Inbox as Policy


class Inbox:
    """A first-in, first-out queue of bundles, cut and joined by row counts, never by their data.

    ``max_task_nbytes`` bounds the tasks whose size no policy promises.
    """

    def __init__(self) -> None:
        self.bundles: deque[Bundle] = deque()
        self.num_rows = 0
        self.nbytes = 0
        self.num_rows_taken = 0
        self.max_task_nbytes: int | None = None
        self.is_closed = False

    def push(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)
        self.num_rows += bundle.num_rows
        self.nbytes += bundle.nbytes

    def close(self) -> None:
        """Declare that no more bundles come, which releases an incomplete task."""
        self.is_closed = True

    def clear(self) -> None:
        """Drop everything and accept nothing more."""
        self.bundles.clear()
        self.num_rows = self.nbytes = 0
        self.is_closed = True

    def fitting(self, num_rows: int) -> int:
        """Return how many of the first ``num_rows`` fit in memory, and at least one."""
        head = self.bundles[0]
        if self.max_task_nbytes is None or head.nbytes <= self.max_task_nbytes:
            return num_rows
        return max(1, min(num_rows, head.num_rows * self.max_task_nbytes // head.nbytes))

    def nbytes_of(self, num_rows: int) -> int:
        """Return the approximate bytes of the first ``num_rows``."""
        head = self.bundles[0]
        if num_rows <= head.num_rows:
            return head.nbytes * num_rows // head.num_rows
        return self.nbytes * num_rows // self.num_rows

    def take(self, num_rows: int) -> tuple[Bundle, ...]:
        """Remove and return the first ``num_rows``."""
        taken: list[Bundle] = []
        while num_rows and self.bundles:
            head = self.bundles.popleft()
            part = head.slice(0, min(num_rows, head.num_rows))
            if part is not head:
                self.bundles.appendleft(head.slice(part.num_rows, head.num_rows - part.num_rows))
            taken.append(part)
            num_rows -= part.num_rows
            self.num_rows -= part.num_rows
            self.num_rows_taken += part.num_rows
            self.nbytes -= part.nbytes
        if not self.bundles:
            self.nbytes = 0  # proportional slices round; an empty inbox holds nothing
        return tuple(taken)


class Gate:
    """The inbox of a stage without workers: bundles pass at once, cut to the wanted rows."""

    def __init__(self, policy: Policy) -> None:
        self.num_rows_in = self.num_rows_out = 0
        self._to_skip = policy.offset if isinstance(policy, Cut) else 0
        self._to_give = policy.num_rows if isinstance(policy, Cut) else None

    @property
    def is_satisfied(self) -> bool:
        """True if no further row is wanted."""
        return self._to_give == 0

    @property
    def num_rows_missing(self) -> int | None:
        """The number of rows that must still come; None without a limit."""
        return None if self._to_give is None else self._to_skip + self._to_give

    def total_rows(self, num_rows_in: int) -> int:
        """Return how many of ``num_rows_in`` rows pass."""
        total = max(self.num_rows_out + num_rows_in - self.num_rows_in - self._to_skip, self.num_rows_out)
        return total if self._to_give is None else min(total, self.num_rows_out + self._to_give)

    def num_rows_settled(self, num_rows_used: int) -> int:
        """Count the input rows that passed or were dropped up to output row ``num_rows_used``."""
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

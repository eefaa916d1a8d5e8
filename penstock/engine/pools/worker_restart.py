"""Decide which rows to try next after a worker died of its batch. Processes and Ray actors share these decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import WorkerDiedError
from penstock.observe.events import RowError

Record = Callable[[RowError], None]
GiveUp = Callable[[pa.RecordBatch, int, WorkerDiedError, Record], pa.RecordBatch | None]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The number of retries of a batch after a death, and the outcome of a single row that kills its worker.

    ``give_up`` returns the output for such a row, None, or raises. A batch is always tried twice: the system may have
    killed the worker for lack of memory. A task of several batches is first cut into batches of ``batch_rows``.
    """

    give_up: GiveUp
    max_retries: int = 1
    batch_rows: int | None = None

    @property
    def num_retries(self) -> int:
        return max(self.max_retries, 1)


class Part(NamedTuple):
    """Consecutive rows of a batch, with the number of times that they may be tried again as a whole."""

    offset: int
    num_rows: int
    num_retries: int


class RestartPlan:
    """The parts of one batch that are not done, in order. After deaths they are halved down to single rows.

    >>> plan = RestartPlan(2, RestartPolicy(lambda *_: None))
    >>> plan.note_death(), plan.part, plan.note_death(), plan.part
    (True, Part(offset=0, num_rows=2, num_retries=0), True, Part(offset=0, num_rows=1, num_retries=0))
    >>> plan.note_death(), plan.part, plan.note_done(), plan.part
    (False, Part(offset=1, num_rows=1, num_retries=0), None, None)
    """

    def __init__(self, num_rows: int, policy: RestartPolicy) -> None:
        self._policy = policy
        self._parts = [Part(0, num_rows, policy.num_retries)]  # the next one last

    @property
    def part(self) -> Part | None:
        """The part to try next."""
        return self._parts[-1] if self._parts else None

    def note_done(self) -> None:
        """Record that the worker gave the output of the part."""
        self._parts.pop()

    def note_death(self) -> bool:
        """Record that the part killed its worker. Return False if it is one row, which must be given up."""
        offset, num_rows, num_retries = self._parts.pop()
        size = self._policy.batch_rows
        if size is not None and num_rows > size:
            starts = range(0, num_rows, size)
            parts = [Part(offset + at, min(size, num_rows - at), self._policy.num_retries) for at in starts]
        elif num_retries:
            parts = [Part(offset, num_rows, num_retries - 1)]
        elif num_rows > 1:
            half = num_rows // 2
            parts = [Part(offset, half, 0), Part(offset + half, num_rows - half, 0)]
        else:
            return False
        self._parts += reversed(parts)
        return True

"""Decide which rows to try next after a worker died of its batch. Processes and Ray actors share these decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import WorkerDiedError
from penstock.events.events import RowError

MAX_SINGLE_ROWS = 16  # rows of a part that is cut into single rows at once
Record = Callable[[RowError], None]
GiveUp = Callable[[pa.RecordBatch, int, WorkerDiedError, Record], pa.RecordBatch | None]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The number of retries after a worker died of a batch, and what becomes of a single row that kills it.

    ``give_up`` returns the output for such a row, None, or raises. A batch is always tried twice: the system may have
    killed the worker for lack of memory. A task of several batches is first cut into batches of ``batch_rows``.
    """

    give_up: GiveUp
    num_retries: int = 1
    batch_rows: int | None = None


class Part(NamedTuple):
    """Consecutive rows of a batch, and how often they may be tried again as a whole."""

    offset: int
    num_rows: int
    num_retries: int


class RestartPlan:
    """The unfinished parts of one batch, in order. Deaths cut them into smaller parts, finally into single rows.

    Starting a worker takes seconds, and a worker does part after part until one kills it. So a batch is cut into many
    parts, each with the square root of its rows: this finds one row among 256 with four deaths and a few dozen calls.

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
            parts = self._cut(offset, num_rows, size, self._policy.num_retries)
        elif num_retries:
            parts = [Part(offset, num_rows, num_retries - 1)]
        elif num_rows > 1:
            parts = self._cut(offset, num_rows, isqrt(num_rows) if num_rows > MAX_SINGLE_ROWS else 1, 0)
        else:
            return False
        self._parts += reversed(parts)
        return True

    @staticmethod
    def _cut(offset: int, num_rows: int, size: int, num_retries: int) -> list[Part]:
        return [Part(offset + at, min(size, num_rows - at), num_retries) for at in range(0, num_rows, size)]

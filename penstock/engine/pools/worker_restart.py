"""Replace a worker process that dies, retry its batch, and find the row that kills each process by bisection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import WorkerDiedError, WorkerGoneError
from penstock.observe.events import RowError
from penstock.protocols import Handler, Interruptible

log = logging.getLogger("penstock.workers")

Record = Callable[[RowError], None]
GiveUp = Callable[[pa.RecordBatch, int, WorkerDiedError, Record], pa.RecordBatch | None]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The number of retries of a batch after a death, and the outcome of a row that kills the process alone.

    ``give_up`` returns the output for such a row, None, or raises. A batch is always tried twice: the system may have
    killed the process for lack of memory.
    """

    give_up: GiveUp
    max_retries: int = 1


class RestartableHandler(Handler, Interruptible, Protocol):
    """A handler in a process that may die. ``is_open`` says that the process has built its handler."""

    is_open: bool


class RestartingHandler:
    """Stands for one process after another, for handlers that hold no state between batches."""

    def __init__(self, start: Callable[[], RestartableHandler], policy: RestartPolicy, record: Record) -> None:
        self._start = start
        self._policy = policy
        self._record = record
        self._worker: RestartableHandler | None = None
        self._num_retries = max(policy.max_retries, 1)
        self._num_failed_starts = 0  # processes in a row that died before they saw a row

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return the output of a batch. A death after the first output is an error: outputs would come twice."""
        given = self._attempt(item, first_row)
        num_retries_left = self._num_retries
        while isinstance(given, WorkerDiedError) and num_retries_left:
            log.warning("%s Retrying its batch of %d rows.", given, item.num_rows)
            num_retries_left -= 1
            given = self._attempt(item, first_row)
        return self._bisected(item, first_row, given) if isinstance(given, WorkerDiedError) else given

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def interrupt(self, *, is_busy: bool) -> None:
        if (worker := self._worker) is not None:
            worker.interrupt(is_busy=is_busy)

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _attempt(
        self, item: pa.RecordBatch, first_row: int
    ) -> pa.RecordBatch | Iterator[pa.RecordBatch] | WorkerDiedError:
        """Return the output, or the error of a process that died. A cancelled query raises QueryCancelledError."""
        if self._worker is None:
            self._worker = self._start()
        try:
            given = self._worker.process(item, first_row)
            self._num_failed_starts = 0
            return given
        except WorkerGoneError:  # a batch of another stage killed it
            self.close()
        except WorkerDiedError as exc:
            is_row_suspect = self._worker.is_open
            self.close()
            if is_row_suspect:
                return exc
            self._num_failed_starts += 1
            if self._num_failed_starts > self._num_retries:
                raise
        return self._attempt(item, first_row)

    def _bisected(self, item: pa.RecordBatch, first_row: int, death: WorkerDiedError) -> Iterator[pa.RecordBatch]:
        """Yield the outputs of the halves of a batch, halving again until the rows that kill stand alone."""
        if item.num_rows <= 1:
            given = self._policy.give_up(item, first_row, death, self._record)
            if given is not None:
                yield given
            return
        half = item.num_rows // 2
        for offset, part in ((0, item.slice(0, half)), (half, item.slice(half))):
            given = self._attempt(part, first_row + offset)
            if isinstance(given, WorkerDiedError):
                yield from self._bisected(part, first_row + offset, given)
            elif isinstance(given, pa.RecordBatch):
                yield given
            else:
                yield from given

"""A worker process that dies is replaced and its batch tried again; a row that kills each time is found and judged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import WorkerDiedError, WorkerGoneError
from penstock.observe.events import RowError
from penstock.protocols import Handler

log = logging.getLogger("penstock.workers")

Record = Callable[[RowError], None]
GiveUp = Callable[[pa.RecordBatch, int, WorkerDiedError, Record], pa.RecordBatch | None]


@dataclass(frozen=True, slots=True)
class Revival:
    """How often a batch is tried again after a death, and what a row gives that kills alone: rows, none, or an error.

    A batch always gets a second chance: the death may be the system's, short of memory, and not the row's.
    """

    give_up: GiveUp
    max_retries: int = 1


class RemoteWorker(Handler, Protocol):
    """A stand-in for a process, as the pool knows it."""

    @property
    def is_open(self) -> bool:
        """Whether the process has built its handler."""
        ...

    def kill(self) -> None:
        """End the process at once; may be called from any thread."""
        ...

    def dismiss(self) -> None:
        """Tell the process to close its handler and end."""
        ...


class RevivingHandler:
    """Stands for one process after another. For handlers that hold nothing between batches, as it dies with them."""

    def __init__(self, start: Callable[[], RemoteWorker], revival: Revival, record: Record) -> None:
        self._start = start
        self._revival = revival
        self._record = record
        self._worker: RemoteWorker | None = None
        self._num_retries = max(revival.max_retries, 1)
        self._num_stillborn = 0  # workers that died before they saw a row

    @property
    def is_open(self) -> bool:
        return self._worker is not None and self._worker.is_open

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return what the batch gives. After outputs that have gone on, a death is an error: they would come twice."""
        given = self._attempt(item, first_row)
        num_retries_left = self._num_retries
        while isinstance(given, WorkerDiedError) and num_retries_left:
            log.warning("%s Its batch of %d rows is tried again.", given, item.num_rows)
            num_retries_left -= 1
            given = self._attempt(item, first_row)
        return self._taken_apart(item, first_row, given) if isinstance(given, WorkerDiedError) else given

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def kill(self) -> None:
        if (worker := self._worker) is not None:
            worker.kill()

    def dismiss(self) -> None:
        if (worker := self._worker) is not None:
            worker.dismiss()

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _attempt(
        self, item: pa.RecordBatch, first_row: int
    ) -> pa.RecordBatch | Iterator[pa.RecordBatch] | WorkerDiedError:
        """Return what a living worker gives, or how it died. If the query is stopped meanwhile, the worker says so."""
        if self._worker is None:
            self._worker = self._start()
        try:
            given = self._worker.process(item, first_row)
            self._num_stillborn = 0
            return given
        except WorkerGoneError:  # with what another stage was doing in it
            self.close()
        except WorkerDiedError as exc:
            is_row_suspect = self.is_open
            self.close()
            if is_row_suspect:
                return exc
            self._num_stillborn += 1
            if self._num_stillborn > self._num_retries:
                raise
        return self._attempt(item, first_row)

    def _taken_apart(self, item: pa.RecordBatch, first_row: int, death: WorkerDiedError) -> Iterator[pa.RecordBatch]:
        """Yield what the halves of a batch give, and their halves where one kills, until rows that do stand alone."""
        if item.num_rows <= 1:
            given = self._revival.give_up(item, first_row, death, self._record)
            if given is not None:
                yield given
            return
        half = item.num_rows // 2
        for offset, part in ((0, item.slice(0, half)), (half, item.slice(half))):
            given = self._attempt(part, first_row + offset)
            if isinstance(given, WorkerDiedError):
                yield from self._taken_apart(part, first_row + offset, given)
            elif isinstance(given, pa.RecordBatch):
                yield given
            else:
                yield from given

"""Handlers in processes of their own: for code that holds the GIL, uses a GPU, or may crash.

A worker process is driven by a ``ThreadPool`` whose handlers pass batches to the process, and its outputs back. A
process that dies is replaced and its batch is retried; bisection finds the row that kills each process.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.contracts import WorkerContext
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.process_group import ProcessGroup
from penstock.engine.pools.worker_restart import Record, RestartPlan, RestartPolicy
from penstock.errors import PenstockError, WorkerDiedError, WorkerGoneError

log = logging.getLogger("penstock.workers")


def process_opener(packed_open: bytes, group: ProcessGroup, restart: RestartPolicy | None = None) -> OpenHandler:
    """Return a function that opens the handler of worker i in process i of ``group``.

    Without ``restart`` the death of a process is an error.
    """

    def open_remote(context: WorkerContext) -> RemoteHandler | RestartingHandler:
        start: Callable[[], RemoteHandler] = partial(RemoteHandler, group, packed_open, context)
        return start() if restart is None else RestartingHandler(start, restart, context.record)

    return open_remote


class RemoteHandler:
    """One handler in a worker process. It ``is_open`` once the process has built it, for the first batch."""

    def __init__(self, group: ProcessGroup, packed_open: bytes, context: WorkerContext) -> None:
        self._group = group
        self._packed_open = packed_open
        self._context = context
        self._process = group.join(context.worker)
        self._channel = group.channel(context.worker)
        self._key = next(self._process.handler_keys)
        self.is_open = False

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if not self.is_open:
            self._call("open", self._packed_open, sys.path)
            self.is_open = True
        is_done, output = self._call("process", first_row, batch=item)
        return output if is_done and output is not None else self._outputs(output)

    def interrupt(self, *, is_busy: bool) -> None:
        """Kill a busy process. Other stages that share it try their batches again in another process."""
        if is_busy:
            self._process.kill()
        elif self._process.num_users == 1:
            self._process.send_end()

    def close(self) -> None:
        if self.is_open and self._process.num_users > 1:
            with contextlib.suppress(PenstockError):  # it may have died meanwhile
                self._process.call(("close", self._key), None, lambda: False, self._channel)
        self._group.leave(self._context.worker, self._process)

    def _outputs(self, output: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        while output is not None:
            yield output
            _, output = self._call("next")

    def _call(self, verb: str, *args: Any, batch: pa.RecordBatch | None = None) -> tuple[bool, pa.RecordBatch | None]:
        request, is_cancelled = (verb, self._key, *args), self._context.is_cancelled
        is_done, errors, output = self._process.call(request, batch, is_cancelled, self._channel)
        for error in errors:
            self._context.record(error)
        return is_done, output


class RestartingHandler:
    """Runs a handler in a process, and in another one if that dies. The handler keeps nothing between batches."""

    def __init__(self, start: Callable[[], RemoteHandler], policy: RestartPolicy, record: Record) -> None:
        self._start = start
        self._policy = policy
        self._record = record
        self._worker: RemoteHandler | None = None
        self._num_failed_starts = 0  # processes in a row that died before they saw a row

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return the output of a batch. A death after the first output is an error: outputs would come twice."""
        given = self._attempt(item, first_row)
        return self._in_parts(item, first_row, given) if isinstance(given, WorkerDiedError) else given

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
        """Return the output, or the error of a process that died. Raise QueryCancelledError in a stopped query."""
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
            if self._num_failed_starts > self._policy.num_retries:
                raise
        return self._attempt(item, first_row)

    def _in_parts(self, item: pa.RecordBatch, first_row: int, death: WorkerDiedError) -> Iterator[pa.RecordBatch]:
        """Yield the outputs of the parts of a batch that killed a process."""
        plan = RestartPlan(item.num_rows, self._policy)
        given: pa.RecordBatch | Iterator[pa.RecordBatch] | WorkerDiedError | None = death
        while (part := plan.part) is not None:
            rows, start = item.slice(part.offset, part.num_rows), first_row + part.offset
            if given is None:
                given = self._attempt(rows, start)
            if not isinstance(given, WorkerDiedError):
                plan.note_done()
                yield from [given] if isinstance(given, pa.RecordBatch) else given
            elif plan.note_death():
                log.warning("%s Trying its %d rows again.", given, part.num_rows)
            elif (output := self._policy.give_up(rows, start, given, self._record)) is not None:
                yield output
            given = None

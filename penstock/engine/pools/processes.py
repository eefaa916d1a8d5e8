"""Handlers in processes of their own: for code that holds the GIL, uses a GPU, or may crash.

A slot's handler is a stand-in that passes batches to its process and outputs back; the rest is ``ThreadPool``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pyarrow as pa

from penstock.engine.pools.process_group import Crew
from penstock.engine.pools.threads import OpenHandler, Slot, ThreadPool, Threads
from penstock.engine.pools.worker_restart import RemoteWorker, Revival, RevivingHandler
from penstock.errors import PenstockError
from penstock.protocols import Emit, WorkerContext


class ProcessPool(ThreadPool):
    """A thread pool whose handlers stand for those in the processes of ``crew``, one for each of its slots.

    ``open_handler`` travels there by cloudpickle. Without ``revival`` a worker that dies is an error.
    """

    def __init__(
        self,
        open_handler: OpenHandler,
        capacity: int,
        threads: Threads,
        emit: Emit,
        crew: Crew | None = None,
        revival: Revival | None = None,
    ) -> None:
        import cloudpickle

        super().__init__(open_handler, capacity, threads, emit)
        self.packed_open: bytes = cloudpickle.dumps(open_handler)
        self._crew = crew or Crew([{}] * capacity)
        self._revival = revival

    def _opened(self, slot: Slot) -> RemoteWorker:
        context = self._context(slot)
        start = partial(RemoteHandler, self._crew, slot.index, self.packed_open, context)
        return start() if self._revival is None else RevivingHandler(start, self._revival, context.record)

    def _interrupt(self) -> None:
        """Kill the workers that are busy, and have the others close their handlers, all at the same time."""
        for slot in self._slots:
            if (worker := cast(RemoteWorker | None, slot.handler)) is not None:
                if slot.lock.locked():
                    worker.kill()
                else:
                    worker.dismiss()


class RemoteHandler:
    """Stands for one handler in a worker process, which builds it when the first batch comes."""

    def __init__(self, crew: Crew, number: int, packed_open: bytes, context: WorkerContext) -> None:
        self._crew = crew
        self._number = number
        self._packed = packed_open
        self._is_cancelled = context.is_cancelled
        self._record = context.record
        self._process = crew.join(number)
        self._key = next(self._process.handler_numbers)
        self.is_open = False

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if not self.is_open:
            self._ask("open", self._packed, sys.path)
            self.is_open = True
        verb, output = self._ask("process", first_row, batch=item)
        return output if verb == "only" else self._outputs(output)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self.is_open:
            _, output = self._ask("finish")
            yield from self._outputs(output)

    def kill(self) -> None:
        """End the process at once, also for those who share it, whose batches are tried again in another."""
        self._process.kill()

    def dismiss(self) -> None:
        """Tell the process to end, unless others use it."""
        if self._process.num_users == 1:
            self._process.dismiss()

    def close(self) -> None:
        if self.is_open and self._process.num_users > 1:
            with contextlib.suppress(PenstockError):  # it may have died meanwhile
                self._process.ask(("close", self._key), None, lambda: False)
        self._crew.leave(self._number, self._process)

    def _outputs(self, output: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        while output is not None:
            yield output
            _, output = self._ask("next")

    def _ask(self, verb: str, *args: Any, batch: pa.RecordBatch | None = None) -> tuple[str, pa.RecordBatch | None]:
        word, errors, output = self._process.ask((verb, self._key, *args), batch, self._is_cancelled)
        for failed in errors:
            self._record(failed)
        return word, output

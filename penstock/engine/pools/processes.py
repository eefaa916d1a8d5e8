"""Handlers in processes of their own: for code that holds the GIL, uses a GPU, or may crash.

A worker process is driven by a ``ThreadPool`` whose handlers pass batches to the process and outputs back.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.process_group import ProcessGroup
from penstock.engine.pools.worker_restart import RestartingHandler, RestartPolicy
from penstock.errors import PenstockError
from penstock.protocols import WorkerContext


def pack(open_handler: OpenHandler) -> bytes:
    """Pickle a function that opens handlers, with the user code it refers to."""
    import cloudpickle

    packed: bytes = cloudpickle.dumps(open_handler)
    return packed


def process_opener(packed_open: bytes, group: ProcessGroup, restart: RestartPolicy | None = None) -> OpenHandler:
    """Return a function that opens handlers in ``group``, the one of worker i in process i.

    Without ``restart`` the death of a process is an error.
    """

    def open_remote(context: WorkerContext) -> RemoteHandler | RestartingHandler:
        start: Callable[[], RemoteHandler] = partial(RemoteHandler, group, packed_open, context)
        return start() if restart is None else RestartingHandler(start, restart, context.record)

    return open_remote


class RemoteHandler:
    """Stands for one handler in a worker process, which builds it when the first batch comes."""

    def __init__(self, group: ProcessGroup, packed_open: bytes, context: WorkerContext) -> None:
        self._group = group
        self._packed_open = packed_open
        self._context = context
        self._process = group.join(context.worker)
        self._key = next(self._process.handler_keys)
        self.is_open = False

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if not self.is_open:
            self._call("open", self._packed_open, sys.path)
            self.is_open = True
        is_done, output = self._call("process", first_row, batch=item)
        return output if is_done and output is not None else self._outputs(output)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self.is_open:
            _, output = self._call("finish")
            yield from self._outputs(output)

    def interrupt(self, *, is_busy: bool) -> None:
        """Kill a busy process, also for other stages that share it; they retry their batches in another process."""
        if is_busy:
            self._process.kill()
        elif self._process.num_users == 1:
            self._process.send_end()

    def close(self) -> None:
        if self.is_open and self._process.num_users > 1:
            with contextlib.suppress(PenstockError):  # it may have died meanwhile
                self._process.call(("close", self._key), None, lambda: False)
        self._group.leave(self._context.worker, self._process)

    def _outputs(self, output: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        while output is not None:
            yield output
            _, output = self._call("next")

    def _call(self, verb: str, *args: Any, batch: pa.RecordBatch | None = None) -> tuple[bool, pa.RecordBatch | None]:
        is_done, errors, output = self._process.call((verb, self._key, *args), batch, self._context.is_cancelled)
        for error in errors:
            self._context.record(error)
        return is_done, output

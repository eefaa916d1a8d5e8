"""One handler in a worker: opened on first use, with the outputs of its task drawn one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.contracts import Handler, HoldsOutput, WorkerContext
from penstock.events.events import RowError

OpenHandler = Callable[[WorkerContext], Handler]
Output = tuple[pa.RecordBatch | None, bool]  # the next output of a task, and whether it is the last


class HandlerSlot:
    """Drives a handler on one task at a time. Threads that share a slot hold ``lock`` while they use it."""

    def __init__(
        self, open_handler: OpenHandler, is_cancelled: Callable[[], bool] = lambda: False, worker: int = 0
    ) -> None:
        self._open_handler = open_handler
        self._errors: list[RowError] = []  # since they were last taken
        self._context = WorkerContext(is_cancelled, self._errors.append, worker)
        self.outputs: Iterator[pa.RecordBatch] | None = None  # more outputs of the task, which rests meanwhile
        self.handler: Handler | None = None
        self.lock = threading.Lock()

    def open(self) -> Handler:
        if self.handler is None:
            self.handler = self._open_handler(self._context)
        return self.handler

    def start(self, item: Any, first_row: int) -> Output:
        """Start a task and return its first output."""
        given = (self.handler or self.open()).process(item, first_row)
        if isinstance(given, pa.RecordBatch):
            return given, True
        self.outputs = given
        return self.next()

    def next(self) -> Output:
        assert self.outputs is not None
        batch = next(self.outputs, None)
        return batch, batch is None

    def finish(self) -> Output:
        """Return the first output that the handler still holds; ``next`` returns the others."""
        self.outputs = iter(())
        if isinstance(self.handler, HoldsOutput):
            self.outputs = self.handler.finish()
        return self.next()

    def take_errors(self) -> tuple[RowError, ...]:
        """Return the failed rows since the last call."""
        if not self._errors:
            return ()
        taken = tuple(self._errors)
        self._errors.clear()
        return taken

    def close(self) -> None:
        with self.lock:
            handler, self.handler, self.outputs = self.handler, None, None
            self._errors.clear()
            if handler is not None:
                handler.close()

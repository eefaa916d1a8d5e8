"""Handlers on threads: the pool for reads, Arrow kernels, writes and Python functions in the user's process.

A *slot* is one worker: a handler, built when it is first needed and used by one thread at a time. Threads are shared
by all the stages of a query; a task that rests holds its slot but no thread.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from penstock.errors import QueryCancelledError
from penstock.observe.events import RowError
from penstock.protocols import Bundle, Emit, Handler, Report, Task, WorkerContext
from penstock.types import unified

OpenHandler = Callable[[WorkerContext], Handler]


class Slot:
    """One worker: its handler and, while it works on a task, the outputs still to come. Its user holds ``lock``."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.lock = threading.Lock()
        self.handler: Handler | None = None
        self.outputs: Iterator[pa.RecordBatch] | None = None
        self.errors: list[RowError] = []

    def take_errors(self) -> tuple[RowError, ...]:
        """Return the rows that failed since the last time."""
        if not self.errors:
            return ()
        taken = tuple(self.errors)
        self.errors.clear()
        return taken

    def close(self) -> None:
        with self.lock:
            handler, self.handler, self.outputs = self.handler, None, None
        if handler is not None:
            handler.close()


class Threads:
    """Threads that run pieces of work, made when none is free. A hand-over is one queue operation.

    ``concurrent.futures`` would make a Future with its lock for each piece, several times the cost of the hand-over.
    Each runs in a copy of the context in which this object was made, so that a ``with ps.config(...)`` around a query
    holds for the functions it calls.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._num_free = 0
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._context = contextvars.copy_context()

    def in_turn(self, open_handler: OpenHandler) -> OpenHandler:
        """Return ``open_handler`` as one that waits until no other handler of the query is being opened so.

        Libraries that load models change settings of the whole process meanwhile: of two models of transformers that
        are loaded at the same time, one or both may end up with random weights, and without an error. The turns are a
        query's own: an ``__init__`` that runs a query itself must not wait for its own end.
        """

        def open_in_turn(context: WorkerContext) -> Handler:
            with self._opening:
                if context.is_cancelled():
                    raise QueryCancelledError("the query was stopped")
                return open_handler(context)

        return open_in_turn

    def start(self, work: Callable[[], None]) -> None:
        """Run ``work``, which must not raise, on a free thread or a new one."""
        with self._lock:
            is_new_needed = self._num_free == 0
            self._num_free -= 0 if is_new_needed else 1
        if is_new_needed:
            context = self._context.copy()  # its own: a context is entered by one thread at a time
            name = f"penstock-{len(self._threads)}"
            thread = threading.Thread(target=context.run, args=(self._serve,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Wait for all work given so far and end the threads."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            if thread.is_alive():  # one that could not be started is not
                thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # it may hold a batch
            with self._lock:
                self._num_free += 1


class ThreadPool:
    """Implements ``WorkerPool`` on ``threads``, which the caller owns and closes last.

    ``cpu_clock`` gives the core time that the calling thread has wanted so far, where somebody wants to know.
    """

    def __init__(
        self,
        open_handler: OpenHandler,
        capacity: int,
        threads: Threads,
        emit: Emit,
        cpu_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.capacity = capacity
        self._cpu_clock = cpu_clock
        self._open_handler = open_handler
        self._threads = threads
        self._emit = emit
        self._cancelled = threading.Event()
        self._free = [Slot(index) for index in reversed(range(capacity))]
        self._slots = tuple(self._free)
        self._busy: dict[Task, Slot] = {}
        self._finishing = threading.Lock()

    def submit(self, task: Task) -> None:
        slot = self._busy.get(task)
        if slot is None:
            # The one given back last, which is open: a model is loaded as often as needed, not as often as allowed.
            slot = self._busy[task] = self._free.pop()
        self._threads.start(partial(self._advance, slot, task))

    def finish(self) -> None:
        held = [slot for slot in self._slots if slot.handler is not None]
        if not held:
            self._emit(Report(None, None, is_done=True))
        unfinished = set(held)
        for slot in held:  # at the same time: to flush a file may take as long as to fill it
            self._threads.start(partial(self._finish, slot, unfinished))

    def close(self) -> None:
        self._cancelled.set()
        self._interrupt()
        with ExitStack() as closing:  # if one fails to close, the others are closed all the same
            for slot in self._slots:
                closing.callback(slot.close)

    def _interrupt(self) -> None:
        """Make running handlers return soon. Those in this process look at the cancel flag themselves."""

    def _advance(self, slot: Slot, task: Task) -> None:
        """Take the task to its next output."""
        with slot.lock:
            report = None if self._cancelled.is_set() else self._advanced(slot, task)
        if report is not None:  # told only now: a worker whose task is done is not busy
            self._emit(report)

    def _advanced(self, slot: Slot, task: Task) -> Report:
        started, cpu_started = time.perf_counter(), self._cpu_clock()
        is_one = False
        try:
            if slot.outputs is None:
                given = self._handler(slot).process(input_of(task), task.first_row)
                slot.outputs = iter((given,)) if (is_one := isinstance(given, pa.RecordBatch)) else given
            batch = next(slot.outputs, None)
            busy_s = time.perf_counter() - started
            output = None if batch is None else local_bundle(batch)
            wanted_cpu_s = self._cpu_clock() - cpu_started
        except BaseException as exc:
            self._give_back(slot, task)
            return Report(task, None, is_done=True, error=exc)
        is_done = is_one or batch is None
        errors = slot.take_errors()
        if is_done:
            self._give_back(slot, task)
        return Report(task, output, is_done, busy_s, errors=errors, wanted_cpu_s=wanted_cpu_s)

    def _give_back(self, slot: Slot, task: Task) -> None:
        slot.outputs = None
        del self._busy[task]
        self._free.append(slot)

    def _finish(self, slot: Slot, unfinished: set[Slot]) -> None:
        try:
            with slot.lock:
                for batch in slot.handler.finish() if slot.handler is not None else ():
                    self._emit(Report(None, local_bundle(batch), is_done=False))
        except BaseException as exc:
            self._emit(Report(None, None, is_done=True, error=exc))
            return
        with self._finishing:
            unfinished.discard(slot)
            is_last = not unfinished
        if is_last:
            self._emit(Report(None, None, is_done=True))

    def _handler(self, slot: Slot) -> Handler:
        if slot.handler is None:
            slot.handler = self._opened(slot)
        return slot.handler

    def _opened(self, slot: Slot) -> Handler:
        return self._open_handler(self._context(slot))

    def _context(self, slot: Slot) -> WorkerContext:
        return WorkerContext(self._cancelled.is_set, slot.errors.append)


def input_of(task: Task) -> Any:
    """Return what a local handler works on: the read task, or the task's bundles as one batch."""
    if not isinstance(task.item, tuple):
        return task.item
    parts = [bundle.handle.slice(bundle.offset, bundle.num_rows) for bundle in task.item]
    return parts[0] if len(parts) == 1 else joined(parts)


def joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch of several; where their types differ, as after a map_batches, the common type."""
    return pa.concat_batches(unified(parts))


def local_bundle(batch: pa.RecordBatch) -> Bundle:
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"a worker gave a {type(batch).__name__}, where a RecordBatch was expected")
    return Bundle(batch, batch.num_rows, batch.nbytes)

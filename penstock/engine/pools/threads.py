"""Handlers on threads: the pool for reads, Arrow kernels, writes and Python functions in the user's process.

A *slot* is one worker: a handler, built on first use and used by one thread at a time. All stages of a query share
their threads; a resting task holds its slot but no thread.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from penstock.contracts import (
    Bundle,
    Emit,
    Handler,
    Interruptible,
    Report,
    Task,
    WorkerContext,
    check_not_cancelled,
)
from penstock.engine.pools.handler_slot import HandlerSlot, OpenHandler
from penstock.types import joined


class Threads:
    """Threads that run callables, started when none is free. A hand-over is one queue operation.

    ``concurrent.futures`` would create a Future with its lock for each, at several times the cost of the hand-over.
    Each thread runs in a copy of the context in which this object was made, so that a ``with ps.config(...)`` around a
    query applies to the functions it calls.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._num_free = 0
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._context = contextvars.copy_context()

    def one_at_a_time(self, open_handler: OpenHandler) -> OpenHandler:
        """Return an opener that waits until no other handler of the query is being opened.

        Libraries that load models change process-wide settings meanwhile: if transformers loads two models at the same
        time, both may silently end up with random weights. The lock belongs to one query, because an ``__init__`` may
        run a query itself.
        """

        def open_alone(context: WorkerContext) -> Handler:
            with self._opening:
                check_not_cancelled(context.is_cancelled)
                return open_handler(context)

        return open_alone

    def start(self, work: Callable[[], None]) -> None:
        """Run ``work``, which must not raise, on a free thread or a new one."""
        with self._lock:
            is_new_needed = self._num_free == 0
            self._num_free -= 0 if is_new_needed else 1
        if is_new_needed:
            context = self._context.copy()  # only one thread at a time may enter a context
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
            if thread.is_alive():  # False if it could not be started
                thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # it may hold a batch
            with self._lock:
                self._num_free += 1


def input_of(task: Task) -> Any:
    """Return the input of a local handler: the read task, or the task's bundles as one batch."""
    if not isinstance(task.item, tuple):
        return task.item
    parts = [bundle.handle.slice(bundle.offset, bundle.num_rows) for bundle in task.item]
    return parts[0] if len(parts) == 1 else joined(parts)


def local_bundle(batch: pa.RecordBatch) -> Bundle:
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"A handler returned {type(batch).__name__} instead of pyarrow.RecordBatch.")
    return Bundle(batch, batch.num_rows, batch.nbytes)


class ThreadPool:
    """Implements ``WorkerPool`` on ``threads``, which the caller owns and closes last.

    ``cpu_clock`` returns the core time that the calling thread has used or waited for so far. ``read`` returns the
    input of a task, and ``put`` makes a bundle of an output; both may block.
    """

    def __init__(
        self,
        open_handler: OpenHandler,
        capacity: int,
        threads: Threads,
        emit: Emit,
        cpu_clock: Callable[[], float] = lambda: 0.0,
        read: Callable[[Task], Any] = input_of,
        put: Callable[[pa.RecordBatch], Bundle] = local_bundle,
    ) -> None:
        self.capacity = capacity
        self._cpu_clock = cpu_clock
        self._read = read
        self._put = put
        self._threads = threads
        self._emit = emit
        self._cancelled = threading.Event()
        self._free = [HandlerSlot(open_handler, self._cancelled.is_set, i) for i in reversed(range(capacity))]
        self._slots = tuple(self._free)
        self._busy: dict[Task, HandlerSlot] = {}
        self._finishing = threading.Lock()

    def submit(self, task: Task) -> None:
        slot = self._busy.get(task)
        if slot is None:
            # The slot used last has an open handler: a model is loaded as often as needed, not as often as allowed.
            slot = self._busy[task] = self._free.pop()
        self._threads.start(partial(self._advance, slot, task))

    def finish(self) -> None:
        held = [slot for slot in self._slots if slot.handler is not None]
        if not held:
            self._emit(Report(None, None, is_done=True))
        unfinished = set(held)
        for slot in held:  # at the same time: flushing a file may take as long as filling it
            self._threads.start(partial(self._finish, slot, unfinished))

    def close(self) -> None:
        self._cancelled.set()
        self._interrupt()
        with ExitStack() as closing:  # if one fails to close, the others are still closed
            for slot in self._slots:
                closing.callback(slot.close)

    def _interrupt(self) -> None:
        """Make running handlers return soon. Handlers on threads check the cancel flag themselves."""
        for slot in self._slots:
            if isinstance(slot.handler, Interruptible):
                slot.handler.interrupt(is_busy=slot.lock.locked())

    def _advance(self, slot: HandlerSlot, task: Task) -> None:
        """Run the task to its next output."""
        with slot.lock:
            report = None if self._cancelled.is_set() else self._advanced(slot, task)
        if report is not None:  # after the lock: a worker whose task is done is not busy
            self._emit(report)
        del report  # the traceback of its error refers to this frame, which would keep all of it alive

    def _advanced(self, slot: HandlerSlot, task: Task) -> Report:
        started, cpu_started = time.perf_counter(), self._cpu_clock()
        try:
            batch, is_done = slot.start(self._read(task), task.first_row) if slot.outputs is None else slot.next()
            busy_s = time.perf_counter() - started
            output = None if batch is None else self._put(batch)
            wanted_cpu_s = self._cpu_clock() - cpu_started
        except BaseException as exc:
            self._give_back(slot, task)
            return Report(task, None, is_done=True, error=exc)
        errors = slot.take_errors()
        if is_done:
            self._give_back(slot, task)
        return Report(task, output, is_done, busy_s, errors=errors, wanted_cpu_s=wanted_cpu_s)

    def _give_back(self, slot: HandlerSlot, task: Task) -> None:
        slot.outputs = None
        del self._busy[task]
        self._free.append(slot)

    def _finish(self, slot: HandlerSlot, unfinished: set[HandlerSlot]) -> None:
        try:
            with slot.lock:
                batch, _ = slot.finish()
                while batch is not None:
                    self._emit(Report(None, self._put(batch), is_done=False))
                    batch, _ = slot.next()
        except BaseException as exc:
            self._emit(Report(None, None, is_done=True, error=exc))
            return
        with self._finishing:
            unfinished.discard(slot)
            is_last = not unfinished
        if is_last:
            self._emit(Report(None, None, is_done=True))

"""Async functions on one event loop: thousands of calls wait at once on a single thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

import pyarrow as pa

from penstock.execution.recording import record, recording
from penstock.execution.threads import input_of, local_bundle
from penstock.protocols import Emit, Report, Task, WorkerContext


class AsyncHandler(Protocol):
    """The work of an async stage: built, used and closed on the loop's thread; one serves the whole stage."""

    async def process(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch: ...

    async def close(self) -> None: ...


OpenAsyncHandler = Callable[[WorkerContext], AsyncHandler]


class AsyncPool:
    """Implements ``WorkerPool`` on a thread with an event loop, started with the first task."""

    def __init__(self, open_handler: OpenAsyncHandler, capacity: int, emit: Emit) -> None:
        self.capacity = capacity
        self._open_handler = open_handler
        self._emit = emit
        self._handler: AsyncHandler | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="penstock-asyncio", daemon=True)
        self._started: set[Future[None]] = set()
        self._is_closed = False

    def submit(self, task: Task) -> None:
        self._start(self._process(task))

    def finish(self) -> None:
        self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._thread.is_alive():
                asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result()
        finally:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        started = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._started.add(started)  # the loop itself keeps none from being collected as garbage
        started.add_done_callback(self._started.discard)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                return self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                pass  # a task's own, which asyncio lets through to here; whoever waits for that task gets it too

    async def _wind_up(self) -> None:
        """Cancel what still runs and let it clean up after itself, then close the handler."""
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            if self._handler is not None:
                await self._handler.close()
        finally:
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()

    async def _process(self, task: Task) -> None:
        started = time.perf_counter()
        try:
            if self._handler is None:
                self._handler = self._open_handler(WorkerContext(lambda: self._is_closed, record))
            with recording() as errors:
                batch = await self._handler.process(input_of(task), task.first_row)
        except BaseException as exc:  # a CancelledError too: one that is not ours must not leave the query waiting
            self._emit(Report(task, None, is_done=True, error=exc))
            return
        busy_s = time.perf_counter() - started
        self._emit(Report(task, local_bundle(batch), is_done=True, busy_s=busy_s, errors=tuple(errors)))

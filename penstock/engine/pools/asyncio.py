"""The pool for async functions: thousands of calls wait at once on the event loop of a single thread."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from penstock.config import get_config, task_share
from penstock.contracts import Bundle, Emit, Report, Task, WorkerContext, task_origins
from penstock.engine.lineage import origins_of
from penstock.engine.pools.threads import input_of, local_bundle
from penstock.events.call_counter import CallCounter, count_calls_in
from penstock.events.call_gate import current_gate
from penstock.events.call_room import CallRoom, make_room
from penstock.events.events import RowError
from penstock.events.loop_thread import LoopThread, cancel

LOOP_NAME = "penstock-asyncio"


class AsyncHandler(Protocol):
    """Does the work of an async stage. One handler serves the stage; the loop's thread builds, uses and closes it."""

    async def process(
        self, batch: pa.RecordBatch, first_row: int
    ) -> pa.RecordBatch | AsyncGenerator[pa.RecordBatch, None]: ...

    async def close(self) -> None: ...


OpenAsyncHandler = Callable[[WorkerContext], AsyncHandler]


class RareCollections:
    """Raises the thresholds of the garbage collector while API calls wait: thousands of live objects, few cycles.

    Collections took a fifth of a client's time. Thresholds are process-wide, so the last user restores them.
    """

    THRESHOLDS = (50_000, 20, 50)

    _lock = threading.Lock()
    _num_users = 0
    _before = (0, 0, 0)

    @classmethod
    def begin(cls) -> None:
        with cls._lock:
            cls._num_users += 1
            if cls._num_users == 1:
                cls._before = gc.get_threshold()
                if cls._before[0]:  # 0: the user has switched it off
                    gc.set_threshold(*cls.THRESHOLDS)

    @classmethod
    def end(cls) -> None:
        with cls._lock:
            cls._num_users -= 1
            if not cls._num_users and cls._before[0]:
                gc.set_threshold(*cls._before)


class ApiLoop(LoopThread):
    """A quick event loop for our own API calls. User code may rely on asyncio's own loop."""

    def __init__(self) -> None:
        import uvloop

        super().__init__(LOOP_NAME, uvloop.new_event_loop())
        RareCollections.begin()

    def close(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        try:
            super().close(last)
        finally:
            RareCollections.end()


_recorded: contextvars.ContextVar[list[RowError]] = contextvars.ContextVar("recorded")
"""Failed rows of the current task. Tasks share one handler, but each has its own context."""


def record(error: RowError) -> None:
    """Record a failed row, within ``recording`` or a task started there."""
    _recorded.get().append(error)


@contextmanager
def recording() -> Iterator[list[RowError]]:
    """Provide a list that collects the rows recorded within the block."""
    token = _recorded.set([])
    try:
        yield _recorded.get()
    finally:
        _recorded.reset(token)


class AsyncPool:
    """Implements ``WorkerPool`` on the event loop of ``thread``, which ends with the last pool that uses it.

    ``read`` returns the input of a task, and ``put`` makes a bundle of an output, on a thread if they ``may_block``.
    """

    def __init__(
        self,
        open_handler: OpenAsyncHandler,
        capacity: int,
        emit: Emit,
        thread: LoopThread | None = None,
        read: Callable[[Task], Any] = input_of,
        put: Callable[[pa.RecordBatch], Bundle] = local_bundle,
        *,
        may_block: bool = False,
    ) -> None:
        self.capacity = capacity
        self._open_handler = open_handler
        self._emit = emit
        self._read, self._put, self._may_block = read, put, may_block
        self._handler: AsyncHandler | None = None
        self._thread = thread or LoopThread(LOOP_NAME)
        self._thread.num_users += 1
        self.call_counter = CallCounter()
        current_gate().count(self.call_counter)
        self._context = contextvars.copy_context()  # of the query: its reader may be in another context later
        self._context.run(count_calls_in, self.call_counter)
        self._context.run(make_room, CallRoom(task_share(get_config().memory_bytes, 1)))  # one loop serves all calls
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds only weak references
        self._resting: dict[Task, asyncio.Event] = {}  # between two outputs; set when the task may continue
        self._is_closed = False

    def submit(self, task: Task) -> None:
        if (resumed := self._resting.get(task)) is not None:
            self._thread.loop.call_soon_threadsafe(resumed.set)
            return
        self._context.run(self._thread.start, self._begin(task))

    def finish(self) -> None:
        self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.num_users -= 1
        try:
            if self._thread.is_running:
                self._thread.start(self._close_handler()).result()
        finally:
            if not self._thread.num_users:
                self._thread.close()

    async def _begin(self, task: Task) -> None:
        running = asyncio.create_task(self._process(task))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def _close_handler(self) -> None:
        await cancel(self._tasks)
        if self._handler is not None:
            await self._handler.close()

    async def _process(self, task: Task) -> None:
        started = time.perf_counter()
        try:
            if self._handler is None:
                self._handler = self._open_handler(WorkerContext(lambda: self._is_closed, record))
            task_origins.set(origins_of(task))  # in the context of this asyncio task
            with recording() as errors:
                given = await self._handler.process(await self._moved(self._read, task), task.first_row)
                if isinstance(given, AsyncGenerator):
                    return await self._hand_on(task, given, errors)
            output = await self._moved(self._put, given)
        except BaseException as exc:  # also a CancelledError of user code, or the query would wait forever
            self._emit(Report(task, None, is_done=True, error=exc))
            return
        busy_s = time.perf_counter() - started
        self._emit(Report(task, output, is_done=True, busy_s=busy_s, errors=tuple(errors)))

    async def _moved(self, move: Callable[[Any], Any], given: Any) -> Any:
        return await asyncio.to_thread(move, given) if self._may_block else move(given)

    async def _hand_on(self, task: Task, outputs: AsyncGenerator[pa.RecordBatch, None], errors: list[RowError]) -> None:
        """Report each output, and wait until the task is submitted again. It never leaves its asyncio task."""
        resumed, started = asyncio.Event(), time.perf_counter()
        self._resting[task] = resumed
        async with aclosing(outputs):
            async for batch in outputs:
                resumed.clear()
                busy_s, output = time.perf_counter() - started, await self._moved(self._put, batch)
                del batch
                self._emit(Report(task, output, is_done=False, busy_s=busy_s, errors=_taken(errors)))
                del output
                await resumed.wait()
                started = time.perf_counter()
        del self._resting[task]
        self._emit(Report(task, None, is_done=True, busy_s=time.perf_counter() - started, errors=_taken(errors)))


def _taken(errors: list[RowError]) -> tuple[RowError, ...]:
    taken = tuple(errors)
    errors.clear()
    return taken

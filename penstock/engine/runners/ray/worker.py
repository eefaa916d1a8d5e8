"""Classes of the Ray actors: they feed handlers from the object store and report to the driver."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.cost.accounts import Entries, taken_entries
from penstock.engine.pools.asyncio import AsyncHandler, cancel, record, recording
from penstock.engine.pools.handler_slot import HandlerSlot, Output
from penstock.engine.pools.worker import packed_error, unpacked_error
from penstock.observe.events import RowError
from penstock.protocols import WorkerContext
from penstock.types import joined
from penstock.types.ipc import from_ipc, to_ipc

Slices = tuple[tuple[int, int], ...]  # offset and number of rows of each object of a task


@dataclass(frozen=True, slots=True)
class ActorReport:
    """The outcome of a call. Errors are part of it, so that Ray does not wrap them."""

    has_output: bool = False
    num_rows: int = 0
    nbytes: int = 0
    is_done: bool = True
    busy_s: float = 0.0
    error: bytes | BaseException | None = None
    errors: tuple[RowError, ...] = ()
    spent: Entries | None = None  # by API calls since the last report

    @property
    def exception(self) -> BaseException | None:
        return unpacked_error(self.error) if isinstance(self.error, bytes) else self.error


Reply = tuple[pa.Buffer | None, ActorReport]  # two objects, so that the first may stay in the object store


class Worker:
    """An actor with one handler, opened with the first task, that works on one task at a time."""

    def __init__(self, packed_open: bytes) -> None:
        self.assign(packed_open)

    def assign(self, packed_open: bytes) -> None:
        """Set the handler to open with the next task."""
        self._slot = HandlerSlot(lambda context: pickle.loads(packed_open)(context))

    def start(self, first_row: int, slices: Slices | None, *items: Any) -> Reply:
        """Start a task and return its first output."""
        return self._reply(lambda: self._slot.start(input_from(slices, items), first_row))

    def resume(self) -> Reply:
        """Return the next output of the task."""
        return self._reply(self._slot.next)

    def finish(self) -> Reply:
        """Return everything that the handler still holds as one batch."""
        return self._reply(self._rest)

    def close(self) -> None:
        """Close the handler. Another one may be assigned then."""
        self._slot.close()

    def _rest(self) -> Output:
        rest, (batch, _) = list[pa.RecordBatch](), self._slot.finish()
        while batch is not None:
            rest.append(batch)
            batch, _ = self._slot.next()
        return (joined(rest) if rest else None), True

    def _reply(self, advance: Callable[[], Output]) -> Reply:
        started = time.perf_counter()
        try:
            batch, is_done = advance()
            return reply(batch, started, self._slot.take_errors(), is_done=is_done)
        except BaseException as exc:
            return failed(exc)


class AsyncWorker:
    """An actor whose event loop serves the async stages that share it, several tasks at once."""

    def __init__(self, *packed_opens: bytes) -> None:
        self._packed_opens = packed_opens
        self._handlers: dict[int, AsyncHandler] = {}
        self._running: dict[int, set[asyncio.Task[pa.RecordBatch]]] = {}

    async def start(self, stage: int, first_row: int, slices: Slices, *items: Any) -> Reply:
        started = time.perf_counter()
        try:
            handler = self._handlers.get(stage) or self._opened(stage)
            with recording() as errors:
                batch = await self._run(stage, handler.process(input_from(slices, items), first_row))
            return reply(batch, started, tuple(errors), is_done=True)
        except (Exception, asyncio.CancelledError) as exc:
            return failed(exc)

    async def finish(self, stage: int) -> Reply:
        return None, ActorReport()

    async def close(self, stage: int) -> None:
        """Cancel the tasks of a stage and close its handler. The other stages continue."""
        await cancel(self._running.pop(stage, ()))
        handler = self._handlers.pop(stage, None)
        if handler is not None:
            await handler.close()

    def _opened(self, stage: int) -> AsyncHandler:
        handler: AsyncHandler = pickle.loads(self._packed_opens[stage])(WorkerContext(lambda: False, record))
        self._handlers[stage] = handler
        return handler

    async def _run(self, stage: int, work: Coroutine[Any, Any, pa.RecordBatch]) -> pa.RecordBatch:
        task = asyncio.create_task(work)
        running = self._running.setdefault(stage, set())
        running.add(task)
        task.add_done_callback(running.discard)
        return await task


def input_from(slices: Slices | None, items: tuple[Any, ...]) -> Any:
    """Return the input of a handler: the read task, or the slices of several objects as one batch."""
    if slices is None:
        return items[0]
    batches = [from_ipc(item).slice(*part) for item, part in zip(items, slices, strict=True)]
    return batches[0] if len(batches) == 1 else joined(batches)


def reply(batch: pa.RecordBatch | None, started: float, errors: tuple[RowError, ...], *, is_done: bool) -> Reply:
    if batch is None:
        return None, ActorReport(busy_s=time.perf_counter() - started, errors=errors, spent=taken_entries())
    packed = to_ipc(batch)
    busy_s = time.perf_counter() - started
    return packed, ActorReport(
        True, batch.num_rows, batch.nbytes, is_done, busy_s, errors=errors, spent=taken_entries()
    )


def failed(exc: BaseException) -> Reply:
    return None, ActorReport(error=packed_error(exc), spent=taken_entries())

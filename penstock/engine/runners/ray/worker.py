"""Classes of the Ray actors: they feed handlers from the object store and report to the driver."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import ray

from penstock.engine.pools.asyncio import AsyncHandler, cancel, record, recording
from penstock.engine.pools.handler_slot import HandlerSlot, Output
from penstock.engine.pools.worker import packed_error, unpacked_error
from penstock.errors import UdfError
from penstock.observe.events import RowError
from penstock.observe.metrics import MetricValues, taken_metrics
from penstock.protocols import WorkerContext
from penstock.types import joined
from penstock.types.ipc import from_ipc, to_ipc

Slices = tuple[tuple[int, int], ...]  # offset and number of rows of each object of a task


class ActorPlace(NamedTuple):
    """The node of an actor, and its process and address for messages."""

    node_id: str
    name: str


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
    metrics: MetricValues | None = None  # of the functions since the last report

    @property
    def exception(self) -> BaseException | None:
        return unpacked_error(self.error) if isinstance(self.error, bytes) else self.error


Reply = tuple[pa.Buffer | None, ActorReport]  # two objects, so that the first may stay in the object store


class Worker:
    """An actor with one handler that works on one task at a time."""

    def __init__(self, packed_open: bytes) -> None:
        self.assign(packed_open)

    def assign(self, packed_open: bytes) -> None:
        """Set the handler to open next."""
        self._slot = HandlerSlot(lambda context: pickle.loads(packed_open)(context))
        self._open_failure: BaseException | None = None

    def open(self) -> ActorPlace:
        """Open the handler and return the place of this actor. An error is reported by the tasks."""
        try:
            self._slot.open()
        except BaseException as exc:
            self._open_failure = exc
        return this_place()

    def start(self, first_row: int, num_skipped: int, slices: Slices | None, *items: Any) -> Reply:
        """Start a task and return its first output after ``num_skipped`` rows, which an actor that died has given."""
        return self._reply(lambda: self._start(input_from(slices, items), first_row, num_skipped))

    def resume(self) -> Reply:
        """Return the next output of the task."""
        return self._reply(self._slot.next)

    def remake(self, first_row: int, start: int, num_rows: int, slices: Slices | None, *items: Any) -> Reply:
        """Return ``num_rows`` rows from ``start`` on of the output of a task, beside the task that may rest here."""

        def rows() -> Output:
            given = self._slot.open().process(input_from(slices, items), first_row)
            return rows_of([given] if isinstance(given, pa.RecordBatch) else given, start, num_rows), True

        return self._reply(rows)

    def finish(self) -> Reply:
        """Return everything that the handler still holds as one batch."""
        return self._reply(self._rest)

    def close(self) -> None:
        """Close the handler. Another one may be assigned then."""
        self._slot.close()

    def _start(self, item: Any, first_row: int, num_skipped: int) -> Output:
        batch, is_done = self._slot.start(item, first_row)
        while num_skipped and batch is not None:
            if num_skipped < batch.num_rows:
                return batch.slice(num_skipped), is_done
            num_skipped -= batch.num_rows
            self._slot.take_errors()  # reported before
            batch, is_done = (None, True) if is_done else self._slot.next()
        return batch, is_done

    def _rest(self) -> Output:
        rest, (batch, _) = list[pa.RecordBatch](), self._slot.finish()
        while batch is not None:
            rest.append(batch)
            batch, _ = self._slot.next()
        return (joined(rest) if rest else None), True

    def _reply(self, advance: Callable[[], Output]) -> Reply:
        started = time.perf_counter()
        try:
            if self._open_failure is not None:
                raise self._open_failure
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

    async def open(self, stage: int) -> ActorPlace:
        """Return the place of this actor. A handler is opened with the first task of its stage."""
        return this_place()

    async def start(self, stage: int, first_row: int, num_skipped: int, slices: Slices, *items: Any) -> Reply:
        started = time.perf_counter()
        try:
            handler = self._handlers.get(stage) or self._opened(stage)
            with recording() as errors:
                batch = await self._run(stage, handler.process(input_from(slices, items), first_row))
            return reply(batch, started, tuple(errors), is_done=True)
        except (Exception, asyncio.CancelledError) as exc:
            return failed(exc)

    async def remake(self, stage: int, first_row: int, start: int, num_rows: int, slices: Slices, *items: Any) -> Reply:
        return await self.start(stage, first_row, 0, slices, *items)

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


def rows_of(batches: Iterable[pa.RecordBatch], start: int, num_rows: int) -> pa.RecordBatch:
    """Return ``num_rows`` rows from ``start`` on of some batches as one batch."""
    found, num_missing = list[pa.RecordBatch](), num_rows
    for batch in batches:
        if start < batch.num_rows or not num_rows:
            found.append(batch.slice(start, num_missing))
            num_missing -= found[-1].num_rows
        start = max(start - batch.num_rows, 0)
        if not num_missing and found:
            return joined(found) if len(found) > 1 else found[0]
    raise UdfError(
        "A batch was lost with its node, and the function that made it gave fewer rows when it was called again. "
        "On Ray, a function must give the same rows each time."
    )


def this_place() -> ActorPlace:
    context = ray.get_runtime_context()
    return ActorPlace(context.get_node_id(), f"pid {os.getpid()} on {ray.util.get_node_ip_address()}")


def reply(batch: pa.RecordBatch | None, started: float, errors: tuple[RowError, ...], *, is_done: bool) -> Reply:
    if batch is None:
        return None, ActorReport(busy_s=time.perf_counter() - started, errors=errors, metrics=taken_metrics())
    packed = to_ipc(batch)
    busy_s = time.perf_counter() - started
    return packed, ActorReport(
        True, batch.num_rows, batch.nbytes, is_done, busy_s, errors=errors, metrics=taken_metrics()
    )


def failed(exc: BaseException) -> Reply:
    return None, ActorReport(error=packed_error(exc), metrics=taken_metrics())

"""Classes of the Ray actors: they feed handlers from the object store and report to the driver."""

from __future__ import annotations

import asyncio
import math
import pickle
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
import ray

from penstock.engine.handlers import PartHandler
from penstock.engine.pools.asyncio import AsyncHandler, cancel, record, recording
from penstock.engine.pools.handler_slot import HandlerSlot, Output
from penstock.engine.protocols import WorkerContext
from penstock.engine.runners.ray.calls import (
    ActorPlace,
    ActorReport,
    Outputs,
    RemadePart,
    Reply,
    Slices,
    StageAhead,
    failed,
    in_calls,
    input_from,
    reply,
    report_of,
    rows_of,
    slices_from,
    this_place,
)
from penstock.types import joined

GATHERED_S = 0.05  # for how long outputs are joined


class Worker:
    """An actor with a handler for each stage that uses it. It does one call at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._stages: dict[int, OpenedStage] = {}

    def open(self, stage: int, packed_open: bytes, gathered_nbytes: int) -> ActorPlace:
        """Open the handler of a stage and return the place of this actor. An error is reported by the tasks.

        Outputs are joined while they are smaller than ``gathered_nbytes``.
        """
        opened = OpenedStage.of(packed_open, gathered_nbytes)
        try:
            opened.slot.open()
        except BaseException as exc:
            opened.failure = exc
        self._stages[stage] = opened
        return this_place()

    def start(
        self,
        stage: int,
        ahead: StageAhead | None,
        first_row: int,
        num_skipped: int,
        slices: Slices | None,
        *items: Any,
    ) -> Reply:
        """Start a task and return its first output after ``num_skipped`` rows, which an actor that died has given.

        The output is that of the stage ``ahead``, if that can work on it.
        """
        return self._reply(stage, lambda opened: opened.start(slices, items, first_row, num_skipped), ahead)

    def resume(self, stage: int, ahead: StageAhead | None) -> Reply:
        """Return the next output of the task."""
        return self._reply(stage, lambda opened: opened.gathered(opened.slot.next(), opened.gathered_nbytes), ahead)

    def remake(self, stage: int, part: RemadePart, first_row: int, slices: Slices | None, *items: Any) -> Reply:
        """Return a part of the output of a task, beside the task that may rest here."""

        def rows(opened: OpenedStage) -> Outputs:
            item = input_from(slices, items)
            starts = zip(accumulate(part.rows_of_calls, initial=0), part.rows_of_calls, strict=False)
            calls = [item.slice(start, num_rows) for start, num_rows in starts] or [item]
            outputs = (output for call in calls for output in opened.processed(call, first_row))
            return [rows_of(outputs, part.start, part.num_rows)], True

        return self._reply(stage, rows)

    def finish(self, stage: int) -> Reply:
        """Return everything that the handler still holds as one batch."""
        return self._reply(stage, lambda opened: opened.gathered(opened.slot.finish(), sys.maxsize))

    def apply(self, stage: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return the results of a function, which needs no handler."""
        return function(*args)

    def close(self, stage: int) -> None:
        """Close the handler of a stage."""
        opened = self._stages.pop(stage, None)
        if opened is not None:
            opened.slot.close()

    def _reply(self, stage: int, advance: Callable[[OpenedStage], Outputs], ahead: StageAhead | None = None) -> Reply:
        started = time.perf_counter()
        try:
            with self._handler(stage) as opened:
                if opened.failure is not None:
                    raise opened.failure
                outputs, is_done = advance(opened)
                report = report_of(outputs, started, opened.slot.take_errors(), is_done=is_done)
                return reply(*self._with_next(ahead, outputs, report), started)
        except ray.exceptions.RayError:
            raise  # an object is lost: the driver makes it again
        except BaseException as exc:
            return failed(exc)

    def _with_next(
        self, ahead: StageAhead | None, rows: list[pa.RecordBatch], report: ActorReport
    ) -> tuple[list[pa.RecordBatch], ActorReport]:
        """Return the output of the next stages for some rows, or the rows if a row or call fails, and all reports."""
        if ahead is None or not ahead.takes(report):
            return rows, report
        started, opened, outputs = time.perf_counter(), self._stages[ahead.stage], list[pa.RecordBatch]()
        calls, sizes = list[Any](), tuple[int, ...]()
        with suppress(Exception):  # the stage works on the rows again, and knows their positions
            if isinstance(opened.slot.open(), PartHandler):
                calls = [rows]
            else:
                calls = in_calls(rows, ahead.limits.num_rows)
                sizes = tuple(call.num_rows for call in calls)
            outputs = [output for call in calls for output in opened.processed(call, 0)]
        if opened.slot.take_errors() or not outputs:
            return rows, replace(report, has_failed_ahead=True)
        given = replace(report_of(outputs, started, (), is_done=True), rows_of_calls=sizes)
        outputs, given = self._with_next(ahead.after, outputs, given)
        return outputs, replace(report, ahead=given)

    def _handler(self, stage: int) -> AbstractContextManager[OpenedStage]:
        return nullcontext(self._stages[stage])


class ThreadedWorker(Worker):
    """An actor of one stage that does several calls at once. Its threads have a handler each, which share one instance.

    A task gives its output as one batch, because its next call would come on another thread.
    """

    def open(self, stage: int, packed_open: bytes, gathered_nbytes: int) -> ActorPlace:
        place = super().open(stage, packed_open, sys.maxsize)
        self._new_handler = partial(OpenedStage.of, packed_open, sys.maxsize)
        self._free = [self._stages[stage]]
        return place

    def close(self, stage: int) -> None:
        super().close(stage)
        for opened in self._free:
            opened.slot.close()

    @contextmanager
    def _handler(self, stage: int) -> Iterator[OpenedStage]:
        try:
            opened = self._free.pop()
        except IndexError:
            opened = self._new_handler()
        try:
            yield opened
        finally:
            self._free.append(opened)


@dataclass(slots=True)
class OpenedStage:
    """The handler of a stage in a worker, and why it did not open."""

    slot: HandlerSlot
    gathered_nbytes: int
    failure: BaseException | None = None

    @staticmethod
    def of(packed_open: bytes, gathered_nbytes: int) -> OpenedStage:
        return OpenedStage(HandlerSlot(lambda context: pickle.loads(packed_open)(context)), gathered_nbytes)

    def start(self, slices: Slices | None, items: Sequence[Any], first_row: int, num_skipped: int) -> Outputs:
        is_written = slices is not None and isinstance(self.slot.open(), PartHandler)
        item = slices_from(slices or (), items) if is_written else input_from(slices, items)
        batch, is_done = self.slot.start(item, first_row)
        while num_skipped and batch is not None:
            if num_skipped < batch.num_rows:
                return [batch.slice(num_skipped)], is_done
            num_skipped -= batch.num_rows
            self.slot.take_errors()  # reported before
            batch, is_done = (None, True) if is_done else self.slot.next()
        return self.gathered((batch, is_done), self.gathered_nbytes)

    def processed(self, item: Any, first_row: int) -> Iterable[pa.RecordBatch]:
        """Return the output of an input, beside the task that may rest here."""
        given = self.slot.open().process(item, first_row)
        return [given] if isinstance(given, pa.RecordBatch) else given

    def gathered(self, first: Output, nbytes: int) -> Outputs:
        """Return an output with those after it, as long as they have less than ``nbytes`` and come quickly: each call
        has its cost. With ``sys.maxsize`` return all.
        """
        end_s = time.perf_counter() + (GATHERED_S if nbytes < sys.maxsize else math.inf)
        found, (batch, is_done) = list[pa.RecordBatch](), first
        while batch is not None:
            found.append(batch)
            nbytes -= batch.nbytes
            if is_done or nbytes <= 0 or time.perf_counter() > end_s:
                break
            batch, is_done = self.slot.next()
        return found, is_done


class AsyncWorker:
    """An actor whose event loop serves the async stages that share it, several tasks at once."""

    def __init__(self) -> None:
        self._packed_opens: dict[int, bytes] = {}
        self._handlers: dict[int, AsyncHandler] = {}
        self._running: dict[int, set[asyncio.Task[pa.RecordBatch | None]]] = {}

    async def open(self, stage: int, packed_open: bytes) -> ActorPlace:
        """Return the place of this actor. A handler is opened with the first task of its stage."""
        self._packed_opens[stage] = packed_open
        return this_place()

    async def start(
        self, stage: int, ahead: None, first_row: int, num_skipped: int, slices: Slices, *items: Any
    ) -> Reply:
        started = time.perf_counter()
        try:
            handler = self._handlers.get(stage) or self._opened(stage)
            with recording() as errors:
                batch = await self._run(stage, whole_output(handler, input_from(slices, items), first_row))
            outputs = [] if batch is None else [batch]
            return reply(outputs, report_of(outputs, started, tuple(errors), is_done=True), started)
        except (Exception, asyncio.CancelledError) as exc:
            return failed(exc)

    async def remake(self, stage: int, part: RemadePart, first_row: int, slices: Slices, *items: Any) -> Reply:
        outcome: Reply = await self.start(stage, None, first_row, 0, slices, *items)
        return outcome

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

    async def _run(self, stage: int, work: Coroutine[Any, Any, pa.RecordBatch | None]) -> pa.RecordBatch | None:
        task = asyncio.create_task(work)
        running = self._running.setdefault(stage, set())
        running.add(task)
        task.add_done_callback(running.discard)
        return await task


async def whole_output(handler: AsyncHandler, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch | None:
    """Return the output of a batch as one batch; None if generators give nothing."""
    given = await handler.process(batch, first_row)
    if not isinstance(given, AsyncGenerator):
        return given
    outputs = [output async for output in given]
    return joined(outputs) if outputs else None

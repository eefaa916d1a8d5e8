"""Calls of async functions: the rows of all batches in flight share one limit on concurrent calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any

import pyarrow as pa

from penstock.contracts import WorkerContext, check_not_cancelled
from penstock.errors import UdfError
from penstock.events.call_counter import current_call_counter
from penstock.events.call_gate import current_gate
from penstock.events.loop_thread import LoopThread
from penstock.expr.udf import Policy
from penstock.plan.stages import CallUdf
from penstock.udf.call import ApplySteps, UdfCalls
from penstock.udf.callers import CallerPool, CallGroup
from penstock.udf.generators import OnRowError
from penstock.udf.results import drained_async, drawn
from penstock.udf.retry import IsCancelled, IsFinal, never, with_policy_async

CANCEL_CHECK_S = 0.02


class AsyncCaller:
    """Calls an async function on the running event loop, at most ``max_calls`` times at once."""

    def __init__(self, function: Callable[..., Any], policy: Policy, max_calls: int, is_final: IsFinal = never) -> None:
        self._permits = asyncio.Semaphore(max_calls)
        self._pool = CallerPool(max_calls)
        self._counter = current_call_counter()
        self._gate = current_gate()
        self.function = with_policy_async(function, policy, is_final, self._pool.rest)

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            async with self._permits:
                self._counter.num_calls += 1
                try:
                    if not self._gate.is_open:
                        await self._pool.rest()
                    return await self.function(*args, **kwargs)
                finally:
                    self._counter.num_calls -= 1
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise UdfError("the function raised CancelledError") from exc

    async def call_rows(self, calls: Iterator[Any], num_rows: int, on_error: OnRowError, order: int = 0) -> list[Any]:
        return await self._pool.run(CallGroup(calls, num_rows, on_error, order))

    def leading_rows(
        self, calls: Iterator[Any], num_rows: int, on_error: OnRowError, order: int = 0
    ) -> AsyncGenerator[tuple[int, list[Any]], None]:
        """Make the calls as ``CallerPool.leading`` does."""
        return self._pool.leading(CallGroup(calls, num_rows, on_error, order))

    def then(self, use: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        function = self.function

        async def call(key: Any, *args: Any, **kwargs: Any) -> Any:
            return use(key, await function(*args, **kwargs))

        return call

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(function, *args)

    async def close(self) -> None:
        """Cancel the calls that are still in flight."""
        await self._pool.close()


class AsyncUdfHandler:
    """The handler of async UDFs. ``max_concurrency`` limits the rows (or batches) that wait at once."""

    def __init__(self, work: CallUdf, steps: ApplySteps, context: WorkerContext) -> None:
        self._spec = spec = work.call.udf
        self._streams = asyncio.Semaphore(spec.max_concurrent_calls)
        self._callers: list[AsyncCaller] = []

        def open_caller(function: Callable[..., Any], is_final: IsFinal) -> AsyncCaller:
            function = drained_async(function) if spec.target.is_generator and not spec.is_streaming else function
            self._callers.append(AsyncCaller(function, spec.policy, spec.max_concurrent_calls, is_final))
            return self._callers[-1]

        self._calls = UdfCalls(work, steps, context.record, open_caller)

    async def process(
        self, batch: pa.RecordBatch, first_row: int
    ) -> pa.RecordBatch | AsyncGenerator[pa.RecordBatch, None]:
        if self._spec.is_streaming:
            return self._stream(batch, first_row)
        if not self._calls.can_leave_early:
            return await self._calls.process(batch, first_row)
        pieces = self._calls.pieces(batch, first_row)
        end, first = await anext(pieces)
        if end == batch.num_rows:
            await pieces.aclose()
            return first
        return _rest(first, pieces)

    async def _stream(self, batch: pa.RecordBatch, first_row: int) -> AsyncGenerator[pa.RecordBatch, None]:
        async with self._streams, aclosing(self._calls.stream(batch, first_row)) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        lease = self._calls.lease
        for caller in self._callers:
            await caller.close()
        try:
            if (closing := lease.close()) is not None:
                await closing
        finally:
            await self._calls.close()
            if lease.was_last and self._spec.builtin.event_loop is None:  # built-in clients close their connections
                await close_connections()


async def _rest(
    first: pa.RecordBatch, pieces: AsyncGenerator[tuple[int, pa.RecordBatch], None]
) -> AsyncGenerator[pa.RecordBatch, None]:
    async with aclosing(pieces):
        yield first
        del first
        async for _, piece in pieces:
            yield piece


class WorkerLoop:
    """An event loop on a thread of its own, for the async functions of one ``map_batches`` worker.

    It lives as long as the worker, so that clients keep their connections. The threads of a worker may change, and the
    thread that closes it may already run a loop, as in a notebook.
    """

    def __init__(self, is_cancelled: IsCancelled) -> None:
        self._is_cancelled = is_cancelled
        self._thread = LoopThread("penstock-worker-loop")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop and return its result; cancel it if the query is stopped."""
        future = self._thread.start(work)
        while not concurrent.futures.wait([future], timeout=CANCEL_CHECK_S).done:
            try:
                check_not_cancelled(self._is_cancelled)
            except BaseException:
                future.cancel()
                raise
        return future.result()

    def close(self, last: Callable[[], Any]) -> None:
        """Cancel running tasks and wait for their cleanup, then call ``last``, sync or async, and end the loop."""

        async def close() -> None:
            try:
                closing = last()
                if inspect.isawaitable(closing):
                    await closing
            finally:
                await close_connections()

        self._thread.close(close)


async def close_connections() -> None:
    """Close all connections of the running loop, which must be about to end.

    Async clients keep connections for the next call. A class without ``close`` never closes them, and the sockets would
    stay open until garbage collection. Only asyncio's own loop is supported; it has no public list of transports.
    """
    for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0)  # a transport closes its socket in the next iteration of the loop


class OwnLoopHandler:
    """The handler of async UDFs in a worker process: ``AsyncUdfHandler`` on a loop of its own, a batch at a time."""

    def __init__(self, work: CallUdf, steps: ApplySteps, context: WorkerContext) -> None:
        self._loop = WorkerLoop(context.is_cancelled)
        self._handler = self._loop.run(self._opened(work, steps, context))

    @staticmethod
    async def _opened(work: CallUdf, steps: ApplySteps, context: WorkerContext) -> AsyncUdfHandler:
        return AsyncUdfHandler(work, steps, context)  # on the loop, which clients look for

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        result = self._loop.run(self._handler.process(item, first_row))
        return drawn(result, self._loop.run) if inspect.isasyncgen(result) else result

    def close(self) -> None:
        self._loop.close(self._handler.close)

"""An event loop beside a worker, for async functions given to ``map_batches`` and its kind."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import operator
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from penstock.errors import QueryCancelledError
from penstock.expr.udf import MAX_ASYNC_ROWS
from penstock.udf.callers import Callers, Calls
from penstock.udf.connections import close_connections

CANCEL_CHECK_S = 0.02


class WorkerLoop:
    """A loop on a thread of its own that lives as long as the worker, so that clients keep their connections.

    The worker's threads may change, and the one that closes it may run a loop already, as in a notebook.
    """

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self._is_cancelled = is_cancelled
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-worker-loop", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Block until ``work`` is done and return its result; a query that is stopped cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while not concurrent.futures.wait([future], timeout=CANCEL_CHECK_S).done:
            if self._is_cancelled():
                future.cancel()
                raise QueryCancelledError("the query was stopped")
        return future.result()

    def wait_for_all(self, calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
        """Make the calls at once, within bounds, and return their results in order; the first error ends all."""
        results: list[Any] = self.wait(_together(calls))
        return results

    def close(self, last: Callable[[], Any] = lambda: None) -> None:
        """Cancel what still runs and let it clean up after itself, then call ``last``, async or not, and end."""
        asyncio.run_coroutine_threadsafe(self._wind_up(last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _wind_up(self, last: Callable[[], Any]) -> None:
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            closing = last()
            if inspect.isawaitable(closing):
                await closing
        finally:
            await close_connections()
            await self._loop.shutdown_asyncgens()


async def _together(calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    def fail(number: int, exc: BaseException) -> None:
        raise exc

    to_make = list(calls)
    made = map(operator.call, to_make)
    return await Callers(MAX_ASYNC_ROWS).run(Calls(made, len(to_make), fail))

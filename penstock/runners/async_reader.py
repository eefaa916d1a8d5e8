"""Read the rows of a query from an event loop without blocking it."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TypeVar

from penstock.engine.cancellation import Cancellation

T = TypeVar("T")
_END = object()


async def read_async(start: Callable[[Cancellation], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of ``start``, each drawn on a thread when the caller asks for it.

    The thread sees the reader's context, such as its settings. Closing the generator, or cancelling the task that waits
    for an item, stops the query and returns once the items are closed and the thread has ended.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    loop, context, cancellation = asyncio.get_running_loop(), contextvars.copy_context(), Cancellation()
    thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-reader")
    items = start(cancellation)

    def draw() -> T | object:
        return next(items, _END)

    try:
        while (item := await loop.run_in_executor(thread, context.run, draw)) is not _END:
            yield item  # type: ignore[misc]
    finally:
        cancellation.is_hurried = True
        cancellation.request()
        closing = loop.run_in_executor(thread, context.run, items.close)
        thread.shutdown(wait=False)  # ends after ``close``, even if this task is cancelled again
        await asyncio.shield(closing)
        thread.shutdown()

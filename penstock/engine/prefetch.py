"""A query that runs ahead of its reader."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Generator, Iterator
from queue import Queue
from typing import TypeVar

from penstock.engine.cancellation import Cancellation, current_cancellation
from penstock.engine.executor import num_in_hand

T = TypeVar("T")
_END = object()


def prefetched(items: Iterator[T], num_ahead: int) -> Generator[T, None, None]:
    """Yield ``items``, drawn on a thread of their own up to ``num_ahead`` before they are asked for.

    They see the reader's context, such as its settings. Closing the generator stops a query that they come from, closes
    ``items`` on that thread and waits for it.
    """
    ready: Queue[object] = Queue(maxsize=num_ahead)
    cancellation = Cancellation()
    failure: list[BaseException] = []

    def draw() -> None:
        current_cancellation.set(cancellation)
        num_in_hand.set(num_in_hand.get() + num_ahead + 1)  # those that wait, and the one that waits to join them
        try:
            for item in items:
                ready.put(item)
                if cancellation.is_requested:
                    break
            if hasattr(items, "close"):
                items.close()
        except BaseException as exc:
            failure.append(exc)
        ready.put(_END)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(draw,), name="penstock-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            yield item  # type: ignore[misc]
        if failure:
            raise failure[0]
    finally:
        cancellation.request()
        while thread.is_alive():
            while not ready.empty():
                ready.get()
            thread.join(0.01)

"""A query that runs ahead of its reader."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import Queue
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetched(items: Iterator[T], num_ahead: int) -> Generator[T, None, None]:
    """Yield ``items``, drawn on a thread of their own up to ``num_ahead`` before they are asked for.

    Closing the generator closes ``items`` on that thread and waits for it.
    """
    ready: Queue[object] = Queue(maxsize=num_ahead)
    stopped = threading.Event()
    failure: list[BaseException] = []

    def draw() -> None:
        try:
            for item in items:
                ready.put(item)
                if stopped.is_set():
                    break
        except BaseException as exc:
            failure.append(exc)
        finally:
            if hasattr(items, "close"):
                items.close()
            if not stopped.is_set():
                ready.put(_END)

    thread = threading.Thread(target=draw, name="penstock-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            yield item  # type: ignore[misc]
        if failure:
            raise failure[0]
    finally:
        stopped.set()
        while thread.is_alive():
            while not ready.empty():
                ready.get()
            thread.join(0.01)

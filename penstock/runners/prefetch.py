"""A query that runs ahead of its reader."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import TypeVar

from penstock.engine.cancellation import Cancellation

T = TypeVar("T")
_END = object()

STEP_S = 1.0
"""A wait is made of steps: Python notices a Ctrl-C that came just before one of them only when the step ends."""


def prefetched(
    start: Callable[[Cancellation], Generator[T, None, None]], num_ahead: int, cancellation: Cancellation | None = None
) -> Generator[T, None, None]:
    """Yield the items of ``start``, drawn on another thread up to ``num_ahead`` before they are needed.

    The thread sees the reader's context, such as its settings. Closing the generator requests the cancellation, closes
    the items on their thread and waits for it. After Ctrl-C, the query may wait for running calls; a second
    Ctrl-C ends that wait.
    """
    ready: SimpleQueue[object] = SimpleQueue()
    room: SimpleQueue[None] = SimpleQueue()  # one entry for each item that may still be drawn ahead
    for _ in range(num_ahead):
        room.put(None)
    cancellation = cancellation or Cancellation()
    failure: list[BaseException] = []
    ended = threading.Event()  # a Ctrl-C during Thread.join makes a running thread look ended

    def draw() -> None:
        try:
            if not cancellation.is_requested:
                items = start(cancellation)
                for item in items:
                    room.get()
                    ready.put(item)
                    if cancellation.is_requested:
                        break
                items.close()
        except BaseException as exc:
            failure.append(exc)
        ready.put(_END)
        ended.set()

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(draw,), name="penstock-prefetch", daemon=True)
    try:
        thread.start()  # a Ctrl-C may arrive here: a thread that begins after it finds the request and ends
        while (item := _get(ready)) is not _END:
            room.put(None)
            yield item  # type: ignore[misc]
        if failure:
            raise failure[0]
    except GeneratorExit:
        cancellation.is_hurried = True
        raise
    finally:
        cancellation.request()
        room.put(None)
        if thread.is_alive():
            try:
                while not ended.wait(STEP_S):
                    pass
            except KeyboardInterrupt:
                cancellation.is_hurried = True
                ended.wait()
                raise
            finally:
                thread.join()


def _get(ready: SimpleQueue[object]) -> object:
    while True:
        try:
            return ready.get(timeout=STEP_S)
        except Empty:
            pass

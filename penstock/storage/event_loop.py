"""One event loop in a thread of the process, for blocking calls to async clients."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_at_end: list[Callable[[], Coroutine[Any, Any, None]]] = []


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` on the process's loop and return its result. Never call it from a coroutine of that loop."""
    return asyncio.run_coroutine_threadsafe(work, _running()).result()


def at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``close`` on the loop before the process ends."""
    _at_end.append(close)


def _running() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="penstock-storage", daemon=True)
            thread.start()
            atexit.register(_end, loop, thread)
            _loop = loop
        return _loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    async def close_all() -> None:
        for close in _at_end:
            await close()

    asyncio.run_coroutine_threadsafe(close_all(), loop).result(timeout=5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)
    loop.close()

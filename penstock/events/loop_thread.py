"""An event loop on a thread of its own, for coroutines that code on other threads starts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any


class LoopThread:
    """An event loop on a thread, which starts with the first work."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.num_users = 0  # counted by the users, the last of which closes it
        self.loop = loop or asyncio.new_event_loop()
        self._is_serving = self._is_closed = False
        self._lock = threading.Lock()  # guards the two fields above
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run ``work`` on the loop."""
        if not self._thread.is_alive():
            try:
                self._thread.start()
            except BaseException:  # such as Ctrl-C
                work.close()
                raise
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        """Cancel running tasks, let them clean up, await ``last()``, and end the thread."""
        with self._lock:
            self._is_closed = True  # a thread whose start was interrupted by Ctrl-C may begin later, and ends then
        if self._is_serving:
            try:
                self.start(self._wind_up(last)).result()
            finally:
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join()
        self.loop.close()

    def _serve(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_serving = True
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                return self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                pass  # raised by a task; asyncio passes it here as well as to the task's waiter

    async def _wind_up(self, last: Callable[[], Awaitable[None]] | None) -> None:
        await cancel(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
        try:
            if last is not None:
                await last()
        finally:
            await self.loop.shutdown_asyncgens()
            await self.loop.shutdown_default_executor()


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have cleaned up."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)

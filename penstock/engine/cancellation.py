"""Stop a query from a thread other than the one that drives it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancellation:
    """A request to stop one query. It may come before, while or after the query runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.is_requested = False
        self.is_program_over = False  # the query ends because the program does
        self.is_hurried = False  # the query does not wait for calls in flight

    def request(self) -> None:
        """Stop the query. Returns at once; may be called from any thread."""
        with self._lock:
            self.is_requested = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the request comes, or now if it has come already."""
        with self._lock:
            is_late = self.is_requested
            if not is_late:
                self._callbacks.append(callback)
        if is_late:
            callback()

"""Stopping a query from another thread than the one that drives it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar


class Cancellation:
    """A wish that the queries driven in some context end. It may be made before, while or after they run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: list[Callable[[], None]] = []
        self.is_requested = False

    def request(self) -> None:
        """Stop them. Returns at once; may be called from any thread."""
        with self._lock:
            self.is_requested = True
            wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()

    def on_request(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called when the wish is made, at once if it was made already."""
        with self._lock:
            is_late = self.is_requested
            if not is_late:
                self._wakes.append(wake)
        if is_late:
            wake()


current_cancellation: ContextVar[Cancellation | None] = ContextVar("penstock_cancellation", default=None)

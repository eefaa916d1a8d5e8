"""Log lines about a server that does not answer, so that a long wait does not look like a query that hangs."""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta

from penstock.ai.client.limits.limiter import duration

log = logging.getLogger("penstock.ai")

CHECK_EVERY_S = 5.0
FIRST_S, AGAIN_S = 30.0, 300.0
"""Seconds of silence before the first log line, and between further lines."""


class Silence:
    """The time for which a server has not answered any waiting call. The caller passes the time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_waiting = 0
        self._since = self._due = math.inf
        self._reason = ""

    def begin(self, now: float) -> None:
        """Record that a call starts to wait."""
        if not self._num_waiting:
            self.end_silence(now)
        self._num_waiting += 1

    def end(self) -> None:
        """Record that a call no longer waits."""
        self._num_waiting -= 1

    def end_silence(self, now: float) -> None:
        """Record an answer."""
        self._since, self._due, self._reason = now, now + FIRST_S, ""

    def failed(self, error: Exception) -> None:
        """Record a refusal, a failure or a timeout, after which the call is repeated."""
        self._reason = str(error)

    def message(self, now: float) -> str | None:
        """Return the line to log now, if any."""
        if not self._num_waiting or now < self._due:
            return None
        self._due = now + AGAIN_S
        silent_s = now - self._since
        since = (datetime.now() - timedelta(seconds=silent_s)).strftime("%H:%M:%S")
        last = f" Last: {self._reason}" if self._reason else ""
        calls = "1 call waits" if self._num_waiting == 1 else f"{self._num_waiting:,} calls wait"
        return f"{self._name} has not answered since {since} ({duration(silent_s)}); {calls}.{last}"

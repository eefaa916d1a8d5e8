"""The dashboard of this process: it is started with the first query that is watched, and ends with the process."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidArgumentError
from penstock.observe.dashboard.live import LiveQuery
from penstock.storage.urls import redacted

if TYPE_CHECKING:
    from penstock.observe.dashboard.server import DashboardServer

MAX_QUERIES = 30  # the last ones


class LiveBoard:
    """Implements ``Board``: the queries of this process."""

    def __init__(self) -> None:
        self._queries: deque[LiveQuery] = deque(maxlen=MAX_QUERIES)
        self._numbers = itertools.count(1)

    def watch(self) -> LiveQuery:
        """Return a Subscriber for a new query."""
        self._queries.append(LiveQuery(next(self._numbers)))
        return self._queries[-1]

    def state(self, query: int | None) -> dict[str, Any]:
        queries = [each for each in list(self._queries) if each.is_started]
        running = [each for each in queries if not each.is_ended]
        chosen = [each for each in queries if each.number == query] or running[-1:] or queries[-1:]
        return {
            "source": " ".join(map(redacted, sys.argv))[:300],
            "has_rows": False,
            "queries": [each.headline() for each in reversed(queries)],
            "query": chosen[0].snapshot() if chosen else None,
        }

    def rows(self, asked: dict[str, str]) -> dict[str, Any]:
        raise InvalidArgumentError("This dashboard shows queries; 'penstock dashboard OUT' shows the rows of a job.")

    def control(self, query: int, action: str, stage: int, max_running: int) -> None:
        for each in list(self._queries):
            if each.number == query:
                each.control(action, stage, max_running)


_board = LiveBoard()
_lock = threading.Lock()
_server: DashboardServer | None = None


def watch_query() -> LiveQuery:
    """Return a Subscriber that shows a new query on the dashboard of this process."""
    start_dashboard()
    return _board.watch()


def start_dashboard() -> DashboardServer:
    """Return the dashboard of this process. The first call starts it and prints its URL."""
    global _server
    with _lock:
        if _server is None:
            from penstock.observe.dashboard.server import DashboardServer

            _server = DashboardServer(_board)
            print(f"Dashboard: {_server.url}", file=sys.stderr)  # noqa: T201, the user asked for it
        return _server


def stop_dashboard() -> None:
    """Close the dashboard of this process, if it is open. The next watched query starts another."""
    global _server
    with _lock:
        if _server is not None:
            _server.close()
            _server = None

"""The dashboard of this process. It starts with the first watched query and ends with the process."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.contracts import Report
from penstock.dashboard.known import forget_process, note_process
from penstock.dashboard.live import LiveQuery, Order, news_of, summary_of
from penstock.dashboard.recent import RecentRows, watched_stage
from penstock.dashboard.row_pages.found_rows import RowsRequest
from penstock.errors import InvalidArgumentError
from penstock.events.events import Event, QueryStarted
from penstock.storage.urls import redacted

if TYPE_CHECKING:
    from penstock.dashboard.server import DashboardServer

MAX_QUERIES = 30  # the last ones
MAX_WAIT_S = 3.0  # at the end of the process, for open pages


class WatchedQuery(LiveQuery):
    """Implements ``ShownRun``: a query of this process, with its last rows."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.recent = RecentRows()
        self._watched = 0

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        if isinstance(event, QueryStarted):
            self._watched = watched_stage(event.stages)

    def on_rows(self, stage: int, work: object, report: Report) -> None:
        if stage == self._watched:
            with contextlib.suppress(Exception):  # an error of the display must not end the query
                self.recent.add(work, report)

    def rows(self, asked: Mapping[str, str]) -> dict[str, Any]:
        return self.recent.page(RowsRequest.of(asked)) | {"is_recent": True, "can_try": bool(self.recent.prompts)}

    def table(self, asked: Mapping[str, str], max_rows: int) -> pa.Table:
        found = self.recent.table(RowsRequest.of(asked))
        return pa.table({}) if found is None else found.slice(0, max_rows)

    def prompts(self, asked: Mapping[str, str]) -> dict[str, Any]:
        from penstock.dashboard.trials import editable_prompts

        return {"prompts": editable_prompts(self.recent.prompts, self.snapshot())}

    def try_prompt(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        from penstock.dashboard.trials import Trial, run_trial

        return run_trial(self.recent.prompts, Trial.of(asked), self.recent.rows(asked["numbers"]), None)

    def review(self, asked: Mapping[str, Any]) -> str:
        raise InvalidArgumentError("Notes are kept beside a job: write the rows with resume=True.")

    def control(self, asked: Mapping[str, Any]) -> str:
        order = Order.of(asked)
        if int(asked["query"]) != self.number:
            raise InvalidArgumentError(f"There is no query {asked['query']}.")
        self.follow(order)
        return order.done


class LiveBoard:
    """Implements ``Board``: the queries of this process."""

    def __init__(self) -> None:
        self._queries: deque[WatchedQuery] = deque(maxlen=MAX_QUERIES)
        self._numbers = itertools.count(1)

    def watch(self) -> WatchedQuery:
        self._queries.append(WatchedQuery(next(self._numbers)))
        return self._queries[-1]

    def home(self) -> dict[str, Any]:
        return {"queries": [summary_of(each.snapshot()) for each in reversed(self._started())]}

    def state(self, asked: Mapping[str, str]) -> dict[str, Any]:
        queries, chosen = self._started(), self._chosen(asked)
        return {
            "source": " ".join(map(redacted, sys.argv))[:300],
            "queries": [each.headline() for each in reversed(queries)],
            "query": None if chosen is None else news_of(chosen.snapshot(), asked),
            "end": self.end,
            "has_home": len(queries) > 1,
        }

    @property
    def end(self) -> str | None:
        """A name for the moment when the last query ended; None while one runs."""
        queries = self._started()
        return str(queries[-1].number) if queries and all(each.is_ended for each in queries) else None

    def shown(self, asked: Mapping[str, Any]) -> WatchedQuery:
        return self._chosen(asked) or WatchedQuery(0)

    def _started(self) -> list[WatchedQuery]:
        return [each for each in list(self._queries) if each.is_started]

    def _chosen(self, asked: Mapping[str, Any]) -> WatchedQuery | None:
        """Return a query by its number, or else the last one that runs, or the last one."""
        number = int(asked["query"]) if asked.get("query") else None
        queries = self._started()
        running = [each for each in queries if not each.is_ended]
        return next(iter([each for each in queries if each.number == number] or running[-1:] or queries[-1:]), None)


_board = LiveBoard()
_lock = threading.Lock()
_server: DashboardServer | None = None


def watch_query() -> WatchedQuery:
    """Return a Subscriber that shows a new query on the dashboard of this process."""
    start_dashboard()
    return _board.watch()


def start_dashboard() -> DashboardServer:
    """Return the dashboard of this process. The first call starts it and prints its URL."""
    global _server
    with _lock:
        if _server is None:
            from penstock.dashboard.server import DashboardServer

            _server = DashboardServer(_board)
            atexit.register(_wait_for_pages, os.getpid())
            note_process(_server.url)
            print(f"Dashboard: {_server.url}", file=sys.stderr)  # noqa: T201, the user asked for it
        return _server


def _wait_for_pages(pid: int) -> None:
    """Let open pages show how the last query ended, before their server is gone. A forked child has no server."""
    if pid == os.getpid() and _server is not None:
        if (end := _board.end) is not None:
            _server.wait_for_pages(end, MAX_WAIT_S)
        forget_process()


def stop_dashboard() -> None:
    """Close the dashboard of this process, if it is open. The next watched query starts another, without the queries
    before it.
    """
    global _board, _server
    with _lock:
        if _server is not None:
            atexit.unregister(_wait_for_pages)
            _server.close()
            forget_process()
            _board, _server = LiveBoard(), None

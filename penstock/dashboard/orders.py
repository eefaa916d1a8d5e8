"""Orders to a running job, from the dashboard of another process, through the folder of the job.

A dashboard writes a note with its orders, and a new *beat* every second while a person watches. The run looks at the
note once a second, follows the orders that it has not seen, and notes its own figures as long as the beat changes. A
file needs no port and no token: everyone who may write to the folder may control the job. An object store charges for
each look, so there both happen every ten seconds.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from penstock.contracts import QueryControl
from penstock.dashboard.known import note_job
from penstock.dashboard.live import LiveQuery, Order
from penstock.dashboard.row_pages.prompts import described_prompts
from penstock.errors import PenstockError
from penstock.events.events import Event, QuerySampled
from penstock.jobs.folder import Notes
from penstock.observe.screens import is_notebook
from penstock.plan.nodes import Plan
from penstock.storage.urls import redacted

RUN = "run"  # the note of the figures of the last run
PROMPTS = "prompts"  # the note of the prompt templates, to show what was sent for a row
ORDERS = "orders"
MAX_UNWATCHED = 5  # intervals after the last beat
MAX_ORDERS = 20  # the last ones


class ControlWriter:
    """Leaves orders for a run: the side of the dashboard."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._beat_at_s = 0.0

    def beat(self, interval_s: float) -> None:
        """Tell the run that a person watches, at most once in an interval."""
        if time.monotonic() - self._beat_at_s >= interval_s:
            with suppress(PenstockError):  # another dashboard writes at this moment
                self._write([])

    def order(self, order: Order) -> None:
        """Leave an order."""
        self._write([{"id": secrets.token_hex(8), **asdict(order)}])

    def _write(self, orders: list[dict[str, Any]]) -> None:
        self._beat_at_s = time.monotonic()
        known = _orders(self._notes.read(ORDERS))
        self._notes.write(ORDERS, {"beat": secrets.token_hex(8), "orders": [*known, *orders][-MAX_ORDERS:]})


def watch_job(plan: Plan, notes: Notes) -> WatchedJob:
    """Watch a run of a job, for the dashboard of any process."""
    return WatchedJob(plan, notes)


class WatchedJob:
    """Implements ``JobWatch``, the side of the run: notes its figures, and follows the orders that people leave.

    It looks for orders on a thread, because a disk or a store may be slow.
    """

    def __init__(self, plan: Plan, notes: Notes) -> None:
        self._notes, self._live = notes, LiveQuery()
        self._interval_s, self._program = notes.poll_interval_s, running_program()
        self._noting = threading.Lock()  # a later note holds later figures
        self._look_at_s = 0.0
        self._looking: threading.Thread | None = None
        self._seen = set[str]() if self._interval_s is None else {order["id"] for order in _orders(self._ordered())}
        self._beat, self._beat_at_s = "", 0.0
        note_job(notes.root)
        with suppress(PenstockError):
            notes.write(PROMPTS, {"columns": described_prompts(plan)})
        self.note()  # in place of the last run's, which may have failed

    def note(self) -> None:
        with self._noting, suppress(PenstockError):
            self._notes.write(RUN, self._live.snapshot() | {"program": self._program})

    def close(self, error: BaseException | None = None) -> None:
        if self._looking is not None:
            self._looking.join()
        if error is not None:
            self._live.fail(error)
        self.note()

    def on_control(self, control: QueryControl) -> None:
        self._live.on_control(control)

    def on_event(self, event: Event) -> None:
        self._live.on_event(event)
        if self._interval_s is None or not isinstance(event, QuerySampled) or event.time_s < self._look_at_s:
            return
        if self._looking is None or not self._looking.is_alive():
            self._look_at_s = event.time_s + self._interval_s
            looked = (event.time_s, self._interval_s)
            self._looking = threading.Thread(target=self._look, args=looked, name="penstock-orders", daemon=True)
            self._looking.start()

    def _look(self, now_s: float, interval_s: float) -> None:
        note = self._ordered()
        if note is None:
            return
        for order in _orders(note):
            if order["id"] not in self._seen:
                self._seen.add(order["id"])
                with suppress(PenstockError):  # an order that fits no stage
                    self._live.follow(Order.of(order))
        if note["beat"] != self._beat:
            self._beat, self._beat_at_s = note["beat"], now_s
        if now_s - self._beat_at_s <= MAX_UNWATCHED * interval_s:
            self.note()

    def _ordered(self) -> dict[str, Any] | None:
        with suppress(PenstockError):  # a damaged note has no orders
            return self._notes.read(ORDERS)
        return None


def running_program() -> dict[str, str] | None:
    """Return the command of this program and its folder, to start it again; None in a notebook, or with a secret."""
    script = sys.argv[0] if sys.argv else ""
    is_script = script not in ("", "-", "-c") and not is_notebook()
    if not is_script or any(redacted(arg) != arg for arg in sys.orig_argv):
        return None
    return {"command": shlex.join(sys.orig_argv), "folder": os.getcwd()}


def _orders(note: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if note is None else note["orders"]

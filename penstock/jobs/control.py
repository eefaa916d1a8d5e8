"""Orders to a job that runs, from the dashboard of another process, through the folder of the job.

A dashboard writes a note with its orders, and a new *beat* every second while a person watches. The run looks at the
note once a second, follows the orders that it has not seen, and notes its own figures as long as the beat changes. A
file needs no port and no token: those who may write to the folder may control the job. An object store charges for each
look, so there both happen every ten seconds.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.dashboard.live import LiveQuery
from penstock.errors import PenstockError
from penstock.events.events import Event, QuerySampled
from penstock.io.commit.place import LocalPlace
from penstock.io.settled import JOB_FOLDER
from penstock.jobs.folder import JobFolder, Note

ORDERS = "orders"
INTERVAL_S = 1.0
STORE_INTERVAL_S = 10.0
MAX_UNWATCHED = 5  # intervals after the last beat
MAX_ORDERS = 20  # the last ones


def order_interval_s(folder: JobFolder) -> float | None:
    """Return the time between two looks of a run at its orders; None if this process may not leave any."""
    place = folder.output.place
    if isinstance(place, LocalPlace):
        return INTERVAL_S if os.access(place.path(JOB_FOLDER), os.W_OK) else None
    return STORE_INTERVAL_S


class ControlWriter:
    """Leaves orders for a run: the side of the dashboard."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._beat_at_s = 0.0

    def beat(self, interval_s: float) -> None:
        """Tell the run that a person watches, at most once in an interval."""
        if time.monotonic() - self._beat_at_s >= interval_s:
            with suppress(PenstockError):  # another dashboard writes at this moment
                self._write([])

    def order(self, action: str, stage: int, max_running: int) -> None:
        """Leave an order; see ``LiveQuery.control``."""
        self._write([{"id": secrets.token_hex(8), "action": action, "stage": stage, "max_running": max_running}])

    def _write(self, orders: list[dict[str, Any]]) -> None:
        self._beat_at_s = time.monotonic()
        known = _orders(self._folder.notes.read(ORDERS))
        self._folder.notes.write(ORDERS, {"beat": secrets.token_hex(8), "orders": [*known, *orders][-MAX_ORDERS:]})


class ControlReader:
    """A Subscriber that passes orders to ``live``: the side of the run. It calls ``note_run`` while a person watches.

    It looks on a thread, as a disk or a store may be slow. ``close`` waits for the last look.
    """

    def __init__(self, folder: JobFolder, live: LiveQuery, note_run: Callable[[], None]) -> None:
        self._folder, self._live, self._note_run = folder, live, note_run
        self._interval_s = order_interval_s(folder)
        self._look_at_s = 0.0
        self._looking: threading.Thread | None = None
        self._seen = set[str]() if self._interval_s is None else {order["id"] for order in _orders(self._note())}
        self._beat, self._beat_at_s = "", 0.0

    def on_event(self, event: Event) -> None:
        if self._interval_s is None or not isinstance(event, QuerySampled) or event.time_s < self._look_at_s:
            return
        if self._looking is None or not self._looking.is_alive():
            self._look_at_s = event.time_s + self._interval_s
            looked = (event.time_s, self._interval_s)
            self._looking = threading.Thread(target=self._look, args=looked, name="penstock-orders", daemon=True)
            self._looking.start()

    def close(self) -> None:
        if self._looking is not None:
            self._looking.join()

    def _look(self, now_s: float, interval_s: float) -> None:
        note = self._note()
        if note is None:
            return
        for order in _orders(note):
            if order["id"] not in self._seen:
                self._seen.add(order["id"])
                with suppress(PenstockError):  # an order that fits no stage
                    self._live.control(order["action"], order["stage"], order["max_running"])
        if note["beat"] != self._beat:
            self._beat, self._beat_at_s = note["beat"], now_s
        if now_s - self._beat_at_s <= MAX_UNWATCHED * interval_s:
            self._note_run()

    def _note(self) -> Note | None:
        with suppress(PenstockError):  # a damaged note has no orders
            return self._folder.notes.read(ORDERS)
        return None


def _orders(note: Note | None) -> list[dict[str, Any]]:
    return [] if note is None else note["orders"]

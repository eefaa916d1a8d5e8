"""Orders to a job that runs, from the dashboard of another process, through the folder of the job.

A dashboard writes a note with its orders, and a new *beat* every second while a person watches. The run looks at the
note once a second, follows the orders that it has not seen, and notes its own figures as long as the beat changes. A
file needs no port and no token: those who may write to the folder may control the job. Folders on disk only, since an
object store charges for each look.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.errors import PenstockError
from penstock.io.commit.place import LocalPlace
from penstock.io.settled import JOB_FOLDER
from penstock.jobs.folder import JobFolder, Note
from penstock.observe.dashboard.live import LiveQuery
from penstock.observe.events import Event, QuerySampled

ORDERS = "orders"
INTERVAL_S = 1.0
MAX_UNWATCHED_S = 5.0  # after the last beat
MAX_ORDERS = 20  # the last ones


def can_order(folder: JobFolder) -> bool:
    """Say whether this process may leave orders in the folder of a job."""
    place = folder.output.place
    return isinstance(place, LocalPlace) and os.access(place.path(JOB_FOLDER), os.W_OK)


class OrderWriter:
    """The end of the dashboard."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._beat_at_s = 0.0

    def beat(self) -> None:
        """Tell the run that a person watches."""
        if time.monotonic() - self._beat_at_s >= INTERVAL_S:
            with suppress(PenstockError):  # another dashboard writes at this moment
                self._write([])

    def order(self, action: str, stage: int, max_running: int) -> None:
        """Leave an order; see ``LiveQuery.control``."""
        self._write([{"id": secrets.token_hex(8), "action": action, "stage": stage, "max_running": max_running}])

    def _write(self, orders: list[dict[str, Any]]) -> None:
        self._beat_at_s = time.monotonic()
        known = _orders(self._folder.notes.read(ORDERS))
        self._folder.notes.write(ORDERS, {"beat": secrets.token_hex(8), "orders": [*known, *orders][-MAX_ORDERS:]})


class OrderReader:
    """The end of the run: a Subscriber that passes orders to ``live``. It calls ``note_run`` while a person watches."""

    def __init__(self, folder: JobFolder, live: LiveQuery, note_run: Callable[[], None]) -> None:
        self._folder, self._live, self._note_run = folder, live, note_run
        is_readable = can_order(folder)
        self._look_at_s = 0.0 if is_readable else float("inf")
        self._seen = {order["id"] for order in _orders(self._note())} if is_readable else set[str]()
        self._beat, self._beat_at_s = "", 0.0

    def on_event(self, event: Event) -> None:
        if isinstance(event, QuerySampled) and event.time_s >= self._look_at_s:
            self._look_at_s = event.time_s + INTERVAL_S
            self._look(event.time_s)

    def _look(self, now_s: float) -> None:
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
        if now_s - self._beat_at_s <= MAX_UNWATCHED_S:
            self._note_run()

    def _note(self) -> Note | None:
        with suppress(PenstockError):  # a damaged note has no orders
            return self._folder.notes.read(ORDERS)
        return None


def _orders(note: Note | None) -> list[dict[str, Any]]:
    return [] if note is None else note["orders"]

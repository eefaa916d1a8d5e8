"""Leases on an object store, which has no locks: objects that their holders write again every few seconds.

A lease that was not written for some minutes, by the store's own clock, belongs to a dead run. On the machine of the
run, others notice the end of its process at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.errors import PathNotFoundError, PenstockError
from penstock.io.commit.target import StorePlace
from penstock.storage.dead_processes import has_ended, machine_id, process_identity
from penstock.storage.object_stores import ObjectStore

log = logging.getLogger("penstock.io")

HEARTBEAT_S = 20.0
DEAD_AFTER = timedelta(minutes=5)

_held: set[str] = set()  # the tokens of the leases that this process holds


class LeaseHolder(NamedTuple):
    """The run that holds a lease."""

    pid: int
    host: str
    since: str
    age: timedelta  # time since it last wrote the lease


class StoreLease:
    """One object of a store, which its holder keeps alive and other runs look at."""

    def __init__(self, place: StorePlace, key: str) -> None:
        self._place, self.key = place, key
        self._token = secrets.token_hex(8)
        self._ended = threading.Event()
        self._heartbeat: threading.Thread | None = None

    @property
    def _client(self) -> ObjectStore:
        return self._place.client

    # --- the holder ---

    def write(self) -> None:
        """Write a run's lease under a key that no other run uses."""
        _held.add(self._token)
        self._client.put(self.key, self._content())

    def create(self) -> bool:
        """Write the lease if it does not exist; return whether this run has it."""
        _held.add(self._token)  # before other threads of this process can see the object, and take it for a dead run's
        is_mine = False
        try:
            # A request that was sent twice finds the object that it made itself.
            is_mine = self._client.create(self.key, self._content()) or self.is_mine()
        finally:
            if not is_mine:
                _held.discard(self._token)
        return is_mine

    def is_mine(self) -> bool:
        try:
            return bool(json.loads(self._client.read(self.key)).get("token") == self._token)
        except PathNotFoundError:
            return False

    def keep_alive(self, is_current: Callable[[], bool] = lambda: True) -> None:
        """Write the lease again every few seconds until ``end``, or until another run has taken it."""
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(
            target=self._write_often, args=(is_current, self._ended), name="penstock-lease", daemon=True
        )
        self._heartbeat.start()

    def _write_often(self, is_current: Callable[[], bool], ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            try:
                if not is_current():
                    return
                self._client.put(self.key, self._content())
            except PenstockError as exc:
                log.warning("Cannot renew the lease %s of this run: %s", self.key, exc)

    def release(self) -> None:
        """Write that the lease is free. If the store cannot be reached, the end of this process frees it."""
        self.end()
        with contextlib.suppress(PenstockError):
            self._client.put(self.key, self._content(is_released=True))

    def end(self) -> None:
        """Stop renewing the lease."""
        self._ended.set()
        if self._heartbeat is not None and self._heartbeat.is_alive():  # Ctrl-C may have interrupted its start
            self._heartbeat.join()
        _held.discard(self._token)

    def _content(self, is_released: bool = False) -> bytes:
        content = {
            **process_identity(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "token": self._token,
            "is_released": is_released,
        }
        return json.dumps(content).encode()

    # --- other runs ---

    def living_holder(self) -> LeaseHolder | None:
        """Return the run that holds the lease, or None if the lease was released or its run is dead."""
        try:
            content = json.loads(self._client.read(self.key))
            if content.get("is_released") or _is_dead(content):
                return None
            age = self._now() - self._client.modified(self.key)
        except PathNotFoundError:
            return None
        if age > DEAD_AFTER:
            return None
        return LeaseHolder(content.get("pid"), content.get("host"), content.get("since"), age)

    def _now(self) -> Any:
        """Return the time by the store's clock."""
        probe = f"{self.key}.clock-{self._token}"
        self._client.put(probe, b"?")
        now = self._client.modified(probe)
        self._client.delete([probe])
        return now


def _is_dead(content: dict[str, Any]) -> bool:
    """Return whether the run of a lease has ended; False if it was on another machine."""
    if has_ended(content):
        return True
    is_own = content.get("machine") == machine_id() and content.get("pid") == os.getpid()
    return is_own and content.get("token") not in _held

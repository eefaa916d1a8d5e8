"""The lock of a job on an object store: numbered objects, of which the highest says who has the job.

<root>/_penstock_job/lock/000003      who: process, machine, and whether it has let go

To take the lock is to create the next number, which a store lets one of several do, when whoever has the highest has
let go or is dead. The highest is never removed and numbers never come again, so one that was slow to create a number
finds a higher one beside it, and knows that it was late. A number is written by its holder alone, every few seconds:
one that has not been written for some minutes, by the store's own clock, is of a dead run, and on the machine where it
ran its process tells at once. A run that was only thought dead finds the higher number, and stops.
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
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.errors import JobRunningError, PathNotFoundError, PenstockError
from penstock.io.commit.remote_staging import DEAD_AFTER, HEARTBEAT_S, RemoteStaging, is_running

log = logging.getLogger("penstock.jobs")

ATTEMPTS = 20

_held: set[str] = set()  # the tokens of the locks that this process has


class StoreLock:
    """A lock below ``_penstock_job/`` of an object store; for one thread, besides its own."""

    def __init__(self, staging: RemoteStaging) -> None:
        self._staging, self._client, self._root = staging, staging.client, staging.root
        self._token = secrets.token_hex(8)
        self._number = 0
        self._ended = threading.Event()
        self._heartbeat: threading.Thread | None = None

    def take(self) -> None:
        """Take the lock, or raise JobRunningError."""
        _held.add(self._token)  # before others can see it: else a thread of this process would think it dead
        try:
            for _ in range(ATTEMPTS):
                newest = max(self._numbers(), default=0)
                if newest:
                    self._refuse_holder(newest)
                if self._is_created(newest + 1):
                    return self._hold(newest + 1)
            raise JobRunningError(f"Other runs begin on the job in {self._root!r} at the same time. Try again later.")
        finally:
            if not self._number:
                _held.discard(self._token)

    def refuse_if_held(self) -> None:
        """Raise JobRunningError if a run has the lock."""
        if newest := max(self._numbers(), default=0):
            self._refuse_holder(newest)

    def confirm(self) -> None:
        """Raise JobRunningError if another run has taken the lock meanwhile."""
        if self._number and max(self._numbers(), default=0) != self._number:
            raise JobRunningError(
                f"Another run has taken over the job in {self._root!r}: this one was not heard of for "
                f"{_minutes(DEAD_AFTER)}, so it was thought dead. Nothing is lost; the other run goes on with the job."
            )

    def release(self) -> None:
        """Let go, as far as the store can be reached; else the end of this process does it."""
        if not self._number:
            return
        self._ended.set()
        if self._heartbeat is not None:
            self._heartbeat.join()
        with contextlib.suppress(PenstockError):
            if max(self._numbers(), default=0) == self._number:
                self._client.put(self._key(self._number), self._content(is_released=True))
        _held.discard(self._token)
        self._number = 0

    # --- take ---

    def _refuse_holder(self, number: int) -> None:
        try:
            who = json.loads(self._client.read(self._key(number)))
            if who.get("is_released") or _is_gone(who):
                return
            age = self._now() - self._client.modified(self._key(number))
        except PathNotFoundError:  # another run has just taken the next number, and will be found there
            return
        if age > DEAD_AFTER:
            return
        raise JobRunningError(
            f"Another run is at work on the job in {self._root!r} (process {who.get('pid')} on {who.get('host')}, "
            f"since {who.get('since')}, last heard of {max(int(age.total_seconds()), 0)} s ago). Wait for its end, or "
            f"write to another folder. If it is dead, that is known {_minutes(DEAD_AFTER)} after it was last heard of."
        )

    def _is_created(self, number: int) -> bool:
        """Say whether this run, and no other, has the lock now."""
        key = self._key(number)
        # A request that was sent again finds what it made itself; a store that knows no conditions is found out here,
        # unless two are very close.
        if not self._client.create(key, self._content()) and not self._is_mine(key):
            return False
        if max(self._numbers(), default=0) != number or not self._is_mine(key):
            if self._is_mine(key):
                self._client.delete([key])
            return False
        return True

    def _is_mine(self, key: str) -> bool:
        try:
            return bool(json.loads(self._client.read(key)).get("token") == self._token)
        except PathNotFoundError:
            return False

    def _hold(self, number: int) -> None:
        self._number = number
        with contextlib.suppress(PenstockError):  # they are of no use, and do no harm
            self._client.delete([self._key(each) for each in self._numbers() if each < number])
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(
            target=self._keep_alive, args=(number, self._ended), name="penstock-job-lock", daemon=True
        )
        self._heartbeat.start()

    def _keep_alive(self, number: int, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            try:
                if max(self._numbers(), default=0) != number:
                    return
                self._client.put(self._key(number), self._content())
            except PenstockError as exc:
                log.warning("Cannot tell other runs that the job in %s is alive: %s", self._root, exc)

    # --- what is there ---

    def _numbers(self) -> list[int]:
        names = (entry.key.rpartition("/")[2] for entry in self._client.list_below(self._staging.staged("lock")))
        return [int(name) for name in names if name.isdecimal()]

    def _key(self, number: int) -> str:
        return self._staging.staged("lock", f"{number:06d}")

    def _content(self, is_released: bool = False) -> bytes:
        who = {
            "host": socket.gethostname(),
            "machine": _machine(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "token": self._token,
            "is_released": is_released,
        }
        return json.dumps(who).encode()

    def _now(self) -> Any:
        """Return the time, by the store's clock."""
        probe = self._staging.staged("lock", "clock")
        self._client.put(probe, b"?")
        return self._client.modified(probe)


def _is_gone(who: dict[str, Any]) -> bool:
    """Say whether a process is known to have ended, which can be said of those of this machine."""
    if who.get("machine") != _machine():
        return False
    if who.get("pid") == os.getpid():
        return who.get("token") not in _held
    return not is_running(int(who.get("pid", 0)))


def _machine() -> str:
    """Return what tells apart places where the same process id is another process: machines, containers, boots."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _minutes(time: timedelta) -> str:
    return f"{time.total_seconds() / 60:g} minutes"

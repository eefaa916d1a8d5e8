"""Limits that all processes of a Ray cluster keep together: each says every second what it uses, to one actor.

The actor is detached, as drivers and workers come and go while others go on; it ends itself when nobody uses it. Where
it cannot be reached a process keeps to its limits alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

import ray

from penstock.ai.remote.limits.sharing import BEAT_S, FORGET_S, Roll, SharedLimits

NAMESPACE = "penstock"
NAME = "limits"
LINGER_S = 30.0
"""How long the actor waits for the next query before it ends: starting it takes a second."""

FIRST_BEAT_S = 2.0
"""How long a process waits at most to be told its share before it sends anything."""

LEAVE_S = 0.5

log = logging.getLogger("penstock.engine.runners")


class RollKeeper:
    """The actor."""

    def __init__(self) -> None:
        self._roll = Roll()
        self._used_at = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    async def watch(self) -> None:
        """End this actor once nobody has used it for a while. Asked by each that may have started it."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_when_unused())

    async def beat(self, member: str, names: Collection[str]) -> dict[str, int]:
        self._used_at = now = time.monotonic()
        return self._roll.beat(now, member, names)

    async def _end_when_unused(self) -> None:
        while time.monotonic() - self._used_at < LINGER_S:
            await asyncio.sleep(LINGER_S / 10)
        ray.kill(ray.get_runtime_context().current_actor)


def roll_keeper() -> Any:
    """Return the cluster's actor, started if it is not there; its process may take a while to come up."""
    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
    keeper = ray.remote(RollKeeper).options(max_concurrency=1000, **options).remote()
    keeper.watch.remote()
    return keeper


def start_keeper() -> None:
    """Have the actor come up before it is needed."""
    try:
        roll_keeper()
    except Exception as exc:
        log.debug("limits will not be shared with other processes: %s", exc)


class Heartbeat:
    """Says on a thread what this process uses, and shares its limits with those that use the same."""

    def __init__(self, limits: SharedLimits) -> None:
        self._limits = limits
        self._member = uuid.uuid4().hex
        self._keeper: Any = None
        self._heard_at = time.monotonic()
        self._first: Future[None] = Future()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-sharing", daemon=True)
        self._thread.start()

    async def first(self) -> None:
        """Wait until this process was told its share, or for as long as is reasonable."""
        if not self._first.done():
            await asyncio.wait([asyncio.wrap_future(self._first)], timeout=FIRST_BEAT_S)

    async def end(self) -> None:
        """Leave, so that others need not wait until this process is missed."""
        self._is_over.set()
        await asyncio.to_thread(self._thread.join, LEAVE_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._beat(self._limits.names_in_use())
            if not self._first.done():
                self._first.set_result(None)
            self._is_over.wait(BEAT_S)
        self._beat(())

    def _beat(self, names: Collection[str]) -> None:
        try:
            self._keeper = self._keeper or roll_keeper()
            # Not ray.get: Ray takes that for a mistake in an async actor, on whichever thread it is called.
            told = self._keeper.beat.remote(self._member, names).future().result(FORGET_S)
            self._limits.share(told)
            self._heard_at = time.monotonic()
        except Exception as exc:  # whatever keeps Ray from answering: the requests go on
            log.debug("limits are not shared with other processes just now: %s", exc)
            self._keeper = None
            if time.monotonic() - self._heard_at > FORGET_S:
                self._limits.share({})

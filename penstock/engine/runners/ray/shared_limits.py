"""Share rate limits among all processes of a Ray cluster through one actor, the member registry.

Every second each process reports the limits it uses, and learns how many processes use the same ones. The actor is
detached, because drivers and workers come and go; it ends itself when it is unused. A process that cannot reach it
keeps its limits alone.
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

from penstock.ai.remote.limits.sharing import BEAT_S, FORGET_S, LimitUsers, SharedLimits

NAMESPACE = "penstock"
NAME = "limits"
LINGER_S = 30.0  # until an unused actor ends; starting one takes a second

FIRST_BEAT_S = 2.0  # the longest wait for the share before the first request

LEAVE_S = 0.5

log = logging.getLogger("penstock.engine.runners")


class MemberRegistry:
    """The actor: it counts the processes that use each limit."""

    def __init__(self) -> None:
        self._users = LimitUsers()
        self._used_at = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    async def watch(self) -> None:
        """End this actor once it is unused. Called by each process that may have started it."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_when_unused())

    async def beat(self, member: str, names: Collection[str]) -> dict[str, int]:
        self._used_at = now = time.monotonic()
        return self._users.beat(now, member, names)

    async def _end_when_unused(self) -> None:
        while time.monotonic() - self._used_at < LINGER_S:
            await asyncio.sleep(LINGER_S / 10)
        ray.kill(ray.get_runtime_context().current_actor)


def member_registry() -> Any:
    """Return the actor of the cluster, started if needed. Its process may take a while to come up."""
    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
    registry = ray.remote(MemberRegistry).options(max_concurrency=1000, **options).remote()
    registry.watch.remote()
    return registry


def start_member_registry() -> None:
    """Start the actor before it is needed."""
    try:
        member_registry()
    except Exception as exc:
        log.debug("Rate limits are not shared with other processes: %s", exc)


class Heartbeat:
    """A thread that reports the limits of this process and applies its share of them."""

    def __init__(self, limits: SharedLimits) -> None:
        self._limits = limits
        self._member = uuid.uuid4().hex
        self._registry: Any = None
        self._heard_at = time.monotonic()
        self._first: Future[None] = Future()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-sharing", daemon=True)
        self._thread.start()

    async def first(self) -> None:
        """Wait until this process knows its share, at most ``FIRST_BEAT_S``."""
        if not self._first.done():
            await asyncio.wait([asyncio.wrap_future(self._first)], timeout=FIRST_BEAT_S)

    async def end(self) -> None:
        """Leave the registry, so that others get this share at once."""
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
            self._registry = self._registry or member_registry()
            # Not ray.get: Ray warns about it in an async actor, on any thread.
            num_members = self._registry.beat.remote(self._member, names).future().result(FORGET_S)
            self._limits.share(num_members)
            self._heard_at = time.monotonic()
        except Exception as exc:  # requests continue without the registry
            log.debug("Rate limits are not shared with other processes now: %s", exc)
            self._registry = None
            if time.monotonic() - self._heard_at > FORGET_S:
                self._limits.share({})

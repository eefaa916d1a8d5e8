"""Feed an engine: limit the requests in flight, restart a replica that dies, isolate a request that kills it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.ai.local.serving.engine import InferenceEngine
from penstock.ai.local.serving.prefix_queue import PrefixQueue
from penstock.errors import ProviderUnusableError, WorkerDiedError

log = logging.getLogger("penstock.ai")

FIRST_IN_FLIGHT = 32
LOOK_AHEAD_SHARE = 4
"""While requests with prefixes arrive quickly, at most one in four is in flight, so that groups can form."""
PAUSE_S = 0.5
"""After a pause of this length the requests that wait leave: more are not coming soon."""
SUSPECTS_SHARE = 8
"""After each death of an engine, an eighth of the requests that were in flight together run together."""
MAX_DEATHS = 8
"""Deaths without an answer in between before the engine is given up."""


class EngineCall:
    """A request, and the number of engine deaths while it was in flight."""

    __slots__ = ("answers", "max_together", "num_deaths", "options", "request", "running")

    def __init__(self, request: Request, options: Mapping[str, Any], answers: asyncio.Future[list[Generation]]) -> None:
        self.request, self.options, self.answers = request, options, answers
        self.running: asyncio.Task[None] | None = None
        self.num_deaths = 0
        self.max_together: int | None = None  # requests that may run together after a death; None before the first


class Replica:
    """One engine and its requests in flight, which all have the same ``max_together``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.engine: InferenceEngine | None = None  # None until it is ready
        self.death: WorkerDiedError | None = None
        self.in_flight: set[EngineCall] = set()
        self.victims: list[EngineCall] = []  # in flight when the engine died
        self.suspects: list[EngineCall] = []  # victims of earlier deaths, which run first and in small numbers

    def next_call(self, queue: PrefixQueue[EngineCall], max_in_flight: int) -> EngineCall | None:
        """Return the next request to send, None if there is no request or no room."""
        if self.engine is None or self.death is not None:
            return None
        suspect = min(self.suspects, key=lambda call: call.max_together or 0, default=None)
        max_together = None if suspect is None else suspect.max_together
        beside = next(iter(self.in_flight), None)
        if len(self.in_flight) >= (max_together or max_in_flight) or (beside and beside.max_together != max_together):
            return None
        if suspect is None:
            return queue.take(self.number)
        self.suspects.remove(suspect)
        return suspect


class Feed:
    """Send the requests of all callers to the replicas of one engine. Used on one event loop."""

    def __init__(self, make: Callable[[int], InferenceEngine], num_replicas: int, max_in_flight: int) -> None:
        self._make, self._max_in_flight = make, max_in_flight
        self._replicas = [Replica(number) for number in range(num_replicas)]
        self._queue = PrefixQueue[EngineCall](num_replicas)
        self._loop = asyncio.get_running_loop()
        self._num_grouped = 0
        self._last_arrival_s = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._num_deaths = 0  # since the last answer
        self._starts: set[asyncio.Task[None]] = set()
        for replica in self._replicas:
            self._begin_start(replica)

    async def generate(self, request: Request, options: Mapping[str, Any], key: str = "") -> list[Generation]:
        """Return the answers to a request. Requests with similar keys leave together, requests without keys in
        order."""
        if self._failure is not None:
            raise self._failure
        if not self._queue and not any(replica.in_flight for replica in self._replicas):
            self._num_grouped = 0  # another query begins
        call = EngineCall(request, options, self._loop.create_future())
        self._queue.add(call, key)
        if key:
            self._num_grouped += 1
            self._last_arrival_s = self._loop.time()
        self._send()
        try:
            return await call.answers
        finally:
            if call.running is not None:
                call.running.cancel()

    async def close(self) -> None:
        """Abort all requests and close the engines."""
        if self._pause is not None:
            self._pause.cancel()
        running = [call.running for replica in self._replicas for call in replica.in_flight]
        self._end_calls(asyncio.CancelledError())
        tasks = [task for task in (*running, *self._starts) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(replica.engine.close() for replica in self._replicas if replica.engine is not None))

    # --- requests ---

    def _send(self) -> None:
        max_in_flight = self._window()
        for replica in self._replicas:
            while (call := replica.next_call(self._queue, max_in_flight)) is not None:
                if not call.answers.done():  # else it was cancelled while it waited
                    replica.in_flight.add(call)
                    call.running = self._loop.create_task(self._run(replica, call))

    def _window(self) -> int:
        """Return the number of requests that each replica may have in flight now."""
        allowed = max(FIRST_IN_FLIGHT, self._num_grouped // LOOK_AHEAD_SHARE // len(self._replicas))
        pause_s = self._last_arrival_s + PAUSE_S - self._loop.time()
        if not self._num_grouped or allowed >= self._max_in_flight or pause_s <= 0:
            return self._max_in_flight
        if self._pause is None:
            self._pause = self._loop.call_later(pause_s, self._end_pause)
        return allowed

    def _end_pause(self) -> None:
        self._pause = None
        self._send()

    async def _run(self, replica: Replica, call: EngineCall) -> None:
        assert replica.engine is not None
        started = time.perf_counter()
        try:
            answers = await replica.engine.generate(call.request, call.options)
            self._num_deaths = 0
            for answer in answers:
                answer.latency_s = time.perf_counter() - started
            if not call.answers.done():
                call.answers.set_result(answers)
        except WorkerDiedError as exc:
            replica.death = exc
            replica.victims.append(call)
        except asyncio.CancelledError:
            call.answers.cancel()
        except Exception as exc:
            if not call.answers.done():
                call.answers.set_exception(exc)
        call.running = None
        replica.in_flight.discard(call)
        if self._failure is None:
            if replica.death is not None and not replica.in_flight:
                self._restart(replica, replica.death)
            self._send()

    # --- life and death of engines ---

    def _begin_start(self, replica: Replica, dead: InferenceEngine | None = None) -> None:
        task = self._loop.create_task(self._start(replica, dead))
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def _start(self, replica: Replica, dead: InferenceEngine | None) -> None:
        try:
            if dead is not None:
                await dead.close()
            engine = self._make(replica.number)
            await engine.start()
        except Exception as exc:
            self._end_calls(exc)
        else:
            replica.engine, replica.death = engine, None
            self._send()

    def _restart(self, replica: Replica, death: WorkerDiedError) -> None:
        """Restart an engine that died. A request alone in flight, for a second death at least, is the cause."""
        self._num_deaths += 1
        victims, replica.victims = replica.victims, []
        for call in victims:
            call.num_deaths += 1
            call.max_together = max(1, len(victims) // SUSPECTS_SHARE)
        if len(victims) == 1 and victims[0].num_deaths > 1:
            call = victims.pop()
            message = f"The engine died {call.num_deaths} times on this request, the last time on it alone: {death}"
            if not call.answers.done():
                call.answers.set_exception(WorkerDiedError(message))
        replica.suspects += victims
        if self._num_deaths >= MAX_DEATHS:
            message = f"The engine died {MAX_DEATHS} times without an answer in between: {death}"
            self._end_calls(ProviderUnusableError(message))
            return
        log.warning("The engine died and is restarted; %d requests are repeated: %s", len(victims), death)
        dead, replica.engine = replica.engine, None
        self._begin_start(replica, dead)

    def _end_calls(self, failure: BaseException) -> None:
        """End waiting and future requests with an error."""
        self._failure = failure
        waiting = [call for replica in self._replicas for call in (*replica.in_flight, *replica.suspects)]
        while (queued := self._queue.take()) is not None:
            waiting.append(queued)
        for call in waiting:
            if not call.answers.done():
                call.answers.set_exception(failure) if isinstance(failure, Exception) else call.answers.cancel()

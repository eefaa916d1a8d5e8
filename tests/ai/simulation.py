"""Servers and a client on a virtual clock: minutes of requests in a moment, the same in every run."""

from __future__ import annotations

import gc
import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from penstock.ai.client.limits.pace import Outcome, Pace, Sent
from penstock.ai.client.limits.rate_headers import NO_HINTS, Hints, RateWindow


class Server(Protocol):
    """Decides the outcome of a request that arrives; ``depart`` reports that an accepted one is done."""

    def arrive(self, now: float) -> tuple[Outcome, Hints]: ...
    def depart(self) -> None: ...


@dataclass
class TokenBucket:
    """``rate(now)`` requests a second, and ``burst`` of them at once."""

    rate: Callable[[float], float]
    burst: float
    level: float = field(default=-1.0)
    filled_at: float = 0.0

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        if self.level < 0:
            self.level = self.burst
        self.level = min(self.burst, self.level + (now - self.filled_at) * self.rate(now))
        self.filled_at = now
        if self.level < 1:
            return "refused", NO_HINTS
        self.level -= 1
        return "ok", NO_HINTS

    def depart(self) -> None: ...


@dataclass
class FixedWindow:
    """So many requests in each window of the clock."""

    rate: Callable[[float], float]
    window_s: float = 1.0
    has_headers: bool = False
    retry_after: bool = False
    number: int = -1
    count: int = 0

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        if int(now / self.window_s) != self.number:
            self.number, self.count = int(now / self.window_s), 0
        self.count += 1
        limit = self.rate(now) * self.window_s
        reset_s = (self.number + 1) * self.window_s - now
        window = RateWindow(max(0.0, limit - self.count), reset_s, limit) if self.has_headers else None
        if self.count <= limit:
            return "ok", Hints(requests=window) if window else NO_HINTS
        if window or self.retry_after:
            return "refused", Hints(reset_s if self.retry_after else None, requests=window)
        return "refused", NO_HINTS

    def depart(self) -> None: ...


@dataclass
class Slots:
    """So many requests at once, whatever their pace."""

    slots: int
    busy: int = 0

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        if self.busy >= self.slots:
            return "refused", NO_HINTS
        self.busy += 1
        return "ok", NO_HINTS

    def depart(self) -> None:
        self.busy -= 1


@dataclass
class Queue:
    """Works on so many requests at once; others wait in its queue, and what does not fit there is refused.

    Pass its method ``latency`` to ``simulate``.
    """

    slots: int
    service_s: Callable[[float], float]
    most_waiting: float = math.inf
    free_at: list[float] = field(default_factory=list)
    unfinished: list[float] = field(default_factory=list)

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        while self.unfinished and self.unfinished[0] <= now + 1e-9:
            heapq.heappop(self.unfinished)
        is_full = len(self.unfinished) >= self.slots + self.most_waiting
        return ("refused" if is_full else "ok"), NO_HINTS

    def latency(self, now: float) -> float:
        """Put a request into the queue and return the time until its answer."""
        start = now if len(self.free_at) < self.slots else max(now, heapq.heappop(self.free_at))
        end = start + self.service_s(now)
        heapq.heappush(self.free_at, end)
        heapq.heappush(self.unfinished, end)
        return end - now

    def depart(self) -> None: ...


@dataclass
class BatchServer:
    """Works on ``slots`` requests together, each ``1 + slowdown`` times slower than alone; others wait in its queue.

    Pass its method ``latency`` to ``simulate``.
    """

    slots: int
    service_s: float
    slowdown: float
    num_held: int = 0
    free_at: list[float] = field(default_factory=list)

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        self.num_held += 1
        return "ok", NO_HINTS

    def latency(self, now: float) -> float:
        start = now if len(self.free_at) < self.slots else max(now, heapq.heappop(self.free_at))
        share = min(self.num_held, self.slots) / self.slots
        end = start + self.service_s * (1 + self.slowdown * share)
        heapq.heappush(self.free_at, end)
        return end - now

    def depart(self) -> None:
        self.num_held -= 1


@dataclass
class Unlimited:
    """Takes everything, except what ``trouble`` says of the time."""

    trouble: Callable[[float], Outcome] = lambda now: "ok"

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        return self.trouble(now), NO_HINTS

    def depart(self) -> None: ...


@dataclass
class Troubled:
    """Another server, except when ``trouble`` says otherwise."""

    server: Server
    trouble: Callable[[float], Outcome]

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        outcome = self.trouble(now)
        return self.server.arrive(now) if outcome == "ok" else (outcome, NO_HINTS)

    def depart(self) -> None:
        self.server.depart()


def noisy(server: Server, share: float, seed: int = 0) -> Troubled:
    """Return a server that refuses a share of requests by chance, whatever their pace."""
    chance = random.Random(seed)
    return Troubled(server, lambda now: "refused" if chance.random() < share else "ok")


@dataclass
class Run:
    """The requests of a run, as (time of sending, outcome)."""

    sent: list[tuple[float, Outcome]] = field(default_factory=list)
    in_flight: list[tuple[float, int]] = field(default_factory=list)
    answered: list[list[float]] = field(default_factory=list)
    """The times of answers, by client."""

    def answered_shares(self, start: float, end: float) -> list[float]:
        """Return each client's answers over an equal part of all answers."""
        counts = [sum(start <= at < end for at in times) for times in self.answered]
        return [count * len(counts) / max(1, sum(counts)) for count in counts]

    def accepted_per_s(self, start: float, end: float) -> float:
        return sum(start <= at < end and outcome == "ok" for at, outcome in self.sent) / (end - start)

    def refused_share(self, start: float = 0.0, end: float = math.inf) -> float:
        outcomes = [outcome for at, outcome in self.sent if start <= at < end]
        return outcomes.count("refused") / max(1, len(outcomes))

    def in_flight_share(self, start: float, share: float) -> int:
        """Return the number in flight that this share of the requests from ``start`` on did not exceed."""
        counts = sorted(count for at, count in self.in_flight if at >= start)
        return counts[int(share * (len(counts) - 1))]

    def most_in_flight(self, start: float = 0.0, end: float = math.inf) -> int:
        return max((count for at, count in self.in_flight if start <= at < end), default=0)


def simulate(
    paces: Pace | Sequence[Pace],
    server: Server,
    seconds: float,
    *,
    latency: Callable[[float], float] = lambda now: 0.05,
    refusal_s: Callable[[float], float] | None = None,
    timeout_s: float = math.inf,
    network_s: float = 0.0,
    most_per_s: float = 20_000.0,
    tokens: Callable[[], tuple[int, int]] = lambda: (0, 0),
    seed: int = 0,
    start_at: float = 1000.0,
    stagger_s: float = 0.0,
) -> Run:
    """Run a client with endless rows against a server, or several that know nothing of each other.

    Clients start ``stagger_s`` apart. ``network_s`` is the longest way to the server, different for each request; a
    client sends ``most_per_s`` at most, and its timers are up to a millisecond late. A request that takes ``timeout_s``
    is given up. ``tokens`` gives a request's input and what it uses in the end.
    """
    chance = random.Random(seed)
    run = Run()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    order = itertools.count()

    def at(moment: float, act: Callable[[float], None]) -> None:
        heapq.heappush(events, (moment, next(order), act))

    def start(pace: Pace, moment: float) -> None:
        answered: list[float] = []
        run.answered.append(answered)
        wake_at, busy_until = math.inf, 0.0

        def send(now: float) -> None:
            nonlocal wake_at, busy_until
            while True:
                needed, used = tokens()
                answer = busy_until if busy_until > now else pace.try_send(now, needed)
                if isinstance(answer, float):
                    if answer < wake_at:
                        wake_at = max(answer, now + 1e-6) + chance.random() * 0.001
                        at(wake_at, wake)
                    return
                busy_until = max(busy_until, now - 0.001) + 1 / most_per_s
                run.in_flight.append((now - start_at, pace.in_flight))
                at(now + chance.random() * network_s, partial(arrive, answer, used))

        def wake(now: float) -> None:
            nonlocal wake_at
            if now == wake_at:  # else an earlier one took its place
                wake_at = math.inf
                send(now)

        def arrive(sent: Sent, used: int, now: float) -> None:
            outcome, hints = server.arrive(now - start_at)
            answer_s = refusal_s if outcome == "refused" and refusal_s is not None else latency
            wait_s = answer_s(now - start_at)
            if wait_s > timeout_s:
                wait_s, outcome = timeout_s, "late"
            run.sent.append((sent.at - start_at, outcome))
            at(now + wait_s, partial(leave, sent, used, outcome, hints))

        def leave(sent: Sent, used: int, outcome: Outcome, hints: Hints, now: float) -> None:
            if outcome == "ok":
                server.depart()
                answered.append(now - start_at)
            pace.settle(now, sent, outcome, used if outcome == "ok" else None, hints)
            send(now)

        at(moment, send)

    for number, pace in enumerate(paces if isinstance(paces, Sequence) else [paces]):
        start(pace, start_at + number * stagger_s)
    gc.disable()  # it would go through all that was recorded, again and again
    try:
        while events and events[0][0] < start_at + seconds:
            now, _, act = heapq.heappop(events)
            act(now)
    finally:
        gc.enable()
    return run

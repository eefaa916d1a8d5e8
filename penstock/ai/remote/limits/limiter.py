"""How many requests may be under way, and how fast they may follow: one limiter for each provider, base URL and model.

``Pace`` (pacing.py) decides; this file keeps who waits. A request that has room costs a lock and two small objects: no
task, no future, no timer. Those without room wait in one queue, first come, first served, whatever loop they run on.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.ai.remote.limits.pacing import NO_CAPS, PATIENCE_S, Caps, Outcome, Pace, Sent
from penstock.ai.remote.limits.rate_headers import read_hints
from penstock.ai.remote.limits.sharing import offer_limits
from penstock.errors import RateLimitedError
from penstock.udf.cpu_clock import wanted_cpu_s

__all__ = ["Caps", "Limiter", "LimiterKey", "LimiterState", "Outcome", "Permit", "limiter_for"]

log = logging.getLogger("penstock.ai")

CEILING = 1024
RESERVED_FILES = 256
"""Open files that are left to everything but requests."""

BUSY_CHECK_S = 0.05
BUSY_SHARE = 0.95
BUSY_HOLD_S = 0.2
TOLD_WAIT_S = 60.0
"""A longer wait is logged, so that nobody takes it for a query that hangs."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class LimiterKey:
    provider: str
    base_url: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider} {self.base_url} {self.model}"


@dataclass(frozen=True, slots=True)
class LimiterState:
    """A look at a limiter, for progress and statistics."""

    limit: int
    in_flight: int
    waiting: int
    refused: int
    rate: float | None
    """Requests a second, as learned from refusals; None if nothing was ever refused."""


class Permit:
    """Leave to send one request. Whoever got it settles it, exactly once, whatever became of the request."""

    __slots__ = ("_gate", "_sent")

    def __init__(self, gate: _Gate, sent: Sent) -> None:
        self._gate: _Gate | None = gate
        self._sent = sent

    def settle(
        self,
        outcome: Outcome,
        *,
        used_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Say what became of the request. ``headers`` are the answer's, with lower-case names."""
        gate, self._gate = self._gate, None
        if gate is None:
            raise RuntimeError("The permit is settled already; ask the limiter for another one")
        gate.settle(self._sent, outcome, used_tokens, headers)


class ClientLoad:
    """Says whether the thread of the event loop has all it can do: then more requests at once make nothing faster."""

    def __init__(self, cpu_clock: Clock = wanted_cpu_s) -> None:
        self._cpu_clock = cpu_clock
        self._thread = 0
        self._looked_at = 0.0
        self._cpu_s = 0.0
        self._is_busy = False

    def is_busy(self, now: float) -> bool:
        """Look, if it is time to; called on the loop's thread."""
        if now - self._looked_at >= BUSY_CHECK_S:
            thread, cpu_s = threading.get_ident(), self._cpu_clock()
            share = (cpu_s - self._cpu_s) / (now - self._looked_at) if thread == self._thread else 0.0
            self._thread, self._looked_at, self._cpu_s, self._is_busy = thread, now, cpu_s, share > BUSY_SHARE
        return self._is_busy


class _Waiter:
    __slots__ = ("future", "loop", "permit", "since", "tokens")

    def __init__(self, loop: asyncio.AbstractEventLoop, tokens: int, since: float) -> None:
        self.loop = loop
        self.since = since
        self.tokens = tokens
        self.future: asyncio.Future[None] = loop.create_future()
        self.permit: Permit | None = None  # set under the lock: from then on the waiter owns it


class _Gate:
    """The queue before one model. Everything below is done under one lock, and nothing waits while it is held."""

    def __init__(self, ceiling: int, clock: Clock, name: str = "the server") -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._pace = Pace(ceiling=ceiling)
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._timer: tuple[asyncio.AbstractEventLoop, float] | None = None
        self._users: weakref.WeakSet[Limiter] = weakref.WeakSet()
        self._are_caps_stale = False
        self._client = ClientLoad()

    def add_user(self, limiter: Limiter) -> None:
        with self._lock:
            self._users.add(limiter)
            # Run by the garbage collector on any thread, perhaps under this very lock: only leaves a note.
            weakref.finalize(limiter, self._note_caps_changed).atexit = False
            self._apply_caps()

    @property
    def is_used(self) -> bool:
        return len(self._users) > 0

    def set_members(self, num_members: int) -> None:
        """Be one of so many processes; called on any thread."""
        with self._lock:
            self._pace.set_members(num_members)
            self._pump()

    def _note_caps_changed(self) -> None:
        self._are_caps_stale = True

    def _apply_caps(self) -> None:
        self._are_caps_stale = False
        caps = NO_CAPS
        for user in list(self._users):
            caps = caps.tightened(user.caps)
        self._pace.set_caps(caps)

    def try_admit(self, tokens: int) -> Permit | None:
        """Return a permit if there is room and nobody waits for it."""
        with self._lock:
            if self._are_caps_stale:
                self._apply_caps()
            if self._waiters:
                return None
            sent = self._pace.try_send(self._clock(), tokens)
            return Permit(self, sent) if isinstance(sent, Sent) else None

    async def wait(self, tokens: int) -> Permit:
        waiter = _Waiter(asyncio.get_running_loop(), tokens, self._clock())
        with self._lock:
            self._waiters[waiter] = None
            self._pump()
        try:
            await waiter.future
        except BaseException:  # cancelled, or thrown away with its loop
            self._leave(waiter)
            raise
        assert waiter.permit is not None
        return waiter.permit

    def _leave(self, waiter: _Waiter) -> None:
        """Take a cancelled waiter out of the queue, and hand on what it was given meanwhile."""
        with self._lock:
            permit = waiter.permit
            if permit is None:
                self._waiters.pop(waiter, None)
                self._pump()
        if permit is not None:
            permit.settle("other")

    def settle(self, sent: Sent, outcome: Outcome, used_tokens: int | None, headers: Mapping[str, str] | None) -> None:
        hints = read_hints(headers, time.time())
        with self._lock:
            now = self._clock()
            if self._client.is_busy(now):
                self._pace.hold_growth(now + BUSY_HOLD_S)
            if self._pace.blocked_until <= now and TOLD_WAIT_S < (hints.retry_after_s or 0) <= PATIENCE_S:
                log.warning("%s asks to wait %s; waiting", self._name, duration(hints.retry_after_s or 0))
            self._pace.settle(now, sent, outcome, used_tokens, hints)
            if self._waiters:
                if outcome in ("refused", "unavailable"):
                    self._lose_patience(now, hints.wait_s(outcome) or 0.0)
                self._pump()

    def _lose_patience(self, now: float, wait_s: float) -> None:
        """Fail those who would have waited too long by the time for which the server asks, with nothing accepted."""
        give_up = now + wait_s - PATIENCE_S
        for waiter in list(self._waiters):
            if max(waiter.since, self._pace.accepted_at) >= give_up:
                return
            del self._waiters[waiter]
            _call_on(waiter.loop, _fail, waiter.future, come_back(self._name, wait_s))

    def _pump(self) -> None:
        """Give permits to those who wait, as far as there is room; where time will make room, come again then."""
        if self._are_caps_stale:
            self._apply_caps()
        while self._waiters:
            waiter = next(iter(self._waiters))
            now = self._clock()
            sent = self._pace.try_send(now, waiter.tokens)
            if not isinstance(sent, Sent):
                if sent != float("inf"):
                    self._call_at(waiter.loop, sent, now)
                return
            del self._waiters[waiter]
            waiter.permit = Permit(self, sent)
            if not _call_on(waiter.loop, _wake, waiter.future):
                self._pace.settle(now, sent, "other")  # its loop is closed: nobody is there to take it

    def _call_at(self, loop: asyncio.AbstractEventLoop, moment: float, now: float) -> None:
        """Have the loop of the first waiter pump at a moment, unless it will do so before."""
        if self._timer is not None and self._timer[0] is loop and self._timer[1] <= moment:
            return
        timer = self._timer = (loop, moment)
        if not _call_on(loop, loop.call_later, moment - now, self._on_timer, timer):
            self._timer = None

    def _on_timer(self, timer: tuple[asyncio.AbstractEventLoop, float]) -> None:
        with self._lock:
            if self._timer is timer:
                self._timer = None
            self._pump()

    def state(self) -> LimiterState:
        with self._lock:
            if self._are_caps_stale:
                self._apply_caps()
            pace = self._pace
            return LimiterState(pace.limit, pace.in_flight, len(self._waiters), pace.num_refused, pace.rate)


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    """Call a function on a loop: now if it is the running one. Return False if the loop is closed."""
    if asyncio._get_running_loop() is loop:
        function(*args)
        return True
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def duration(seconds: float) -> str:
    """Say about how long that is.

    >>> duration(20), duration(300), duration(5400), duration(400_000)
    ('20 s', '5 min', '90 min', '4.6 days')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:.0f} s"


class OutOfPatienceError(RateLimitedError):
    """Nobody waits so long."""


def come_back(name: str, wait_s: float) -> OutOfPatienceError:
    """Return the error of a request that is to wait for so long, or has waited."""
    if wait_s <= PATIENCE_S:
        return OutOfPatienceError(f"{name} accepted nothing in {duration(PATIENCE_S)}. Run again later.")
    when = (datetime.now() + timedelta(seconds=wait_s)).isoformat(" ", "minutes")
    error = OutOfPatienceError(
        f"{name} asks to come back in {duration(wait_s)}, at {when}; no more than {duration(PATIENCE_S)} are waited "
        "for. Run again then."
    )
    error.retry_after_s = wait_s
    return error


class Limiter:
    """Gives permits. Safe to be used from several event loops on several threads."""

    def __init__(self, caps: Caps = NO_CAPS, *, clock: Clock = time.monotonic, gate: _Gate | None = None) -> None:
        self.caps = caps
        self._gate = gate if gate is not None else _Gate(_ceiling(), clock)
        self._gate.add_user(self)

    async def admit(self, tokens: int = 0) -> Permit:
        """Wait until a request may be sent. ``tokens`` is what its input is estimated to take.

        ``RateLimitedError`` if the server asks everybody to stay away for longer than ``PATIENCE_S``.
        """
        return self._gate.try_admit(tokens) or await self._gate.wait(tokens)

    def state(self) -> LimiterState:
        """Return how things stand. Limiters of one model show the same."""
        return self._gate.state()


_gates: dict[LimiterKey, _Gate] = {}
_limiters: weakref.WeakValueDictionary[tuple[LimiterKey, Caps], Limiter] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def limiter_for(key: LimiterKey, caps: Caps = NO_CAPS) -> Limiter:
    """Return the limiter of a model, which this process keeps; what it learned holds for the next query too.

    Limiters of one model with different caps share everything but the caps. The tightest of those that somebody still
    holds counts for all of them: two queries that run side by side stay within what either allows.
    """
    with _lock:
        limiter = _limiters.get((key, caps))
        if limiter is None:
            if key not in _gates:
                _gates[key] = _Gate(_ceiling(), time.monotonic, f"{key.provider} ({key.model})")
            limiter = _limiters[key, caps] = Limiter(caps, gate=_gates[key])
        return limiter


class _SharedGates:
    """Lets the limiters of several processes share what one may use; see ``penstock.ai.remote.limits.sharing``."""

    def names_in_use(self) -> list[str]:
        with _lock:
            return [str(key) for key, gate in _gates.items() if gate.is_used]

    def share(self, num_members: Mapping[str, int]) -> None:
        with _lock:
            gates = list(_gates.items())
        for key, gate in gates:
            gate.set_members(num_members.get(str(key), 1))


offer_limits(_SharedGates())


def forget_limits() -> None:
    """Forget what was learned of all models, as a new process would."""
    with _lock:
        _gates.clear()
        _limiters.clear()


def _ceiling() -> int:
    """Return the most requests that may be under way: each is an open file, and others need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CEILING
    return max(8, min(CEILING, soft - RESERVED_FILES))

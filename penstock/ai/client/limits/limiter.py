"""The limiter: one queue of requests for each provider, base URL, model and caps of the user.

``Pace`` (pace.py) decides; this module holds the queue. A request that may be sent at once costs a lock and three
small objects: no task, future or timer. Others wait first come, first served, on whatever event loop they run; a retry
goes before all first attempts.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from penstock.ai.client.limits.caps import NO_CAPS, Caps
from penstock.ai.client.limits.embedding_limits import forget_input_limits
from penstock.ai.client.limits.pace import MAX_WAIT_S, Outcome, Pace, Sent
from penstock.ai.client.limits.rate_headers import read_hints
from penstock.errors import WaitTooLongError
from penstock.events.cpu_clock import wanted_cpu_s

__all__ = ["Limiter", "LimiterKey", "LimiterState", "Outcome", "Permit", "Tally", "limiter_for"]

log = logging.getLogger("penstock.ai")

START, OWN_START = 64, 6
"""The first concurrent requests. A server without TLS is the user's own: it may have few slots, and a queue."""
CEILING = 1024
RESERVED_FILES = 256
"""Open files that are left for everything other than requests."""

BUSY_CHECK_S = 0.05
BUSY_SHARE = 0.95
BUSY_HOLD_S = 0.2
LOGGED_WAIT_S = 60.0
"""Longer waits are logged, so that the query does not seem to hang."""

Clock = Callable[[], float]
Rank = Literal["first", "retry", "suspect", "probe"]
"""The rank of a request in the queue: first a probe, which others wait for, then retries, then the others. A suspect of
a crash is a retry that is sent while others are held back."""


@dataclass(frozen=True, slots=True)
class LimiterKey:
    provider: str
    base_url: str
    model: str


class LimiterState(NamedTuple):
    """The state of a limiter, for progress and statistics."""

    limit: int
    ceiling: int
    in_flight: int
    waiting: int
    refused: int
    rate_limit: str = ""
    """The rate that waiting requests wait for, in words; empty if they wait for a free place."""

    def plus(self, other: LimiterState) -> LimiterState:
        totals: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in self._fields[:5]}
        return self._replace(**totals, rate_limit=self.rate_limit or other.rate_limit)


class Tally(NamedTuple):
    """Counts of requests: answered, refused or timed out, in flight, and sent.

    Requests get numbers from 1 as they are sent. ``newest_answered`` is the highest number of an answered request.
    """

    num_answered: int = 0
    num_failed: int = 0
    num_in_flight: int = 0
    num_sent: int = 0
    oldest_in_flight: int = 0
    newest_answered: int = 0

    def has_answered_since(self, before: Tally) -> bool:
        """Return whether a request was answered that was sent after ``before``."""
        return self.newest_answered > before.num_sent


class Permit:
    """Permission to send one request. The holder must settle it exactly once."""

    __slots__ = ("_limiter", "_sent")

    def __init__(self, limiter: Limiter, sent: Sent) -> None:
        self._limiter: Limiter | None = limiter
        self._sent = sent

    def settle(
        self,
        outcome: Outcome,
        *,
        used_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Report the outcome of the request. ``headers`` are the answer's headers, with lower-case names."""
        limiter, self._limiter = self._limiter, None
        if limiter is None:
            raise RuntimeError("The permit is already settled; ask the limiter for another one")
        limiter.settle(self._sent, outcome, used_tokens, headers)


class ClientLoad:
    """The load of the event loop's thread: when it is busy, more concurrent requests make nothing faster."""

    def __init__(self) -> None:
        self._thread = 0
        self._looked_at = 0.0
        self._cpu_s = 0.0
        self._is_busy = False

    def is_busy(self, now: float) -> bool:
        """Return whether the thread recently used a whole core. Call it on the thread of the loop."""
        if now - self._looked_at >= BUSY_CHECK_S:
            thread, cpu_s = threading.get_ident(), wanted_cpu_s()
            share = (cpu_s - self._cpu_s) / (now - self._looked_at) if thread == self._thread else 0.0
            self._thread, self._looked_at, self._cpu_s, self._is_busy = thread, now, cpu_s, share > BUSY_SHARE
        return self._is_busy


class _QueuedRequest:
    __slots__ = ("future", "loop", "permit", "since", "tokens")

    def __init__(self, loop: asyncio.AbstractEventLoop, tokens: int, since: float) -> None:
        self.loop = loop
        self.since = since
        self.tokens = tokens
        self.future: asyncio.Future[None] = loop.create_future()
        self.permit: Permit | None = None  # set under the lock: from then on the request owns it


class Limiter:
    """Gives permits for requests to one model: to retries first, then first come, first served.

    Safe for several event loops and threads.

    One lock guards everything, and nothing blocks while it is held.
    """

    def __init__(
        self,
        caps: Caps = NO_CAPS,
        *,
        clock: Clock = time.monotonic,
        name: str = "the server",
        start: int = START,
    ) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._pace = Pace(caps, _ceiling(), start)
        self._retries: OrderedDict[_QueuedRequest, None] = OrderedDict()
        self._waiting: OrderedDict[_QueuedRequest, None] = OrderedDict()
        self._timer: tuple[asyncio.AbstractEventLoop, float] | None = None
        self._client = ClientLoad()

    @property
    def tally(self) -> Tally:
        with self._lock:
            pace = self._pace
            num_failed = pace.num_refused + pace.num_late
            sent, oldest, newest = pace.num_sent, pace.oldest_in_flight, pace.newest_answered
            return Tally(pace.num_answered, num_failed, pace.in_flight, sent, oldest, newest)

    @property
    def counts_tokens(self) -> bool:
        """True if there is a limit on tokens, so that a settled request must say how many it used."""
        return self._pace.counts_tokens

    async def admit(self, tokens: int = 0, *, rank: Rank = "first") -> Permit:
        """Wait until a request may be sent. ``tokens`` is the estimated size of its input.

        A retry comes before all requests that were never sent: a bundle of rows does not wait for one of them.
        Raises ``WaitTooLongError`` if the server asks to wait longer than ``MAX_WAIT_S``.
        """
        with self._lock:
            now = self._clock()
            is_first = rank == "probe" or (not self._retries and (rank == "retry" or not self._waiting))
            if is_first and isinstance(sent := self._pace.try_send(now, tokens), Sent):
                return Permit(self, sent)
            request = _QueuedRequest(asyncio.get_running_loop(), tokens, now)
            (self._waiting if rank == "first" else self._retries)[request] = None
            if rank == "probe":
                self._retries.move_to_end(request, last=False)
            if is_first or not self._pace.is_full:  # else a settled request calls _pump
                self._pump(now)
        try:
            await request.future
        except BaseException:  # cancelled, or destroyed with its loop
            self._leave(request)
            raise
        assert request.permit is not None
        return request.permit

    def _leave(self, request: _QueuedRequest) -> None:
        """Remove a cancelled request from the queue, and return the permit that it got meanwhile."""
        with self._lock:
            permit = request.permit
            if permit is None:
                self._retries.pop(request, None)
                self._waiting.pop(request, None)
                self._pump(self._clock())
        if permit is not None:
            permit.settle("other")

    def settle(self, sent: Sent, outcome: Outcome, used_tokens: int | None, headers: Mapping[str, str] | None) -> None:
        """Record the outcome of a request; see ``Permit.settle``."""
        hints = read_hints(headers, time.time())
        with self._lock:
            now = self._clock()
            if self._client.is_busy(now):
                self._pace.hold_growth(now + BUSY_HOLD_S)
            if self._pace.blocked_until <= now and LOGGED_WAIT_S < (hints.retry_after_s or 0) <= MAX_WAIT_S:
                log.warning("%s asks to wait %s; waiting", self._name, duration(hints.retry_after_s or 0))
            self._pace.settle(now, sent, outcome, used_tokens, hints)
            if self._retries or self._waiting:
                if outcome in ("refused", "unavailable"):
                    self._fail_waiting(now, hints.wait_s(outcome) or 0.0)
                self._pump(now)

    def _fail_waiting(self, now: float, wait_s: float) -> None:
        """Fail the requests that would wait too long, given the wait that the server asks for."""
        give_up = now + wait_s - MAX_WAIT_S
        for waiting in (self._retries, self._waiting):
            for request in list(waiting):
                if max(request.since, self._pace.accepted_at) >= give_up:
                    break
                del waiting[request]
                _call_on(request.loop, _settle_future, request.future, wait_too_long(self._name, wait_s))

    def _pump(self, now: float) -> None:
        """Give permits to waiting requests until the limits are reached; set a timer if time will make room."""
        running = asyncio._get_running_loop()
        while waiting := self._retries or self._waiting:
            request = next(iter(waiting))
            sent = self._pace.try_send(now, request.tokens)
            if not isinstance(sent, Sent):
                if sent != math.inf and not (self._timer and self._timer[0] is request.loop and self._timer[1] <= sent):
                    self._call_at(request.loop, sent, now)
                return
            del waiting[request]
            request.permit = Permit(self, sent)
            if request.loop is running:
                _settle_future(request.future)
            elif not _call_on(request.loop, _settle_future, request.future):
                request.permit = None  # its loop is closed
                self._pace.settle(now, sent, "other")

    def _call_at(self, loop: asyncio.AbstractEventLoop, moment: float, now: float) -> None:
        """Set a timer on the loop of the first request."""
        timer = self._timer = (loop, moment)
        if not _call_on(loop, loop.call_later, moment - now, self._on_timer, timer):
            self._timer = None

    def _on_timer(self, timer: tuple[asyncio.AbstractEventLoop, float]) -> None:
        with self._lock:
            if self._timer is timer:
                self._timer = None
            self._pump(self._clock())

    def limit_requests(self, max_concurrency: int) -> None:
        """Allow at most this many concurrent requests from now on."""
        with self._lock:
            self._pace.limit_requests(min(max_concurrency, _ceiling()))
            self._pump(self._clock())

    def state(self) -> LimiterState:
        with self._lock:
            pace, num_waiting = self._pace, len(self._retries) + len(self._waiting)
            return LimiterState(
                pace.limit,
                pace.ceiling,
                pace.in_flight,
                num_waiting,
                pace.num_refused,
                pace.rate_limit(self._clock()) if num_waiting else "",
            )


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    """Call a function on a loop, at once if it is the running one. Return False if the loop is closed."""
    if asyncio._get_running_loop() is loop:
        function(*args)
        return True
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _settle_future(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def duration(seconds: float) -> str:
    """Format a duration in its largest unit.

    >>> duration(20), duration(300), duration(5400), duration(400_000)
    ('20 s', '5 min', '90 min', '4.6 days')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:.0f} s"


def wait_too_long(name: str, wait_s: float) -> WaitTooLongError:
    """Return the error for a server that asks to wait ``wait_s``."""
    if wait_s <= MAX_WAIT_S:
        return WaitTooLongError(f"{name} accepted no request in {duration(MAX_WAIT_S)}. Run again later.")
    when = (datetime.now() + timedelta(seconds=wait_s)).isoformat(" ", "minutes")
    error = WaitTooLongError(
        f"{name} asks to come back in {duration(wait_s)}, at {when}; the longest wait is {duration(MAX_WAIT_S)}. "
        "Run again then."
    )
    error.retry_after_s = wait_s
    return error


_limiters: dict[tuple[LimiterKey, Caps], Limiter] = {}
_lock = threading.Lock()


def limiter_for(key: LimiterKey, caps: Caps = NO_CAPS) -> Limiter:
    """Return the limiter of a model. The process remembers what it learned for the next query with the same caps."""
    with _lock:
        if (key, caps) not in _limiters:
            start = START if key.base_url.startswith("https:") else OWN_START
            _limiters[key, caps] = Limiter(caps, name=f"{key.provider} ({key.model})", start=start)
        return _limiters[key, caps]


def limiter_states() -> dict[tuple[str, str], LimiterState]:
    """Return the state of each provider's and model's limiters, added up over different caps."""
    with _lock:
        limiters = list(_limiters.items())
    found: dict[tuple[str, str], LimiterState] = {}
    for (key, _), limiter in limiters:
        name, state = (key.provider, key.model), limiter.state()
        found[name] = state if name not in found else found[name].plus(state)
    return found


def limit_requests(provider: str, model: str, max_concurrency: int) -> None:
    """Allow at most this many concurrent requests to a model from now on, until the process ends."""
    with _lock:
        limiters = [each for (key, _), each in _limiters.items() if (key.provider, key.model) == (provider, model)]
    for limiter in limiters:
        limiter.limit_requests(max_concurrency)


def forget_limits() -> None:
    """Forget everything learned about all models."""
    forget_input_limits()
    with _lock:
        _limiters.clear()


def _ceiling() -> int:
    """Return the most concurrent requests: each is an open file, and others need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CEILING
    return max(8, min(CEILING, soft - RESERVED_FILES))

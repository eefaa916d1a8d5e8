"""Retries: repeat an attempt until it succeeds, or until its failure is final."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from penstock.ai.client.addresses import shown
from penstock.ai.client.api_call import Answered, ApiCall, Calls
from penstock.ai.client.crash_search import Turn
from penstock.ai.client.failed_attempts import ConnectionLostError, FailedAttempts
from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.limits.limiter import Rank, Tally, duration, wait_too_long
from penstock.ai.client.limits.pace import MAX_WAIT_S
from penstock.ai.client.server_errors import NeverReachedError
from penstock.ai.provider import FIRST_DELAY_S
from penstock.errors import (
    AnswerTooLargeError,
    FatalError,
    InvalidAnswerError,
    OutageError,
    ProviderError,
    ProviderUnavailableError,
    ProviderUnusableError,
    RateLimitedError,
    UnreachableError,
    WaitTooLongError,
)
from penstock.storage.backoff import retry_delay_s

log = logging.getLogger("penstock.ai")

Answer = TypeVar("Answer")
Attempt = Callable[[Rank], Awaitable[Answer]]
"""Sends a request once."""

MAX_DELAY_S = 30.0
MAX_FIRST_TRIES = 3  # tries at an address that has never answered


class RetriedCalls:
    """Repeats calls of another layer."""

    def __init__(self, calls: Calls, retries: Retries, probe: ApiCall | None = None) -> None:
        """``probe`` is a small call that the server must answer if it works."""
        self._calls, self._retries = calls, retries
        self.close = calls.close
        if probe is not None:
            retries.probe = partial(self._attempt, probe)

    def ask(self, call: ApiCall) -> Coroutine[Any, Any, Answered]:
        return self._retries.repeat(partial(self._attempt, call), tokens=call.tokens)

    def _attempt(self, call: ApiCall, rank: Rank) -> Awaitable[Answered]:
        call.rank = rank
        return self._calls.ask(call)


class Retries:
    """Repeats requests of one client.

    When calls fail and the server answers no others, ``probe`` sends a small request, which shows whether the server
    works. Calls take turns at this, so that one probe serves all. The smallest request that was answered, with
    ``_probe_tokens``, takes its place. Without a probe failures are raised as they are.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.probe: Attempt[Any] | None = None
        self._probe_tokens = math.inf
        self._probe_turn = asyncio.Lock()
        self._outage = ""

    async def repeat(
        self, attempt: Attempt[Answer], is_safe: bool = True, *, tokens: float = math.inf, rank: Rank = "first"
    ) -> Answer:
        """Repeat a request until it succeeds, ``max_retries`` is reached, or its error is final.

        ``attempt`` gets its rank, because the limiter sends retries before other requests. Three failures do not count
        as retries: a rate limit (429), an overloaded server, and a lost connection to a server that answered before.
        The request is repeated for ``MAX_WAIT_S``; then the provider counts as unusable. A request that is not
        ``is_safe`` to send twice is repeated only after a 429. ``tokens`` is its size, if it may be a probe.

        A suspect of a crash waits for its turn. When it is the only suspect, a probe shows whether the server works.
        """
        began, client = 0.0, self._client
        failed: FailedAttempts | None = None
        turn: Turn | None = None  # of a suspect
        client.silence.begin(time.monotonic())
        try:
            while True:
                try:
                    answer = await attempt(rank)
                except AnswerTooLargeError:
                    raise
                except (RateLimitedError, ProviderUnavailableError, InvalidAnswerError) as exc:
                    began = max(began or time.monotonic(), client.gate.opened_at_s)  # a pause does not count
                    if not is_safe and not isinstance(exc, RateLimitedError):
                        raise
                    waited_s = time.monotonic() - began
                    failed = failed or FailedAttempts(client.settings.max_retries)
                    tally = client.tally
                    verdict = failed.add(exc, tally, waited_s)
                    if (unusable := self._unusable(exc, failed.num_counted, waited_s)) is not None:
                        raise unusable from None
                    if verdict == "row" or (verdict == "unsure" and (self.probe is None or rank == "probe")):
                        raise
                    draw = 1.0 if rank == "probe" else random.random()
                    delay_s = delay_before(max(failed.num_counted, 1), exc, draw, client.settings.first_delay_s)
                    if isinstance(exc, ProviderUnavailableError):
                        if verdict == "unsure":
                            await self._confirm_server_works(exc, tally)
                            failed.forgive(exc)
                        if verdict == "unsure" or exc.num_lost > 1:
                            began = delay_s = 0.0
                    client.silence.failed(exc)
                    log.debug("asking %s again in %.1f s: %s", client.model, delay_s, exc)
                else:
                    if tokens < self._probe_tokens:
                        self.probe, self._probe_tokens = attempt, tokens
                    return answer
                rank = "retry" if rank == "first" else rank
                if failed.group_size is not None and rank != "probe":
                    turn = turn or Turn(client.crash_search)
                    await turn.take(failed.group_size)
                    rank = "suspect"
                await asyncio.sleep(delay_s)
        finally:
            if turn is not None:
                turn.end()
            client.silence.end()

    async def _confirm_server_works(self, error: ProviderError, tally: Tally) -> None:
        """End the query if the server has stopped working since ``tally``, when a request failed."""
        assert self.probe is not None
        async with self._probe_turn:
            if not self._outage and not self._client.tally.has_answered_since(tally):
                try:
                    await self.repeat(self.probe, rank="probe")
                except FatalError:
                    raise
                except ProviderError as exc:
                    self._outage = self._outage_after(exc)
        if self._outage:
            raise OutageError(f"{error}\n{self._outage}") from error

    def _outage_after(self, error: ProviderError) -> str:
        """Return the error that says what is known, and what to do, after the probe failed."""
        server = f"The server at {shown(self._client.endpoint.base_url)}"
        if self._probe_tokens == math.inf:
            return (
                f"{server} has answered no call so far, not even a short test ({error}). Check that it works. If it is "
                "still loading, run again when it answers, or give a larger max_retries=."
            )
        return f"{server} fails on every call, even on one that it answered before ({error}). Run again when it works."

    def _unusable(self, exc: ProviderError, num_failures: int, waited_s: float) -> ProviderUnusableError | None:
        """Return the error that ends the query if a failure shows that no other call would succeed, otherwise None."""
        max_tries = min(MAX_FIRST_TRIES, self._client.settings.max_retries + 1)
        if isinstance(exc, NeverReachedError) and num_failures >= max_tries:
            remedy = self._client.endpoint.if_unreachable or "Check base_url=, and the network."
            return UnreachableError(f"{exc}. {remedy}")
        if (wait_s := _retry_after_s(exc)) > MAX_WAIT_S:
            return wait_too_long(f"{exc}\n{self._client.name}", wait_s)
        if waited_s <= MAX_WAIT_S:
            return None
        remedy = f"This has lasted for {duration(waited_s)}. Run again later."
        if isinstance(exc, RateLimitedError) or (isinstance(exc, ProviderUnavailableError) and exc.is_overload):
            return WaitTooLongError(f"{exc}\n{remedy}")
        return UnreachableError(f"{exc}\n{remedy}") if isinstance(exc, ConnectionLostError) else None


def delay_before(attempt: int, error: BaseException, draw: float, first_s: float = FIRST_DELAY_S) -> float:
    """Return the seconds to wait before the ``attempt``-th retry (from 1); ``draw`` is a random number in [0, 1).

    After a 429 the limiter delays all requests by itself.

    >>> delay_before(1, ProviderUnavailableError(), 0.0), delay_before(9, ProviderUnavailableError(), 0.0)
    (0.25, 15.0)
    """
    if isinstance(error, RateLimitedError):
        return 0.0
    return max(retry_delay_s(attempt, draw, first_s, MAX_DELAY_S), _retry_after_s(error))


def _retry_after_s(error: BaseException) -> float:
    return (error.retry_after_s or 0.0) if isinstance(error, RateLimitedError | ProviderUnavailableError) else 0.0

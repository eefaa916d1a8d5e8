"""Decide what follows from the failed attempts of a call, without clock, thread or event loop.

A 5xx, a time-out or a lost connection is the row's failure if the server works, otherwise the server's. The server
works if it has answered a request that was sent after the previous attempt. A lost connection counts only if no other
was lost with it, because another call may have crashed the server.
"""

from __future__ import annotations

from typing import Literal

from penstock.ai.client.limits.limiter import Tally
from penstock.ai.client.limits.pace import MAX_WAIT_S
from penstock.errors import ProviderError, ProviderUnavailableError, RateLimitedError

Verdict = Literal["retry", "row", "unsure"]
"""``row``: the failure is the row's; ``unsure``: it may be the server's, which a probe must show."""

MAX_CHANCE = 0.2  # failures per answer that say nothing about the server's load
PATIENCE_S = 15.0
"""After this time without any answer, a call suspects the server before it has used up its retries, which take about as
long."""

GROUPS = 8
"""The number of groups in which the calls that a crash cut off are repeated, to find its cause."""

MIN_LOST_ALONE = 2
"""A call that lost this many connections while it was alone counts as their cause."""


class ConnectionLostError(ProviderUnavailableError):
    """A server that answered before does not accept connections."""


class FailedAttempts:
    """The failed attempts of one call. The caller passes the limiter's tally and the time since the first failure.

    ``group_size`` is the number of suspects of a crash that the call may be repeated with; None if it is no suspect.
    """

    def __init__(self, max_retries: int) -> None:
        self.num_counted = 0
        self.group_size: int | None = None
        self._num_lost_alone = 0
        self._is_forgiven = False
        self._max_retries = max_retries
        self._first: Tally | None = None
        self._last: Tally | None = None

    def add(self, error: ProviderError, tally: Tally, waited_s: float) -> Verdict:
        """Record a failure and decide."""
        before, self._last = self._last, tally
        first = self._first = self._first or tally
        num_lost = error.num_lost if isinstance(error, ProviderUnavailableError) else 0
        if num_lost:
            self._lose(num_lost)
        is_refusal = (
            isinstance(error, RateLimitedError)
            or ((isinstance(error, ConnectionLostError) or num_lost > 1) and self._max_retries > 0)  # 0: sent once
            or (not self._is_forgiven and is_overload(error, before, tally))
        )
        self.num_counted += not is_refusal
        is_found = num_lost == 1 and self.group_size is not None
        is_over = self.num_counted > self._max_retries or waited_s > MAX_WAIT_S or is_found
        if not isinstance(error, ProviderUnavailableError):
            return "row" if is_over else "retry"
        if not is_over:
            is_silent = not is_refusal and waited_s > PATIENCE_S and tally.num_answered == first.num_answered
            return "unsure" if is_silent else "retry"
        does_work = before is not None and tally.has_answered_since(before)
        is_cause = not num_lost or self._num_lost_alone >= MIN_LOST_ALONE
        return "row" if does_work and is_cause else "unsure"

    def _lose(self, num_lost: int) -> None:
        """Record a lost connection; ``num_lost`` were lost together."""
        self._num_lost_alone = self._num_lost_alone + 1 if num_lost == 1 else 0
        if num_lost > 1 or self.group_size is not None:
            self.group_size = max(num_lost // GROUPS, 1)

    def forgive(self, error: ProviderUnavailableError) -> None:
        """The server works now, so allow at least one more attempt; a call that it refused gets all its retries again.

        From now on each failure counts, because other calls that fail for the same reason are no sign of load.
        """
        is_refusal = error.is_overload and not error.is_time_out
        self.num_counted = 0 if is_refusal and not self._is_forgiven else min(self.num_counted, self._max_retries)
        self._is_forgiven, self._first = True, None


def is_overload(error: ProviderError, before: Tally | None, now: Tally) -> bool:
    """Return whether a call failed because of the server's load, not because of its content or an outage.

    ``before`` and ``now`` are the tallies of the limiter at the call's last failure and at this one. The server works
    if it answered other calls in between, or refuses this one while it has some in flight since then. If it answered
    them and hardly any failed, the call itself is the cause.

    >>> error = ProviderUnavailableError()
    >>> error.is_overload = True
    >>> first = Tally(50, 9, 12, num_sent=71, oldest_in_flight=60)
    >>> is_overload(error, None, first), is_overload(error, first, Tally(50, 30, 12, 92, oldest_in_flight=60))
    (True, True)
    >>> is_overload(error, first, Tally(90, 10, 12)), is_overload(error, first, Tally(50, 30, 12, 92, 90))
    (False, False)
    """
    if not (isinstance(error, ProviderUnavailableError) and error.is_overload):
        return False
    if before is None:
        return now.num_in_flight > 0
    if num_answered := now.num_answered - before.num_answered:
        return now.num_failed - before.num_failed - 1 > MAX_CHANCE * num_answered
    return not error.is_time_out and now.num_in_flight > 0 and now.oldest_in_flight <= before.num_sent

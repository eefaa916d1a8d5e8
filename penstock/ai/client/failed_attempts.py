"""Decide what follows from the failed attempts of a call, without clock, thread or event loop.

A 5xx, a time-out or a lost connection is the failure of the row if the server works, and else that of the server. It
works if it has answered a request that was sent after the attempt before.
"""

from __future__ import annotations

from typing import Literal

from penstock.ai.client.limits.limiter import Tally
from penstock.ai.client.limits.pacing import MAX_WAIT_S
from penstock.errors import ProviderError, ProviderUnavailableError, RateLimitedError

Verdict = Literal["retry", "row", "unsure"]
"""``row``: the failure is the row's; ``unsure``: it may be the server's, which must be found out."""

MAX_CHANCE = 0.2  # failures for an answer that say nothing of the server's load
PATIENCE_S = 15.0
"""The time without any answer after which a call need not use up its retries to suspect the server. The retries of a
call take about as long."""


class ConnectionLostError(ProviderUnavailableError):
    """A server that answered before does not accept connections."""


class FailedAttempts:
    """The failed attempts of one call. The caller passes the limiter's tally and the time since the first failure.

    ``is_alone`` means that no other call that may have brought the server down is sent.
    """

    def __init__(self, max_retries: int) -> None:
        self.num_counted = 0
        self.is_over = self.is_alone = self._is_forgiven = False
        self._max_retries = max_retries
        self._first: Tally | None = None
        self._last: Tally | None = None

    def add(self, error: ProviderError, tally: Tally, waited_s: float) -> Verdict:
        """Record a failure and decide."""
        before, self._last = self._last, tally
        first = self._first = self._first or tally
        is_refusal = (
            isinstance(error, RateLimitedError)
            or (isinstance(error, ConnectionLostError) and self._max_retries > 0)  # 0: nothing is sent again
            or (not self._is_forgiven and is_overload(error, before, tally))
        )
        self.num_counted += not is_refusal
        self.is_over = self.num_counted > self._max_retries or waited_s > MAX_WAIT_S
        if not isinstance(error, ProviderUnavailableError):
            return "row" if self.is_over else "retry"
        if not self.is_over:
            is_silent = not is_refusal and waited_s > PATIENCE_S and tally.num_answered == first.num_answered
            return "unsure" if is_silent else "retry"
        does_work = before is not None and tally.has_answered_since(before)
        return "row" if does_work and (self.is_alone or not error.is_cut_off) else "unsure"

    def forgive(self, error: ProviderUnavailableError) -> None:
        """Allow at least one more attempt, as the server works now: all retries once more for a call that it refused.

        From now on each failure counts, as other calls that fail for the same reason are no sign of load.
        """
        is_refusal = error.is_overload and not error.is_time_out
        self.num_counted = 0 if is_refusal and not self._is_forgiven else min(self.num_counted, self._max_retries)
        self._is_forgiven, self._first = True, None


def is_overload(error: ProviderError, before: Tally | None, now: Tally) -> bool:
    """Return whether a call failed because of the server's load: neither because of what it asks, nor by an outage.

    ``before`` and ``now`` are the tallies of the limiter at the call's last failure and at this one. The server works
    if it answered other calls in between, or refuses this one while it has some in flight since then. If it answered
    them and hardly any failed, it is the call.

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

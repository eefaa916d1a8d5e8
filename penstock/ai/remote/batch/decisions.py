"""What is decided about batches: how much goes into one, when it is sent, when it is asked after, what is sent again.

Pure functions: the clock is passed in, and nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.errors import InvalidAnswerError, ProviderError, ProviderUnavailableError, RateLimitedError

LULL_SHARE = 1 / 30  # of the time between two polls: a second by default
LEAST_LULL_S, MOST_LULL_S = 0.05, 60.0
LULL_FACTOR = 4
MOST_POLL_FACTOR = 10
AGE_SHARE = 0.1  # a batch is asked after when it is so much older than the last time


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a provider takes in one batch."""

    max_requests: int
    max_nbytes: int

    def lowered(self, max_requests: int | None) -> BatchLimits:
        """Return the limits with no more requests than the user wants."""
        return self if max_requests is None else replace(self, max_requests=min(self.max_requests, max_requests))


def num_fitting(sizes: Iterable[int], limits: BatchLimits) -> int:
    """Return how many of the first requests, by their bytes, go into one batch: at least one.

    >>> num_fitting([50, 40, 30], BatchLimits(max_requests=10, max_nbytes=100))
    2
    """
    num, nbytes = 0, 0
    for size in sizes:
        nbytes += size
        if num and (num >= limits.max_requests or nbytes > limits.max_nbytes):
            break
        num += 1
    return num


def is_full(num_requests: int, nbytes: int, limits: BatchLimits) -> bool:
    """Say whether a batch would not grow any more by waiting."""
    return num_requests >= limits.max_requests or nbytes >= limits.max_nbytes


def lull_s(poll_interval_s: float, longest_gap_s: float) -> float:
    """Return for how long no request must come before those that have are sent.

    It grows with the gaps there have been: rows that take seconds each to be made ready must not be sent one by one.

    >>> [round(lull_s(30, gap_s)) for gap_s in (0, 2, 1000)]
    [1, 8, 60]
    """
    return min(max(poll_interval_s * LULL_SHARE, LULL_FACTOR * longest_gap_s, LEAST_LULL_S), MOST_LULL_S)


def next_poll_s(poll_interval_s: float, age_s: float, share_done: float | None) -> float:
    """Return when to ask after a batch again: the later the older it is, sooner if it seems to be nearly done.

    >>> [round(next_poll_s(30, age_s, None)) for age_s in (60, 1200, 36000)]
    [30, 120, 300]
    >>> round(next_poll_s(30, 900, 0.9))  # 100 s are left at this pace
    50
    """
    wait_s = age_s * AGE_SHARE
    if share_done:
        wait_s = min(wait_s, age_s * (1 - share_done) / share_done / 2)
    return min(max(wait_s, poll_interval_s), poll_interval_s * MOST_POLL_FACTOR)


def may_pass(error: ProviderError) -> bool:
    """Say whether a request that failed with an error is worth another batch."""
    return isinstance(error, ProviderUnavailableError | RateLimitedError | InvalidAnswerError)

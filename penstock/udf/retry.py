"""Trying again: exponential back-off with jitter, by exception class."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import QueryCancelledError
from penstock.expr.udf import Policy

log = logging.getLogger("penstock.udf")

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0
CANCEL_CHECK_S = 0.05


def delay_before(attempt: int, draw: float) -> float:
    """Return the seconds to wait before retry number ``attempt`` (from 1); ``draw`` is random in [0, 1).

    >>> delay_before(1, 0.0), delay_before(3, 0.0), delay_before(50, 0.0)
    (0.05, 0.2, 15.0)
    """
    full: float = min(FIRST_DELAY_S * 2 ** (attempt - 1), MAX_DELAY_S)
    return full * (0.5 + draw / 2)


def can_retry(error: BaseException, attempt: int, policy: Policy) -> bool:
    """Say whether a call that failed for the ``attempt``-th time (from 1) is made again."""
    return attempt <= policy.max_retries and isinstance(error, policy.retry_on or (Exception,))


def retrying(
    function: Callable[..., Any], policy: Policy, is_cancelled: Callable[[], bool] = lambda: False
) -> Callable[..., Any]:
    """Return ``function`` with the policy's retries; the function itself where there are none."""
    if not policy.max_retries:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        attempt = 0
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as exc:
                attempt += 1
                if not can_retry(exc, attempt, policy):
                    raise
                log.debug("retry %d of %d after %r", attempt, policy.max_retries, exc)
            _wait(delay_before(attempt, random.random()), is_cancelled)

    return call


def retrying_async(function: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    """Return an async function with the policy's retries."""
    if not policy.max_retries:
        return function
    import asyncio

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        attempt = 0
        while True:
            try:
                return await function(*args, **kwargs)
            except Exception as exc:
                attempt += 1
                if not can_retry(exc, attempt, policy):
                    raise
                log.debug("retry %d of %d after %r", attempt, policy.max_retries, exc)
            await asyncio.sleep(delay_before(attempt, random.random()))

    return call


def _wait(seconds: float, is_cancelled: Callable[[], bool]) -> None:
    """Wait, but not for a query that was stopped."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if is_cancelled():
            raise QueryCancelledError("the query was stopped")
        time.sleep(min(left, CANCEL_CHECK_S))

"""Trying again: exponential back-off with jitter, by exception class."""

from __future__ import annotations

import copy
import functools
import logging
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import QueryCancelledError, RetryAfterError
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
    return attempt <= policy.max_retries and isinstance(error, (RetryAfterError, *(policy.retry_on or (Exception,))))


def delay_after(error: BaseException, attempt: int) -> float:
    """Return the seconds to wait after a call failed for the ``attempt``-th time: what it asks for, or a back-off."""
    return error.seconds if isinstance(error, RetryAfterError) else delay_before(attempt, random.random())


IsFinal = Callable[[BaseException], bool]


def never(error: BaseException) -> bool:
    return False


def retrying(
    function: Callable[..., Any],
    policy: Policy,
    is_cancelled: Callable[[], bool] = lambda: False,
    is_final: IsFinal = never,
) -> Callable[..., Any]:
    """Return ``function`` with the policy's retries and time limit; the function itself where there are none.

    What ``is_final`` says would only happen again is not tried again. A time limit takes the main thread, which is
    where a worker process calls.
    """
    if policy.timeout_s is not None:
        function = timed(function, policy.timeout_s)
    if not policy.max_retries:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        attempt = 0
        while True:
            try:
                return function(*map(pristine, args), **{name: pristine(value) for name, value in kwargs.items()})
            except Exception as exc:
                attempt += 1
                if is_final(exc) or not can_retry(exc, attempt, policy):
                    raise
                log.debug("retry %d of %d after %r", attempt, policy.max_retries, exc)
                delay_s = delay_after(exc, attempt)
            _wait(delay_s, is_cancelled)

    return call


def retrying_async(function: Callable[..., Any], policy: Policy, is_final: IsFinal = never) -> Callable[..., Any]:
    """Return an async function with the policy's retries and time limit."""
    if policy.timeout_s is not None:
        function = timed_async(function, policy.timeout_s)
    if not policy.max_retries:
        return function
    import asyncio

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        attempt = 0
        while True:
            try:
                return await function(*map(pristine, args), **{name: pristine(value) for name, value in kwargs.items()})
            except Exception as exc:
                attempt += 1
                if is_final(exc) or not can_retry(exc, attempt, policy):
                    raise
                log.debug("retry %d of %d after %r", attempt, policy.max_retries, exc)
                delay_s = delay_after(exc, attempt)
            await asyncio.sleep(delay_s)

    return call


def pristine(value: Any) -> Any:
    """Return a value for one attempt, which may change what it is given: the next one must find it as it was.

    >>> row = {"x": [1]}
    >>> pristine(row)["x"].append(2)
    >>> row
    {'x': [1]}
    """
    if isinstance(value, dict):
        return {name: pristine(each) for name, each in value.items()}
    if isinstance(value, list):
        return [pristine(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.copy() if value.flags.writeable else value
    if type(value).__module__.partition(".")[0] in ("pandas", "torch") and hasattr(value, "__deepcopy__"):
        return copy.deepcopy(value)
    return value


def timed(function: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
    """Return a function that raises TimeoutError in the middle of a call that takes too long; for the main thread.

    A signal interrupts Python code and whatever waits for the system, but not a long computation in C.
    """

    def expire(*_: Any) -> None:
        raise _late(timeout_s)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = signal.signal(signal.SIGALRM, expire)
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return call


def timed_async(function: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
    """Return an async function that raises TimeoutError where a call takes too long."""
    import asyncio

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await function(*args, **kwargs)
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise _late(timeout_s) from exc

    return call


def _late(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"no result within {timeout_s:g} s, which is the function's timeout")


def _wait(seconds: float, is_cancelled: Callable[[], bool]) -> None:
    """Wait, but not for a query that was stopped."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if is_cancelled():
            raise QueryCancelledError("the query was stopped")
        time.sleep(min(left, CANCEL_CHECK_S))

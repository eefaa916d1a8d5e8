"""Retries with exponential back-off and jitter, and time limits of calls."""

from __future__ import annotations

import copy
import itertools
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from penstock.contracts import check_not_cancelled
from penstock.errors import FatalError, RetryAfterError
from penstock.events.metrics import increment_counter
from penstock.expr.udf import Policy
from penstock.storage.backoff import retry_delay_s

log = logging.getLogger("penstock.udf")

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0
CANCEL_CHECK_S = 0.05

IsCancelled = Callable[[], bool]
IsFinal = Callable[[BaseException], bool]


def never(error: BaseException) -> bool:
    return False


def with_policy(
    function: Callable[..., Any], policy: Policy, is_cancelled: IsCancelled, is_final: IsFinal = never
) -> Callable[..., Any]:
    """Return ``function`` with the retries and the time limit of the policy, unchanged if it has none.

    An error for which ``is_final`` holds is not retried, as it would occur again. A time limit works only in the main
    thread, which is where a worker process calls functions.
    """
    counter = _retry_counter(function)
    if policy.timeout_s is not None:
        function = _timed(function, policy.timeout_s)
    if not policy.max_retries:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        for attempt in itertools.count(1):
            try:
                return function(*map(fresh, args), **{name: fresh(value) for name, value in kwargs.items()})
            except Exception as exc:
                delay_s = _delay_after(attempt, exc, policy, is_final, counter)
            _sleep(delay_s, is_cancelled)

    return call


def with_policy_async(
    function: Callable[..., Any], policy: Policy, is_final: IsFinal, rest: Callable[[float], Awaitable[None]]
) -> Callable[..., Any]:
    """Return an async function with the retries and the time limit of the policy. ``rest`` sleeps between attempts."""
    counter = _retry_counter(function)
    if policy.timeout_s is not None:
        function = _timed_async(function, policy.timeout_s)
    if not policy.max_retries:
        return function

    async def call(*args: Any, **kwargs: Any) -> Any:
        for attempt in itertools.count(1):
            try:
                return await function(*map(fresh, args), **{name: fresh(value) for name, value in kwargs.items()})
            except Exception as exc:
                delay_s = _delay_after(attempt, exc, policy, is_final, counter)
            await rest(delay_s)

    return call


def _delay_after(attempt: int, exc: Exception, policy: Policy, is_final: IsFinal, counter: str) -> float:
    """Return the seconds to wait after a failed attempt, or raise its error if it was the last one."""
    is_retried = isinstance(exc, (RetryAfterError, *(policy.retry_on or (Exception,))))
    if isinstance(exc, FatalError) or is_final(exc) or not is_retried or attempt > policy.max_retries:
        raise exc
    log.debug("retry %d of %d after %r", attempt, policy.max_retries, exc)
    increment_counter(counter)
    if isinstance(exc, RetryAfterError):
        return exc.seconds
    return retry_delay_s(attempt, random.random(), FIRST_DELAY_S, MAX_DELAY_S)


def _retry_counter(function: Callable[..., Any]) -> str:
    return f"retries of {getattr(function, '__name__', type(function).__name__)}"


def fresh(value: Any) -> Any:
    """Return a copy of a mutable argument, so that a failed attempt does not change the arguments of the next one.

    >>> row = {"x": [1]}
    >>> fresh(row)["x"].append(2)
    >>> row
    {'x': [1]}
    """
    if isinstance(value, dict):
        return {name: fresh(each) for name, each in value.items()}
    if isinstance(value, list):
        return [fresh(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.copy() if value.flags.writeable else value
    if type(value).__module__.partition(".")[0] in ("pandas", "torch") and hasattr(value, "__deepcopy__"):
        return copy.deepcopy(value)
    return value


def _timed(function: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
    """Return a function that raises TimeoutError during a call that takes too long. Works in the main thread only.

    A signal interrupts Python code and system calls, but not a long computation in C.
    """

    def expire(*_: Any) -> None:
        raise _timeout_error(timeout_s)

    def call(*args: Any, **kwargs: Any) -> Any:
        before = signal.signal(signal.SIGALRM, expire)
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return call


def _timed_async(function: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
    import asyncio

    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await function(*args, **kwargs)
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise _timeout_error(timeout_s) from exc

    return call


def _timeout_error(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"no result within {timeout_s:g} s, which is the function's timeout")


def _sleep(seconds: float, is_cancelled: IsCancelled) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check_not_cancelled(is_cancelled)
        time.sleep(min(left, CANCEL_CHECK_S))


_call_is_cancelled: ContextVar[IsCancelled] = ContextVar("penstock_call_is_cancelled", default=lambda: False)


@contextmanager
def cancellable(is_cancelled: IsCancelled) -> Iterator[None]:
    """Let ``check_call_not_cancelled`` ask ``is_cancelled`` within the context, on this thread."""
    token = _call_is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _call_is_cancelled.reset(token)


def check_call_not_cancelled() -> None:
    """Raise QueryCancelledError in a call of a batch function whose query was stopped. For calls that take minutes."""
    check_not_cancelled(_call_is_cancelled.get())

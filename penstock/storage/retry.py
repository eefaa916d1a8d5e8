"""Retry requests that a server does not answer or refuses for the moment."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import StoreUnavailableError

log = logging.getLogger("penstock.storage")

MAX_RETRIES = 4
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0

Result = TypeVar("Result")


def delay_s(attempt: int, draw: float) -> float:
    """Return the seconds before retry number ``attempt`` (from 1); ``draw`` is random in [0, 1).

    >>> delay_s(1, 0.0), delay_s(3, 0.0), delay_s(99, 0.0)
    (0.05, 0.2, 5.0)
    """
    full: float = min(FIRST_DELAY_S * 2 ** (attempt - 1), MAX_DELAY_S)
    return full * (0.5 + draw / 2)


async def with_retries(call: Callable[[], Awaitable[Result]], max_retries: int = MAX_RETRIES) -> Result:
    """Return the result of ``call``; retry after StoreUnavailableError, with growing delays or the server's own."""
    attempt = 0
    while True:
        try:
            return await call()
        except StoreUnavailableError as exc:
            attempt += 1
            if attempt > max_retries:
                raise
            asked = exc.retry_after_s
            wait_s = delay_s(attempt, random.random()) if asked is None else min(asked, MAX_DELAY_S)
            log.debug("retry %d of %d in %.1f s: %s", attempt, max_retries, wait_s, exc)
        await asyncio.sleep(wait_s)

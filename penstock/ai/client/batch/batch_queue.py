"""Calls that wait to be submitted in a batch, and batches that are polled until they have ended."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.client.api_call import ApiCall
from penstock.ai.client.batch.batch_service import (
    BatchCapacity,
    BatchClient,
    BatchRequest,
    BatchService,
    BatchState,
    Intent,
)
from penstock.cache.keys import KEY_NBYTES
from penstock.errors import (
    InvalidAnswerError,
    ProviderError,
    ProviderUnavailableError,
    RateLimitedError,
    RequestRefusedError,
    UnreachableError,
    WaitTooLongError,
)

log = logging.getLogger("penstock.ai")

NBYTES_AROUND = 256  # bytes of a request besides its body: ids, addresses, brackets
QUIET_SHARE = 1 / 30  # quiet time, as a share of the poll interval: a second by default
MIN_QUIET_S, MAX_QUIET_S = 0.05, 60.0
QUIET_FACTOR = 4
MAX_POLL_FACTOR = 10
AGE_SHARE = 0.1  # the interval between polls, as a share of the age of the batch
POLL_PATIENCE_S = 3600.0
"""Maximum time for which the provider may be unreachable while a batch runs, after the retries of a single request."""
NUM_NOT_FOUND = 3
"""Number of 404s after which a batch counts as unknown. A new batch may not be visible everywhere yet."""


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A call that waits for its answer."""

    key: bytes
    api_call: ApiCall
    body: bytes
    future: asyncio.Future[Any]
    next_attempt: int = 0
    num_failures: int = 0
    num_answers_before: int = 0  # the number of answers to other calls when this call was made

    @property
    def nbytes(self) -> int:
        return len(self.body) + NBYTES_AROUND

    def answer(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # the caller may be gone: no warning that the error was never retrieved


class BatchQueue:
    """Calls that wait to be submitted. Pure: the time is passed in, in seconds of any clock.

    A batch is due when it is full, or when no call has arrived for a while (``quiet_s``).
    """

    def __init__(self, capacity: BatchCapacity, poll_interval_s: float) -> None:
        self._capacity = capacity
        self._poll_interval_s = poll_interval_s
        self._calls: list[WaitingCall] = []
        self._nbytes = 0
        self._last_arrival: float | None = None
        self._longest_gap_s = 0.0
        self._held_until = -math.inf
        self._is_urgent = False

    def note_arrival(self, now: float) -> None:
        """Record that a call has arrived."""
        if self._last_arrival is not None:
            self._longest_gap_s = max(self._longest_gap_s, now - self._last_arrival)
        self._last_arrival = now

    def note_end(self, now: float) -> None:
        """Record that a batch has ended: its answers may lead to other calls, and the provider has room again."""
        self._last_arrival = now
        self._held_until = -math.inf

    def submit_soon(self) -> None:
        """Do not wait for further calls: they wait for the end of a batch."""
        self._is_urgent = True

    def add(self, calls: Iterable[WaitingCall]) -> None:
        for call in calls:
            self._calls.append(call)
            self._nbytes += call.nbytes

    def wait_s(self, now: float) -> float:
        """Return the time until the next batch is due, 0 or less if it is due."""
        if not self._calls:
            return math.inf
        held_s = self._held_until - now
        if len(self._calls) >= self._capacity.max_requests or self._nbytes >= self._capacity.max_nbytes:
            return held_s
        elapsed_s = math.inf if self._last_arrival is None else now - self._last_arrival
        wanted_s = MIN_QUIET_S if self._is_urgent else quiet_s(self._poll_interval_s, self._longest_gap_s)
        return max(held_s, wanted_s - elapsed_s)

    def take(self) -> list[WaitingCall]:
        """Remove and return the calls of the next batch. Calls that were cancelled are dropped."""
        self._is_urgent = False
        wanted = [call for call in self._calls if not call.future.done()]
        num = num_fitting((call.nbytes for call in wanted), self._capacity)
        self._calls = wanted[num:]
        self._nbytes = sum(call.nbytes for call in self._calls)
        return wanted[:num]

    def shrink(self, num_requests: int) -> None:
        """Limit batches to half the size of a batch that was too large."""
        self._capacity = self._capacity.lowered(max(1, num_requests // 2))

    def hold_back(self, now: float, has_others: bool) -> None:
        """Submit nothing until a batch ends, or for a while if none runs, because the account has reached its limit."""
        self._held_until = now + self._poll_interval_s * (MAX_POLL_FACTOR if has_others else 1)


def num_fitting(sizes: Iterable[int], capacity: BatchCapacity) -> int:
    """Return the number of requests, given their bytes, that fit into one batch: at least one.

    >>> num_fitting([50, 40, 30], BatchCapacity(max_requests=10, max_nbytes=100))
    2
    """
    num, nbytes = 0, 0
    for size in sizes:
        nbytes += size
        if num and (num >= capacity.max_requests or nbytes > capacity.max_nbytes):
            break
        num += 1
    return num


def quiet_s(poll_interval_s: float, longest_gap_s: float) -> float:
    """Return the time without arrivals after which a batch is submitted.

    It grows with the gaps between arrivals: rows that take seconds to prepare must not be submitted one by one.

    >>> [round(quiet_s(30, gap_s)) for gap_s in (0, 2, 1000)]
    [1, 8, 60]
    """
    return min(max(poll_interval_s * QUIET_SHARE, QUIET_FACTOR * longest_gap_s, MIN_QUIET_S), MAX_QUIET_S)


# --- submitted batches ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class SubmittedBatch:
    """A batch at the provider. ``calls`` are the calls of this process that wait for it.

    A batch of an earlier run may hold calls that this process has not made yet.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: dict[bytes, WaitingCall] = field(default_factory=dict)
    keys: frozenset[bytes] = frozenset()  # keys of all its calls, if this process submitted it
    ids: list[str] = field(default_factory=list)  # candidates for the provider's id
    is_named: bool = False  # the id is certain
    began: float = field(default_factory=time.monotonic)
    errors: dict[bytes, ProviderError] = field(default_factory=dict)
    answered: set[bytes] = field(default_factory=set)

    @staticmethod
    def of(calls: Iterable[WaitingCall]) -> SubmittedBatch:
        by_key = {call.key: call for call in calls}
        return SubmittedBatch(calls=by_key, keys=frozenset(by_key))

    @property
    def is_own(self) -> bool:
        """True if this process submitted the batch."""
        return bool(self.keys)

    @property
    def intent(self) -> Intent:
        return Intent(len(self.keys), time.time())

    def requests(self) -> list[BatchRequest]:
        return [BatchRequest(self.custom_id(call.key), call.api_call.path, call.body) for call in self.calls.values()]

    def custom_id(self, key: bytes) -> str:
        """Return the id of a request at the provider: 49 of at most 64 characters."""
        return f"{self.token}_{key.hex()}"

    def key_of(self, custom_id: str) -> bytes | None:
        """Return the key of the call with this id; None if the id does not belong to this batch."""
        try:
            key = bytes.fromhex(custom_id.partition("_")[2])
        except ValueError:
            return None
        is_one = key in self.keys if self.is_own else len(key) == KEY_NBYTES
        return key if is_one and custom_id == self.custom_id(key) else None


async def ended_state(
    service: BatchService, client: BatchClient, batch: SubmittedBatch, batch_id: str, poll_interval_s: float
) -> BatchState | None:
    """Poll a batch until it has ended and return its state; None if the provider does not know it."""
    wait_s = poll_interval_s if batch.is_own else 0.0  # a batch of an earlier run may have ended long ago
    num_not_found, last_heard = 0, time.monotonic()
    while True:
        await asyncio.sleep(wait_s)
        try:
            state = await service.state(client, batch_id)
        except RequestRefusedError as exc:
            num_not_found += 1
            if exc.status != 404:
                raise
            if num_not_found >= NUM_NOT_FOUND:
                return None
        except ProviderError as exc:
            # An address that answered before may be reached again.
            may_pass = is_transient(exc) or (batch.is_own and isinstance(exc, UnreachableError | WaitTooLongError))
            if not may_pass or time.monotonic() - last_heard > POLL_PATIENCE_S:
                raise
            log.info("batch %s cannot be polled now; trying again later: %s", batch_id, exc)
        else:
            if state.is_ended:
                return state
            num_not_found, last_heard = 0, time.monotonic()
        wait_s = next_poll_s(poll_interval_s, time.monotonic() - batch.began)


def next_poll_s(poll_interval_s: float, age_s: float) -> float:
    """Return the time until the next poll: longer for older batches.

    >>> [round(next_poll_s(30, age_s)) for age_s in (60, 1200, 36000)]
    [30, 120, 300]
    """
    return min(max(age_s * AGE_SHARE, poll_interval_s), poll_interval_s * MAX_POLL_FACTOR)


def is_transient(error: ProviderError) -> bool:
    """Return whether a request that failed with this error may succeed in another batch."""
    return isinstance(error, ProviderUnavailableError | RateLimitedError | InvalidAnswerError)

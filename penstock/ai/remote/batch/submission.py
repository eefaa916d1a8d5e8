"""A submitted batch, and polling until it has ended."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.ai.remote.batch.client import BatchClient
from penstock.ai.remote.batch.queue import MAX_POLL_FACTOR, WaitingCall
from penstock.ai.remote.batch.service import BatchRequest, BatchService, BatchState, Intent
from penstock.errors import (
    InvalidAnswerError,
    ProviderError,
    ProviderUnavailableError,
    RateLimitedError,
    RequestRefusedError,
)

log = logging.getLogger("penstock.ai")

AGE_SHARE = 0.1  # of its age: the interval at which a batch is polled
POLL_PATIENCE_S = 3600.0
"""Maximum time for which the provider may be unreachable while a batch runs, after the retries of a single request."""
NUM_NOT_FOUND = 3
"""Number of 404s after which a batch counts as unknown. A new batch may not be visible everywhere yet."""


@dataclass(slots=True, eq=False)
class SubmittedBatch:
    """A batch at the provider. ``calls`` are the calls of this process that wait for it.

    A batch of an earlier run may hold calls that this process has not made yet.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: dict[bytes, WaitingCall] = field(default_factory=dict)
    order: tuple[bytes, ...] = ()  # keys as they were submitted, if this process did that
    ids: list[str] = field(default_factory=list)  # candidates for the provider's id
    is_named: bool = False  # the id is certain
    began: float = field(default_factory=time.monotonic)
    errors: dict[bytes, ProviderError] = field(default_factory=dict)
    num_answers: int = 0

    @staticmethod
    def of(calls: Iterable[WaitingCall]) -> SubmittedBatch:
        by_key = {call.key: call for call in calls}
        return SubmittedBatch(calls=by_key, order=tuple(by_key))

    @property
    def is_own(self) -> bool:
        """True if this process submitted the batch."""
        return bool(self.order)

    @property
    def intent(self) -> Intent:
        return Intent(len(self.order), time.time())

    def requests(self) -> list[BatchRequest]:
        return [BatchRequest(self.custom_id(call.key), call.path, call.body) for call in self.calls.values()]

    def custom_id(self, key: bytes) -> str:
        """Return the id of a request at the provider: 49 of at most 64 characters."""
        return f"{self.token}_{key.hex()}"

    def key_of(self, custom_id: str) -> bytes | None:
        """Return the key of the call with this id, None if it belongs to another batch."""
        token, _, key = custom_id.partition("_")
        try:
            return bytes.fromhex(key) if token == self.token else None
        except ValueError:
            return None


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
            if not is_transient(exc) or time.monotonic() - last_heard > POLL_PATIENCE_S:
                raise
            log.info("batch %s cannot be polled now, and is polled again later: %s", batch_id, exc)
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
    """Say whether a request that failed with this error may succeed in another batch."""
    return isinstance(error, ProviderUnavailableError | RateLimitedError | InvalidAnswerError)

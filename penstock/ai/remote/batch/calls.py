"""Calls that wait for a batch, and the batches they are in."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.remote.batch.service import BatchRequest, BatchState, Intent
from penstock.errors import ProviderError, RequestRefusedError

NBYTES_AROUND = 256  # what a request has besides its body: ids, addresses, brackets


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A call, known by ``key``; its ``future`` is given the answer, or why there is none."""

    key: bytes
    path: str
    body: bytes
    future: asyncio.Future[Any]
    next_attempt: int = 0
    num_failures: int = 0

    @property
    def nbytes(self) -> int:
        return len(self.body) + NBYTES_AROUND

    def answer(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # whoever waited may be gone, which is no reason for a warning


@dataclass(slots=True, eq=False)
class Batch:
    """A batch that is followed. ``calls`` are those of this process that wait for it.

    One that was taken up from an earlier run may hold calls that nobody here has made yet.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: dict[bytes, WaitingCall] = field(default_factory=dict)
    order: tuple[bytes, ...] = ()  # of the requests as they were submitted, if this process did
    ids: list[str] = field(default_factory=list)  # that the provider gave it; several where it is not sure which
    is_named: bool = False  # whether it is sure
    began: float = field(default_factory=time.monotonic)
    errors: dict[bytes, ProviderError] = field(default_factory=dict)
    num_answers: int = 0

    @staticmethod
    def of(calls: Iterable[WaitingCall]) -> Batch:
        by_key = {call.key: call for call in calls}
        return Batch(calls=by_key, order=tuple(by_key))

    @property
    def is_own(self) -> bool:
        return bool(self.order)

    @property
    def intent(self) -> Intent:
        return Intent(len(self.order), time.time())

    def requests(self) -> list[BatchRequest]:
        return [BatchRequest(self.custom_id(call.key), call.path, call.body) for call in self.calls.values()]

    def custom_id(self, key: bytes) -> str:
        """Return what a call is known by at the provider: 49 letters, of the 64 that are allowed."""
        return f"{self.token}_{key.hex()}"

    def key_of(self, custom_id: str) -> bytes | None:
        """Return the call that a result is for, None if it is none of this batch."""
        token, _, key = custom_id.partition("_")
        try:
            return bytes.fromhex(key) if token == self.token else None
        except ValueError:
            return None

    def refused(self, state: BatchState) -> dict[bytes, ProviderError]:
        """Return the calls for whose sake the provider would not work on the batch, and why."""
        return {
            self.order[line]: RequestRefusedError(f"batch {state.id} was refused for this request: {told}")
            for line, told in state.lines.items()
            if line < len(self.order)
        }

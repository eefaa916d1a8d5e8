"""The cache: look up answers of finished calls in a memo, and store new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.ai.client.api_call import Answered, ApiCall, Calls
from penstock.ai.conversation import Generation
from penstock.cache.memo import Memo
from penstock.cache.shared_calls import SharedCalls
from penstock.cost.budget import Billing
from penstock.cost.usage import Usage

Found = list[Generation] | bytes | Exception
"""The result of looking up a request: its cached answers, its key if it is not cached, or an error in reading them."""


class CachedCalls:
    """Keeps answers in a memo. Makes concurrent calls with equal keys once. Used on one event loop.

    Without ``stores``, the calls store their own answers, and other processes do not wait for them.
    """

    def __init__(self, calls: Calls, memo: Memo, billing: Billing | None, *, stores: bool) -> None:
        self._calls, self._memo, self._billing, self._stores = calls, memo, billing, stores
        self._shared = SharedCalls.open(memo.get_encoded) if stores else None
        self._is_sample = billing is not None and billing.is_sample

    async def ask(self, call: ApiCall) -> Answered:
        """Return the cached answers to a call, or make it. ``call.key`` must be set."""
        key = call.key
        assert key is not None
        if call.is_looked_up and call.is_random:  # no other call of this query has this key
            return await self._make(call, key)
        latency_s = None

        async def compute() -> list[Generation]:
            nonlocal latency_s
            made, latency_s = await self._make(call, key)
            answers: list[Generation] = made
            return answers

        answers, is_new = await self._memo.share(key, compute, stores=False)
        if not is_new:
            self._count_cached(answers)
            answers = [replace(answer) for answer in answers]  # each row sets its latency
        return Answered(answers, latency_s)

    async def _make(self, call: ApiCall, key: bytes) -> Answered:
        """Make a call and store its answers. If another process is making it, wait for its answers."""
        is_stored = False
        try:
            stored = None if self._shared is None else await self._shared.begin(key)
            if stored is not None:
                answers: list[Generation] = self._memo.codec.decode(stored)
                self._count_cached(answers)
                return Answered(answers, None)
            answered = await self._calls.ask(call)
            if self._stores:
                self._memo.put_soon(key, timed(answered))
                is_stored = True
            return answered
        finally:
            if self._shared is not None:
                self._shared.end(key, is_stored=is_stored)

    async def close(self) -> None:
        await self._calls.close()
        await asyncio.to_thread(self._memo.close)
        if self._shared is not None:
            await self._shared.close()

    def look_up(self, keys: list[bytes]) -> Iterator[Found]:
        """Yield the cached answers of each key, or the key. Answers are decoded when they are drawn."""
        stored = self._memo.get_encoded(keys)
        if not stored:
            return iter(keys)
        if self._billing is not None:
            self._billing.count_cached(sum(key in stored for key in keys))
        return self._decoded(keys, stored)

    def _decoded(self, keys: list[bytes], stored: Mapping[bytes, bytes]) -> Iterator[Found]:
        get, decode, is_sample = stored.get, self._memo.codec.decode, self._is_sample
        for key in keys:
            if (raw := get(key)) is None:
                yield key
                continue
            try:
                answers = decode(raw)
            except Exception as exc:
                yield exc
                continue
            if is_sample:
                self._record(answers)
            yield answers

    def _count_cached(self, answers: Sequence[Generation]) -> None:
        if self._billing is not None:
            self._billing.count_cached()
            self._record(answers)

    def _record(self, answers: Sequence[Generation]) -> None:
        """Record cached answers of a sample as a call, with its original usage."""
        if self._billing is not None and self._is_sample:
            self._billing.record(answers[0].usage or Usage(0, 0))


def timed(answered: Answered) -> list[Generation]:
    """Return answers with their latency."""
    answers: list[Generation] = answered.value
    for answer in answers:
        answer.latency_s = answered.latency_s
    return answers

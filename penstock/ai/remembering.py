"""Calls that were made before: taken from the ledger, so that nothing is paid for twice.

What is kept is the answer as the server gave it, by a key of all that determines it. The form that an answer must have
is not part of the key: another parser, or another model of pydantic, reads the answers that are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from penstock.ai.provider import NDArray
from penstock.ledger.keys import key_of
from penstock.protocols import Ledger


def configured_ledger(cache: bool | None) -> Ledger | None:
    """Return the ledger that calls are kept in, None where they are not: ``cache`` is the user's word."""
    if cache is False:
        return None
    from penstock.ledger.sharing import current_ledger

    return current_ledger()


class CallMemory:
    """The calls of one model. Used on one event loop."""

    def __init__(self, ledger: Ledger, provider: str, base_url: str) -> None:
        self._ledger = ledger
        self._server = {"provider": provider, "base_url": base_url}
        self._num_seen: dict[bytes, int] = {}
        self._under_way: dict[bytes, asyncio.Future[bytes]] = {}
        self.get, self.put = ledger.get, ledger.put

    async def answer(self, path: str, body: Mapping[str, Any], ask: Callable[[bytes], Awaitable[bytes]]) -> bytes:
        """Return the answer to a call: the one that is kept, or what ``ask(key)`` gives, which is kept then.

        Equal calls whose answer is drawn by chance are as many calls: the second of a run is kept beside the first. Of
        those that always give the same, one is made.
        """
        key = key_of({**self._server, "path": path, "body": body, "sample": self._sample(path, body)})
        if (known := self._ledger.get([key]).get(key)) is not None:
            return known
        while (under_way := self._under_way.get(key)) is not None:
            if (shared := await _shared(under_way)) is not None:
                return shared
        future = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            raw = await ask(key)
            self._ledger.put(key, raw)
            future.set_result(raw)
            return raw
        finally:
            del self._under_way[key]
            if not future.done():
                future.cancel()  # of those who waited, the first makes the call

    def close(self) -> None:
        self._ledger.close()

    def _sample(self, path: str, body: Mapping[str, Any]) -> int:
        """Return the how-many-th of equal calls this is, 0 for all of them where chance has no part in it."""
        if is_deterministic(body):
            return 0
        seen = key_of({"path": path, "body": body})
        number = self._num_seen.get(seen, 0)
        self._num_seen[seen] = number + 1
        return number


async def _shared(under_way: asyncio.Future[bytes]) -> bytes | None:
    """Return what another call gives, None if it failed."""
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        if under_way.cancelled():
            return None
        raise


def is_deterministic(body: Mapping[str, Any]) -> bool:
    """Whether a call asks for the likeliest answer.

    >>> is_deterministic({"temperature": 0}), is_deterministic({"temperature": 0.7}), is_deterministic({})
    (True, False, False)
    """
    temperature = body.get("temperature", (body.get("generationConfig") or {}).get("temperature"))
    return temperature is not None and temperature == 0


class VectorMemory:
    """The vectors of one embedding model, by text."""

    def __init__(self, ledger: Ledger, **identity: Any) -> None:
        self._ledger = ledger
        self._prefix = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS) + b"\0"

    def key(self, text: str) -> bytes:
        return key_of(self._prefix + text.encode("utf-8", "surrogatepass"))

    def get(self, keys: Sequence[bytes]) -> dict[bytes, NDArray]:
        found = self._ledger.get(keys)
        return {key: np.frombuffer(value, np.float32) for key, value in found.items()}

    def put(self, key: bytes, vector: NDArray) -> None:
        self._ledger.put(key, np.ascontiguousarray(vector, np.float32).tobytes())

    def close(self) -> None:
        self._ledger.close()

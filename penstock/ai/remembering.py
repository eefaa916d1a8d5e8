"""Calls that were made before: taken from the ledger, so that nothing is paid for twice.

What is kept is the answer as the server gave it, by a key of all that determines it. The form that an answer must have
is not part of the key: another parser, or another model of pydantic, reads the answers that are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from penstock.ai.conversation import Generation
from penstock.ai.provider import NDArray
from penstock.ai.samples import RowIds, SharedSamples, asking_row
from penstock.cache.keys import canonical, key_of, keys_between
from penstock.protocols import Ledger

Found = list[Generation] | bytes | Exception
"""What is known of a request: the answers that are kept, the key of one without, or why they cannot be read."""


def configured_ledger(cache: bool | None) -> Ledger | None:
    """Return the ledger that calls are kept in, None where they are not: ``cache`` is the user's word."""
    if cache is False:
        return None
    from penstock.cache.ledger.open_ledgers import current_ledger

    return current_ledger()


class CallMemory:
    """The calls of one model. Used on one event loop."""

    def __init__(self, ledger: Ledger, provider: str, base_url: str) -> None:
        self._ledger = ledger
        self._server = canonical({"provider": provider, "base_url": base_url})
        self._held = SharedSamples()
        self._samples = self._held.samples
        self._under_way: dict[bytes, asyncio.Future[bytes]] = {}
        self._made: set[bytes] = set()  # by this one, of calls that are made once

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the answers that are kept."""
        if found := self._ledger.get(keys):
            self._samples.confirm()
        return found

    def put(self, key: bytes, raw: bytes) -> None:
        """Keep an answer."""
        self._samples.confirm()
        self._ledger.put(key, raw)

    def key(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Return the key of a call, which is the next of equal ones where its answer is drawn by chance.

        Equal calls whose answer is drawn by chance are as many calls: the second of a run is kept beside the first. Of
        those that always give the same, one is made.
        """
        key = self.base_key(path, body)
        return key if is_deterministic(body) else self._samples.keys([key], [asking_row.get()])[0]

    def base_key(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Return the key that equal calls share."""
        return key_of(self.before(path) + canonical(body))

    def before(self, path: str) -> bytes:
        """Return what stands before the body of a call in what is hashed."""
        return b"\0".join((self._server, path.encode(), b""))

    def samples(self, keys: Sequence[bytes], rows: RowIds) -> list[bytes]:
        """Return the key of the next of the calls that have the same one, for each; ``rows`` make them."""
        return self._samples.keys(keys, rows)

    def is_own(self, key: bytes) -> bool:
        """Whether nobody else makes the call that has this key, as it is the first of samples."""
        return key in self._samples

    async def answer(self, key: bytes, ask: Callable[[bytes], Awaitable[bytes]], is_missing: bool = False) -> bytes:
        """Return the answer to a call: the one that is kept, or what ``ask(key)`` gives, which is kept then.

        ``is_missing`` says that there was none when somebody last looked.
        """
        if not is_missing or key in self._made:
            known = self.get([key]).get(key)
            if known is not None:
                return known
        while (under_way := self._under_way.get(key)) is not None:
            if (shared := await _shared(under_way)) is not None:
                return shared
        future = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            raw = await ask(key)
            self.put(key, raw)
            self._made.add(key)
            future.set_result(raw)
            return raw
        finally:
            del self._under_way[key]
            if not future.done():
                future.cancel()  # of those who waited, the first makes the call

    def close(self) -> None:
        try:
            self._held.close()
        finally:
            self._ledger.close()


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


SAMPLE_TEXTS = ("0f8e3c6b5d7a41929e", "a text of another length: 7b1d2c")


@dataclass(frozen=True, slots=True)
class TextKeys:
    """The keys of calls that differ in one text: the JSON of it stands between what is the same for all."""

    head: bytes
    tail: bytes
    is_certain: bool  # chance has no part in the answers

    @staticmethod
    def of(memory: CallMemory, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> TextKeys | None:
        """Learn from the path and body of the calls of SAMPLE_TEXTS; None where they differ in more than the text."""
        found = set()
        for text, (path, body) in zip(SAMPLE_TEXTS, calls, strict=True):
            parts = canonical(body).split(canonical(text))
            if len(parts) != 2:
                return None
            found.add(TextKeys(memory.before(path) + parts[0], parts[1], is_deterministic(body)))
        return found.pop() if len(found) == 1 else None

    def keys(self, texts: Sequence[str], memory: CallMemory, rows: RowIds) -> list[bytes]:
        """Return the key of the call of each text, as ``CallMemory.key`` gives it."""
        keys = keys_between(self.head, map(orjson.dumps, texts), self.tail)
        return keys if self.is_certain else memory.samples(keys, rows)


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

"""Look up cached answers by their keys: a hash of the server and of the call without its return format.

So another parser, or another pydantic model, reads the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from penstock.ai.client.api_call import ApiCall
from penstock.ai.client.cached_calls import CachedCalls, Found
from penstock.ai.conversation import Request, Text, UserTurn
from penstock.ai.providers.wire import PromptWire
from penstock.cache.keys import canonical, key_of, keys_between
from penstock.cache.memo import Memo
from penstock.cache.ordinals import RowIds

SAMPLE_TEXTS = ("0f8e3c6b5d7a41929e", "a text of another length: 7b1d2c")


@dataclass(frozen=True, slots=True)
class CallKeys:
    """Makes the keys of calls to a server."""

    provider: str
    base_url: str
    wire: PromptWire

    def key(self, request: Request) -> bytes:
        return self.of_call(self.call(request))

    def call(self, request: Request) -> ApiCall:
        """Return a call without its return format."""
        return self.wire.call(replace(request, output=None))

    def of_call(self, call: ApiCall) -> bytes:
        return key_of(self.prefix(call) + canonical(call.body))

    def prefix(self, call: ApiCall) -> bytes:
        server = canonical({"provider": self.provider, "base_url": self.base_url})
        return b"\0".join((server, call.path.encode(), b""))


class CachedPrompts:
    """Looks up the answers to many requests with one read of the ledger.

    Random answers to equal requests have different keys, which ``memo`` numbers.
    """

    def __init__(self, calls: CachedCalls, memo: Memo, keys: CallKeys) -> None:
        self._calls, self._memo, self._keys = calls, memo, keys
        self._text_keys: tuple[Request, _TextKeys | None] | None = None

    def key(self, request: Request) -> bytes:
        """Return the key of a request that was not looked up."""
        return self._keys_of([request])[0]

    def look_up(self, requests: Sequence[Request]) -> Iterator[Found]:
        """Yield for each request its cached answers, or else its key."""
        return self._calls.look_up(self._keys_of(requests))

    def look_up_texts(self, texts: Sequence[str], template: Request, rows: RowIds) -> Iterator[Found]:
        """Look up requests that differ from ``template`` only in the text of their one turn."""
        return self._calls.look_up(self._keys_of_texts(texts, template, rows))

    def _keys_of(self, requests: Sequence[Request]) -> list[bytes]:
        calls = list(map(self._keys.call, requests))
        keys = list(map(self._keys.of_call, calls))
        is_random = [number for number, call in enumerate(calls) if not is_deterministic(call.body)]
        rows = [requests[number].row_id for number in is_random]
        for number, key in zip(is_random, self._memo.numbered([keys[n] for n in is_random], rows), strict=True):
            keys[number] = key
        return keys

    def _keys_of_texts(self, texts: Sequence[str], template: Request, rows: RowIds) -> list[bytes]:
        def request(text: str, row_id: bytes | None = None) -> Request:
            return replace(template, turns=(UserTurn((Text(text),)),), row_id=row_id)

        if self._text_keys is None or self._text_keys[0] is not template:
            calls = [self._keys.call(request(text)) for text in SAMPLE_TEXTS]
            self._text_keys = template, _TextKeys.of([(self._keys.prefix(call), call.body) for call in calls])
        pattern = self._text_keys[1]
        if pattern is None or not all(texts):  # wires may treat an empty text differently
            return self._keys_of([request(text, row_id) for text, row_id in zip(texts, rows, strict=True)])
        keys = keys_between(pattern.head, map(orjson.dumps, texts), pattern.tail)
        return keys if pattern.is_deterministic else self._memo.numbered(keys, rows)


@dataclass(frozen=True, slots=True)
class _TextKeys:
    """The bytes before and after the text, in the keys of calls that differ only in one text."""

    head: bytes
    tail: bytes
    is_deterministic: bool

    @staticmethod
    def of(calls: Sequence[tuple[bytes, Mapping[str, Any]]]) -> _TextKeys | None:
        """Derive the bytes from the calls of SAMPLE_TEXTS. Return None if these differ in more than the text."""
        found = set()
        for text, (prefix, body) in zip(SAMPLE_TEXTS, calls, strict=True):
            parts = canonical(body).split(canonical(text))
            if len(parts) != 2:
                return None
            found.add(_TextKeys(prefix + parts[0], parts[1], is_deterministic(body)))
        return found.pop() if len(found) == 1 else None


def is_deterministic(body: Mapping[str, Any]) -> bool:
    """Return whether a call asks for the most likely answer.

    >>> is_deterministic({"temperature": 0}), is_deterministic({"temperature": 0.7}), is_deterministic({})
    (True, False, False)
    """
    temperature = body.get("temperature", (body.get("generationConfig") or {}).get("temperature"))
    return temperature is not None and temperature == 0

"""Prompts to a model behind an HTTP API, and their cached answers.

The key of an answer is a hash of the server and of the call without its return format: another parser, or another
pydantic model, reads the same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from penstock.ai.client.http_client import ApiClient, estimated_tokens
from penstock.ai.client.remote_model import BilledCalls, Calls, CountedCalls, Read, RemoteModel
from penstock.ai.conversation import GENERATIONS, Generation, Request, Text, UserTurn
from penstock.ai.provider import DEFAULT_SETTINGS, CallSettings, Prompter
from penstock.ai.wire import ApiCall, Endpoint, PromptWire
from penstock.cache.keys import canonical, key_of, keys_between
from penstock.cache.memo import Memo
from penstock.cache.ordinals import RowIds
from penstock.cache.shared_calls import SharedCalls
from penstock.cost.budget import Billing
from penstock.cost.usage import Usage
from penstock.errors import InvalidAnswerError

if TYPE_CHECKING:
    from penstock.ai.client.batch.batch_service import BatchService

TOKENS_OF_A_FILE = 1_000  # about the size of an image or a page
PROBE = Request((UserTurn((Text("Hello"),)),))
SAMPLE_TEXTS = ("0f8e3c6b5d7a41929e", "a text of another length: 7b1d2c")

Found = list[Generation] | bytes | Exception
"""The result of looking up a request: its cached answers, its key if it is not cached, or an error in reading them."""


class ApiPrompter(RemoteModel, Prompter):
    """Sends requests to a remote model, many at once."""

    cached: CachedCalls | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        wire: PromptWire,
        model: str,
        settings: CallSettings = DEFAULT_SETTINGS,
        service: BatchService | None = None,
    ) -> None:
        super().__init__(endpoint, model, settings, service)
        self._wire = wire
        self._calls: Calls | None = None
        self.takes_options, self.takes_cache_control = bool(wire.row_options), wire.takes_cache_control

    def __penstock_key__(self) -> Any:
        return self._endpoint.provider, self._endpoint.base_url, self._wire

    @property
    def keys(self) -> CallKeys:
        return CallKeys(self._endpoint.provider, self.base_url, self._wire)

    def load(self) -> None:
        memo = Memo.open(GENERATIONS, self.cache, has_ordinals=True)
        self._calls = self._open_calls(self._read, memo, self._wire.call(PROBE))
        if memo is not None:
            stores = isinstance(self._calls, ApiClient | BilledCalls | CountedCalls)  # batches store their answers
            self._calls = self.cached = CachedCalls(self._calls, memo, self.keys, self._billing, stores=stores)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()

    async def generate(self, request: Request) -> list[Generation]:
        answers = _timed(await self._ask(request))
        while len(answers) < request.num_answers:  # most APIs give one answer to a call
            missing, again = request.num_answers - len(answers), replace(request, key=None)
            for more in await asyncio.gather(*(self._ask(again) for _ in range(missing))):
                answers += _timed(more)
        return answers if len(answers) == request.num_answers else answers[: request.num_answers]

    def _ask(self, request: Request) -> Awaitable[tuple[list[Generation], float | None]]:
        """Make a call. Return its answers and their latency."""
        assert self._calls is not None, "load() was not called"
        call = self._wire.call(request)
        call.tokens = request_tokens(request)
        if self.cached is not None:
            call.is_looked_up = request.key is not None
            call.key = request.key or self.cached.next_key(request)
        may_continue = request.output is not None or bool(request.tools)
        return self._calls.ask(call, self._read if may_continue else self._read_last)

    def _read(self, body: Mapping[str, Any]) -> list[Generation]:
        answers = self._wire.read(body)
        if not answers:
            raise InvalidAnswerError("the answer holds no text and no reason why")
        return answers

    def _read_last(self, body: Mapping[str, Any]) -> list[Generation]:
        """Read answers that end their conversations, so that their raw form is not needed."""
        answers = self._read(body)
        for answer in answers:
            answer.raw = None
        return answers


def _timed(answered: tuple[list[Generation], float | None]) -> list[Generation]:
    answers, latency_s = answered
    for answer in answers:
        answer.latency_s = latency_s
    return answers


def request_tokens(request: Request) -> int:
    """Estimate the number of tokens of a request."""
    total = estimated_tokens(request.system) if request.system else 0
    if (text := request.text) is not None:
        return total + estimated_tokens(text)
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            total += sum(estimated_tokens(p.text) if isinstance(p, Text) else TOKENS_OF_A_FILE for p in turn.parts)
    return total


# --- cached answers ---------------------------------------------------------------------------------------------------


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


class CachedCalls:
    """Looks up calls in a memo before it makes them. Used on one event loop.

    Without ``stores``, the calls store their own answers, and other processes do not wait for them.
    """

    def __init__(self, calls: Calls, memo: Memo, keys: CallKeys, billing: Billing | None, *, stores: bool) -> None:
        self._calls, self._memo, self._call_keys, self._billing = calls, memo, keys, billing
        self._stores = stores
        self._shared = SharedCalls.open(memo.get_encoded) if stores else None
        self._is_sample = billing is not None and billing.is_sample
        self._text_keys: tuple[Request, _TextKeys | None] | None = None

    async def ask(self, call: ApiCall, read: Read[list[Generation]]) -> tuple[list[Generation], float | None]:
        """Return the cached answers to a call, or make it. ``call.key`` must be set."""
        key = call.key
        assert key is not None
        if call.is_looked_up and not is_deterministic(call.body):  # no other call of this query has this key
            return await self._make(call, key, read)
        latency_s = None

        async def compute() -> list[Generation]:
            nonlocal latency_s
            made, latency_s = await self._make(call, key, read)
            return made

        answers, is_new = await self._memo.share(key, compute, stores=False)
        if not is_new:
            self._count_cached(answers)
            answers = [replace(answer) for answer in answers]  # each row sets its latency
        return answers, latency_s

    async def _make(
        self, call: ApiCall, key: bytes, read: Read[list[Generation]]
    ) -> tuple[list[Generation], float | None]:
        """Make a call and store its answers. If another process is making it, wait for those."""
        is_stored = False
        try:
            stored = None if self._shared is None else await self._shared.begin(key)
            if stored is not None:
                answers: list[Generation] = self._memo.codec.decode(stored)
                self._count_cached(answers)
                return answers, None
            answered = await self._calls.ask(call, read)
            if self._stores:
                self._memo.put_soon(key, _timed(answered))
                is_stored = True
            return answered
        finally:
            if self._shared is not None:
                self._shared.end(key, is_stored=is_stored)

    def _count_cached(self, answers: Sequence[Generation]) -> None:
        if self._billing is not None:
            self._billing.count_cached()
            self._record(answers)

    async def close(self) -> None:
        await self._calls.close()
        await asyncio.to_thread(self._memo.close)
        if self._shared is not None:
            await self._shared.close()

    def next_key(self, request: Request) -> bytes:
        """Return the key of a call that was not looked up."""
        return self._keys([request])[0]

    def look_up(self, requests: Sequence[Request]) -> Iterator[Found]:
        """Yield the cached answers to each request, or its key. Answers are decoded when they are drawn."""
        return self._found(self._keys(requests))

    def _keys(self, requests: Sequence[Request]) -> list[bytes]:
        """Return the keys of requests. Random answers to equal requests have different keys."""
        calls = list(map(self._call_keys.call, requests))
        keys = list(map(self._call_keys.of_call, calls))
        is_random = [number for number, call in enumerate(calls) if not is_deterministic(call.body)]
        rows = [requests[number].row_id for number in is_random]
        for number, key in zip(is_random, self._memo.numbered([keys[n] for n in is_random], rows), strict=True):
            keys[number] = key
        return keys

    def look_up_texts(self, texts: Sequence[str], template: Request, rows: RowIds) -> Iterator[Found]:
        """Do the same for requests that equal ``template`` except for one text as their only turn."""

        def request(text: str, row_id: bytes | None = None) -> Request:
            return replace(template, turns=(UserTurn((Text(text),)),), row_id=row_id)

        if self._text_keys is None or self._text_keys[0] is not template:
            calls = [self._call_keys.call(request(text)) for text in SAMPLE_TEXTS]
            self._text_keys = template, _TextKeys.of([(self._call_keys.prefix(call), call.body) for call in calls])
        pattern = self._text_keys[1]
        if pattern is None or not all(texts):  # wires may treat an empty text in another way
            return self.look_up([request(text, row_id) for text, row_id in zip(texts, rows, strict=True)])
        keys = keys_between(pattern.head, map(orjson.dumps, texts), pattern.tail)
        return self._found(keys if pattern.is_deterministic else self._memo.numbered(keys, rows))

    def _found(self, keys: list[bytes]) -> Iterator[Found]:
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

    def _record(self, answers: Sequence[Generation]) -> None:
        """Record cached answers of a sample as a call, with what they used when they were made."""
        if self._billing is not None and self._is_sample:
            a = answers[0]
            tokens = a.input_tokens or 0, a.output_tokens or 0, a.cached_tokens or 0
            self._billing.record(Usage(*tokens, a.written_tokens, a.written_1h_tokens))


@dataclass(frozen=True, slots=True)
class _TextKeys:
    """The bytes around the JSON of the text in the keys of calls that differ only in one text."""

    head: bytes
    tail: bytes
    is_deterministic: bool

    @staticmethod
    def of(calls: Sequence[tuple[bytes, Mapping[str, Any]]]) -> _TextKeys | None:
        """Derive them from the calls of SAMPLE_TEXTS. Return None if these differ in more than the text."""
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

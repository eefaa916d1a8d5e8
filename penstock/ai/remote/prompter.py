"""Prompts to a model behind an HTTP API: a wire says what to send, the client sends it, a ledger keeps the answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from penstock.ai.conversation import Generation, Request, Text, UserTurn
from penstock.ai.packing import packed, unpacked
from penstock.ai.provider import DEFAULT_SETTINGS, CallSettings, Prompter
from penstock.ai.remembering import (
    SAMPLE_TEXTS,
    CallMemory,
    Found,
    TextKeys,
    configured_ledger,
    is_deterministic,
)
from penstock.ai.remote.clients import made_client, opened_asker
from penstock.ai.remote.http import estimated_tokens
from penstock.ai.remote.wires.wire import ApiCall, Endpoint, Wire
from penstock.ai.samples import RowIds
from penstock.cache.keys import KEY_NBYTES
from penstock.cost.accounts import current_account
from penstock.cost.usage import Usage, usage_in
from penstock.errors import InvalidAnswerError

if TYPE_CHECKING:
    from penstock.ai.remote.batch.asker import BatchAsker
    from penstock.ai.remote.batch.service import BatchService

TOKENS_OF_A_FILE = 1_000  # about what an image or a page takes


class ApiPrompter(Prompter):
    """Asks a remote model, many requests at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: Wire,
        model: str,
        settings: CallSettings = DEFAULT_SETTINGS,
        batches: BatchService | None = None,
    ) -> None:
        self._endpoint, self._wire, self.model_name = endpoint, wire, model
        self._client = made_client(endpoint, model, settings)
        self._memory: CallMemory | None = None
        self._text_keys: tuple[Request, TextKeys | None] | None = None
        self._echoed: tuple[str, ...] = getattr(wire, "echoed", ())
        self._settings, self._batches, self.cache = settings, batches, settings.cache
        self._asker: BatchAsker[dict[str, Any]] | None = None
        self.takes_options = getattr(wire, "takes_options", False)

    def __penstock_key__(self) -> Any:
        return self._endpoint.provider, self._endpoint.base_url, self._wire

    def load(self) -> None:
        ledger = configured_ledger(self._settings.cache)
        if ledger is None or current_account() is not None or self._batches is not None:
            self._client.open()
        if ledger is not None:  # which may have all answers, so that no client is needed
            self._memory = CallMemory(ledger, self._endpoint.provider, self._endpoint.base_url)
        self._asker = opened_asker(
            self._batches, self._client, self._settings, BodyAnswers(self._checked, self._memory, self._echoed)
        )

    def check_price(self) -> None:
        """Refuse to work within a budget where nobody knows what a call costs."""
        self._client.check_price()

    async def close(self) -> None:
        if self._asker is not None:
            await self._asker.close()
        await self._client.close()
        if self._memory is not None:
            await asyncio.to_thread(self._memory.close)

    @property
    def is_remembering(self) -> bool:
        """Whether answers are kept, and so may be looked up."""
        return self._memory is not None

    def look_up(self, requests: Sequence[Request], rows: RowIds = None) -> Iterator[Found]:
        """Return the answers to each request that are kept; where there are none, the key to give to ``generate``.

        ``rows`` are those that ask, as far as they can be told from others in all runs of a job. Answers are looked up
        at once, and read when they are drawn: each is gone before the next takes its memory.
        """
        assert self._memory is not None
        keys, drawn = [], []
        for number, request in enumerate(requests):
            call = self._wire.call(replace(request, output=None))
            keys.append(self._memory.base_key(call.path, call.body))
            if not is_deterministic(call.body):
                drawn.append(number)
        of_rows = rows and [rows[number] for number in drawn]
        for number, key in zip(drawn, self._memory.samples([keys[n] for n in drawn], of_rows), strict=True):
            keys[number] = key
        return self._found(keys, self._memory)

    def look_up_texts(self, texts: Sequence[str], like: Request, rows: RowIds = None) -> Iterator[Found]:
        """Do what ``look_up`` does for requests that are ``like`` one with a text in place of its turns."""
        assert self._memory is not None

        def request(text: str) -> Request:
            return replace(like, turns=(UserTurn((Text(text),)),), output=None)

        if self._text_keys is None or self._text_keys[0] is not like:
            calls = (self._wire.call(request(text)) for text in SAMPLE_TEXTS)
            self._text_keys = like, TextKeys.of(self._memory, [(call.path, call.body) for call in calls])
        pattern = self._text_keys[1]
        if pattern is None or not all(texts):  # what wires do with an empty text is their own
            return self.look_up([request(text) for text in texts], rows)
        return self._found(pattern.keys(texts, self._memory, rows), self._memory)

    def _found(self, keys: list[bytes], memory: CallMemory) -> Iterator[Found]:
        known = memory.get(keys)
        return self._read_known(keys, known) if known else iter(keys)

    def _read_known(self, keys: list[bytes], known: Mapping[bytes, bytes]) -> Iterator[Found]:
        get, read = known.get, self._read_kept
        for key in keys:
            if (raw := get(key)) is None:
                yield key
                continue
            try:
                yield read(raw)
            except Exception as exc:
                yield exc

    async def generate(self, request: Request, key: bytes | None = None) -> list[Generation]:
        """Ask. ``key`` is what ``look_up`` gave for the request, which wants one answer."""
        answers = await self._ask(request, key)
        while len(answers) < request.num_answers:  # not every API gives several at once
            missing = request.num_answers - len(answers)
            for more in await asyncio.gather(*(self._ask(request) for _ in range(missing))):
                answers += more
        return answers[: request.num_answers]

    async def _ask(self, request: Request, key: bytes | None = None) -> list[Generation]:
        call = self._wire.call(request)
        if self._memory is None and self._asker is None:
            return _timed(*await self._client.ask(call, self._read, request_tokens(request)))
        if not self._client.is_open:
            self._client.open()
        if self._memory is None:
            return (await self._call(call, request, secrets.token_bytes(KEY_NBYTES)))[0]
        if key is not None and self._memory.is_own(key):
            if self._asker is None:  # so it is for most calls: with as little around them as can be
                read = self._reader(request)
                (answers, raw), latency_s = await self._client.ask(call, read, request_tokens(request))
                self._memory.put(key, raw)
                return _timed(answers, latency_s)
            answers, raw = await self._call(call, request, key)
            self._memory.put(key, raw)
            return answers
        made: list[Generation] | None = None  # what the call gives, if it is made

        async def ask(key: bytes) -> bytes:
            nonlocal made
            made, raw = await self._call(call, request, key)
            return raw

        is_missing = key is not None
        if key is None:
            formless = call if request.output is None else self._wire.call(replace(request, output=None))
            key = self._memory.key(formless.path, formless.body)
        raw = await self._memory.answer(key, ask, is_missing)
        if made is not None:
            return made
        return self._read_kept(raw)

    async def _call(self, call: ApiCall, request: Request, key: bytes) -> tuple[list[Generation], bytes]:
        """Make a call; return its answers, and what is kept of them."""
        if self._asker is not None:
            body, latency_s = await self._by_batch(self._asker, key, call, request_tokens(request))
            answers, raw = self._reader(request)(body)
            return _timed(answers, latency_s), raw
        (answers, raw), latency_s = await self._client.ask(call, self._reader(request), request_tokens(request))
        return _timed(answers, latency_s), raw

    async def _by_batch(
        self, asker: BatchAsker[dict[str, Any]], key: bytes, call: ApiCall, tokens: int
    ) -> tuple[dict[str, Any], float]:
        """Return the answer to a call that is made by a batch, and how long that took."""
        began, billing = time.monotonic(), self._client.billing
        if billing is None:
            return await asker.ask(key, call), time.monotonic() - began
        charge = await billing.reserve(call.body, tokens, on_wait=asker.hurry)
        try:
            body = await asker.ask(key, call)
            charge.answered(usage_in(body), time.monotonic() - began)
            return body, time.monotonic() - began
        finally:
            billing.settle(charge)

    def _checked(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._read(body)
        return dict(body)

    def _reader(self, request: Request) -> Callable[[dict[str, Any]], tuple[list[Generation], bytes]]:
        """Return what reads an answer, and says what is kept of it.

        One that the talk may go on from is kept as the server told it: a resumed run must say the same then.
        """
        return self._read_to_pack if request.output is None and not request.tools else self._read_to_keep

    def _read_to_pack(self, body: dict[str, Any]) -> tuple[list[Generation], bytes]:
        answers = self._read(body)
        raw = packed(answers) if len(answers) == 1 else None  # what several took is told for all of them
        return answers, raw or orjson.dumps(worth_keeping(body, self._echoed))

    def _read_to_keep(self, body: dict[str, Any]) -> tuple[list[Generation], bytes]:
        return self._read(body), orjson.dumps(worth_keeping(body, self._echoed))

    def _read_kept(self, raw: bytes) -> list[Generation]:
        """Read what was kept, and take note of what it took."""
        kept = orjson.loads(raw)
        is_packed = type(kept) is list
        answers = unpacked(kept) if is_packed else self._read(kept)
        if self._client.billing is not None:
            self._client.billing.count_cached(_usage_of(answers[0]) if is_packed else usage_in(kept))
        return answers

    def _read(self, body: Mapping[str, Any]) -> list[Generation]:
        answers = self._wire.read(body)
        if not answers:
            raise InvalidAnswerError("the answer holds no text and no reason why")
        return answers


def _usage_of(answer: Generation) -> Usage | None:
    given = answer.input_tokens
    return None if given is None else Usage(given, answer.output_tokens or 0, answer.cached_tokens or 0)


def worth_keeping(body: dict[str, Any], echoed: Iterable[str]) -> dict[str, Any]:
    """Return an answer without the fields that only repeat the request, which may be most of it.

    >>> worth_keeping({"id": 1, "tools": []}, ["tools", "text"])
    {'id': 1}
    """
    kept = body.copy()
    for name in echoed:
        if name in kept:
            del kept[name]
    return kept


class BodyAnswers:
    """Answers to prompts, as bodies: kept as ``CallMemory`` does."""

    def __init__(
        self,
        read: Callable[[Mapping[str, Any]], dict[str, Any]],
        memory: CallMemory | None,
        echoed: Iterable[str],
    ) -> None:
        self.read, self._memory, self._echoed = read, memory, echoed

    def keep(self, key: bytes, answer: dict[str, Any]) -> None:
        if self._memory is not None:
            self._memory.put(key, orjson.dumps(worth_keeping(answer, self._echoed)))

    def recall(self, keys: Sequence[bytes]) -> dict[bytes, dict[str, Any]]:
        kept = self._memory.get(keys) if self._memory is not None else {}
        # Whoever asks by batches has looked before: what is packed was kept meanwhile, by calls that were made singly.
        return {key: orjson.loads(value) for key, value in kept.items() if value.startswith(b"{")}


def _timed(answers: list[Generation], latency_s: float | None) -> list[Generation]:
    for answer in answers:
        answer.latency_s = latency_s
    return answers


def request_tokens(request: Request) -> int:
    """Return about how many tokens a request has."""
    text = request.text
    if text is not None:
        return estimated_tokens(text) + (estimated_tokens(request.system) if request.system else 0)
    total = estimated_tokens(request.system or "")
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            total += sum(estimated_tokens(p.text) if isinstance(p, Text) else TOKENS_OF_A_FILE for p in turn.parts)
    return total

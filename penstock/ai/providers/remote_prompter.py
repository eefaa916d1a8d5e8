"""Prompts to a model behind an HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.ai.client.api_call import Answered, Calls, Endpoint
from penstock.ai.client.cached_calls import CachedCalls, timed
from penstock.ai.conversation import GENERATIONS, Generation, Request, Text, UserTurn
from penstock.ai.provider import DEFAULT_SETTINGS, CallSettings, Prompter
from penstock.ai.providers.prompt_keys import CachedPrompts, CallKeys, is_deterministic
from penstock.ai.providers.remote_model import RemoteModel
from penstock.ai.providers.wire import PromptWire
from penstock.cache.memo import Memo
from penstock.cost.usage import Usage, estimated_tokens

if TYPE_CHECKING:
    from penstock.ai.client.batch.batch_service import BatchService

TOKENS_OF_A_FILE = 1_000  # about the size of an image or a page
PROBE = Request((UserTurn((Text("Hello"),)),))


class ApiPrompter(RemoteModel, Prompter):
    """Sends requests to a remote model, many at once. ``cached`` answers many requests at once from the ledger."""

    cached: CachedPrompts | None = None

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
        probe = self._wire.call(PROBE)
        probe.read = self._wire.generations
        self._calls = self._open_calls(probe, memo)
        if memo is not None:
            self._calls = calls = CachedCalls(self._calls, memo, self._billing, stores=not self.is_batched)
            self.cached = CachedPrompts(calls, memo, self.keys)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()

    async def generate(self, request: Request) -> list[Generation]:
        answers = timed(await self._ask(request))
        while len(answers) < request.num_answers:  # most APIs give one answer to a call
            missing, again = request.num_answers - len(answers), replace(request, key=None)
            for more in await asyncio.gather(*(self._ask(again) for _ in range(missing))):
                answers += timed(more)
        return answers if len(answers) == request.num_answers else answers[: request.num_answers]

    def is_certain(self, request: Request) -> bool:
        return is_deterministic(self._wire.call(request).body)

    def _ask(self, request: Request) -> Awaitable[Answered]:
        """Make a call. Return its answers and their latency."""
        assert self._calls is not None, "load() was not called"
        call = self._wire.call(request)
        call.tokens = request_tokens(request)
        if self.cached is not None:
            call.is_looked_up, call.is_random = request.key is not None, not is_deterministic(call.body)
            call.key = request.key or self.cached.key(request)
        may_continue = request.output is not None or bool(request.tools)
        call.read = self._wire.generations if may_continue else self._read_last
        return self._calls.ask(call)

    def _read_last(self, body: Mapping[str, Any], usage: Usage | None) -> list[Generation]:
        """Read answers that end their conversations, which are not needed in raw form."""
        answers = self._wire.generations(body, usage)
        for answer in answers:
            answer.raw = None
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

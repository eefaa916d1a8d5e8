"""Prompts to a model behind an HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.ai.conversation import Generation, Request, Text, UserTurn
from penstock.ai.provider import DEFAULT_SETTINGS, CallSettings, Prompter
from penstock.ai.remote.cached_calls import CachedCalls, answers_codec
from penstock.ai.remote.calls import Calls, RemoteModel
from penstock.ai.remote.http import estimated_tokens
from penstock.ai.remote.wires.wire import Endpoint, PromptWire
from penstock.cache.memo import Memo
from penstock.errors import InvalidAnswerError

if TYPE_CHECKING:
    from penstock.ai.remote.batch.service import BatchService

TOKENS_OF_A_FILE = 1_000  # about the size of an image or a page


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
        self.takes_options = bool(wire.row_options)

    def __penstock_key__(self) -> Any:
        return self._endpoint.provider, self._endpoint.base_url, self._wire

    def load(self) -> None:
        memo = Memo.open(answers_codec(self._read), self.cache, has_ordinals=True)
        self._calls = self._open_calls(self._read, memo)
        if memo is not None:
            server = {"provider": self._endpoint.provider, "base_url": self.base_url}
            self._calls = self.cached = CachedCalls(self._calls, memo, self._wire, server, self._billing)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()

    async def generate(self, request: Request) -> list[Generation]:
        answers = await self._ask(request)
        while len(answers) < request.num_answers:  # most APIs give one answer to a call
            missing, again = request.num_answers - len(answers), replace(request, key=None)
            for more in await asyncio.gather(*(self._ask(again) for _ in range(missing))):
                answers += more
        return answers[: request.num_answers]

    async def _ask(self, request: Request) -> list[Generation]:
        assert self._calls is not None, "load() was not called"
        call = self._wire.call(request)
        call.tokens = request_tokens(request)
        if self.cached is not None:
            call.is_looked_up = request.key is not None
            call.key = request.key or self.cached.next_key(request, call)
        may_continue = request.output is not None or bool(request.tools)
        answers: list[Generation]
        answers, latency_s = await self._calls.ask(call, self._read if may_continue else self._read_last)
        for answer in answers:
            answer.latency_s = latency_s
        return answers

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


def request_tokens(request: Request) -> int:
    """Estimate the number of tokens of a request."""
    total = estimated_tokens(request.system) if request.system else 0
    if (text := request.text) is not None:
        return total + estimated_tokens(text)
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            total += sum(estimated_tokens(p.text) if isinstance(p, Text) else TOKENS_OF_A_FILE for p in turn.parts)
    return total

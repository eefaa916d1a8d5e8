"""Prompts to an inference engine in this process, and their cached answers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

from penstock.ai.cached_model import content_of_request
from penstock.ai.conversation import GENERATIONS, Generation, ModelTurn, Request, Text, UserTurn
from penstock.ai.local.serving.engine import EngineSpec
from penstock.ai.local.serving.sampling import ROW_OPTIONS
from penstock.ai.local.serving.shared_engine import SharedEngine
from penstock.ai.provider import ModelTask, Prompter
from penstock.ai.providers.wire import check_row_options
from penstock.cache.keys import canonical, key_of
from penstock.cache.memo import Memo
from penstock.expr.udf import Resources

IN_FLIGHT = 512
"""Requests that each replica works on or has queued, enough for the continuous batching of any engine."""
LOOK_AHEAD = 8_192
"""Rows that wait concurrently for groups to form."""
PREFIX_CHARS = 16_384
"""Characters of a prompt that decide when it leaves; they are held while it waits."""


class EnginePrompter(Prompter):
    """Sends requests one by one to an engine that all steps with an equal spec share.

    With ``groups_prefixes`` the engine gets requests with equal beginnings one after another. ``options`` are the
    sampling options of all requests.
    """

    takes_options = True
    takes_tools = False
    needs_row_ids = True

    def __init__(
        self, spec: EngineSpec, task: ModelTask, options: Mapping[str, Any], *, groups_prefixes: bool, gpus: float = 0
    ) -> None:
        self.spec, self._sampling, self._groups_prefixes = spec, dict(options), groups_prefixes
        per_replica = (task.settings.caps.max_concurrency or IN_FLIGHT * spec.num_replicas) // spec.num_replicas
        self._max_in_flight = max(1, per_replica)
        self._engine: SharedEngine | None = None
        self._memo: Memo | None = None
        self.model_name = spec.name
        self.cache = task.settings.cache
        self.resources = Resources(gpus=gpus)
        self.num_waiting = LOOK_AHEAD if groups_prefixes else 2 * self._max_in_flight * spec.num_replicas
        self.event_loop = f"penstock.ai {spec!r}"

    def with_spec(self, spec: EngineSpec) -> EnginePrompter:
        """Return a model with an engine that gives the same answers, for example in other processes."""
        model = copy.copy(self)
        model.spec = spec
        return model

    def load(self) -> None:
        self._memo = Memo.open(GENERATIONS, self.cache, has_ordinals=True)
        if self._memo is not None:
            self._prefix = canonical({**self.spec.identity(), "options": self._sampling}) + b"\0"

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        memo, self._memo = self._memo, None
        if memo is not None:
            await asyncio.to_thread(memo.close)
        if engine is not None:
            await asyncio.to_thread(engine.release)

    def is_certain(self, request: Request) -> bool:
        return {**self._sampling, **(request.options or {})}.get("temperature") == 0

    async def generate(self, request: Request) -> list[Generation]:
        check_row_options(request.options or {}, ROW_OPTIONS)
        if self._memo is None:
            return await self._ask(request)
        key = key_of(self._prefix + canonical(content_of_request(request)))
        if not self.is_certain(request):
            (key,) = self._memo.numbered([key], [request.row_id])
        answers, _ = await self._memo.share(key, lambda: self._ask(request))
        found: list[Generation] = answers
        return found

    async def _ask(self, request: Request) -> list[Generation]:
        if self._engine is None:  # a run whose answers are all cached starts no engine
            self._engine = SharedEngine.acquire(self.spec, self._max_in_flight)
        options = {**self._sampling, **(request.options or {})}
        prefix = prefix_of(request, options) if self._groups_prefixes else ""
        return await self._engine.generate(request, options, prefix)


def prefix_of(request: Request, options: Mapping[str, Any]) -> str:
    """Return the beginning of a request's prompt, at most ``PREFIX_CHARS`` long: prompts that begin alike give texts
    that begin alike.

    >>> prefix_of(Request((UserTurn((Text("Who?"),)),), system="Be brief."), {"lora": "pirate"})
    'pirate\\x00Be brief.\\x00Who?'
    """
    parts = [str(options.get("lora") or ""), request.system or ""]
    for turn in request.turns:
        match turn:
            case UserTurn(given):
                parts += [part.text if isinstance(part, Text) else repr(hash(part.data)) for part in given]
            case ModelTurn(text):
                parts.append(text)
            case _:
                parts.append(repr(turn))
    return "\0".join(parts)[:PREFIX_CHARS]

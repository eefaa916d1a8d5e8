"""An inference engine without a model: a bounded cache of prefixes, scripted deaths, and time on the loop's clock."""

from __future__ import annotations

import asyncio
import selectors
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.errors import ProviderUnusableError, RequestRefusedError, WorkerDiedError

SEPARATOR = "|"
"""Stands between the prefix of a prompt and the rest."""


@dataclass
class Script:
    """The behaviour of an engine, and a record of its work."""

    num_cached: int = 8  # prefixes that a replica caches
    request_s: float = 0.0  # on the clock of the loop; a request whose prefix is cached takes a tenth
    start_s: float = 0.0
    deaths: list[int] = field(default_factory=list)  # the numbers of the requests, counted from 0, that kill it once
    on_answer: Callable[[], None] = lambda: None
    start_error: str = ""
    # the record
    order: list[tuple[int, str]] = field(default_factory=list)  # replica and prompt of each request
    options: list[Mapping[str, Any]] = field(default_factory=list)  # of each request
    num_hits: int = 0
    num_starts: int = 0
    num_open: int = 0
    num_aborted: int = 0
    max_in_flight: int = 0


SCRIPTS: dict[str, Script] = {}


@dataclass(frozen=True)
class ScriptedSpec:
    """Implements ``EngineSpec``; ``name`` is that of a script."""

    name: str
    num_replicas: int = 1

    def make(self, replica: int) -> ScriptedEngine:
        return ScriptedEngine(SCRIPTS[self.name], replica)

    def alone(self) -> ScriptedSpec:
        return replace(self, num_replicas=1)

    def identity(self) -> Mapping[str, Any]:
        return {"script": self.name}


class ScriptedEngine:
    """Answers with the prompt. One request computes at a time, so requests queue as in a busy engine.

    A prompt with ``DIE`` kills it, one with ``NO`` is refused, and one with ``WAIT`` is never answered.
    """

    def __init__(self, script: Script, replica: int) -> None:
        self._script, self._replica = script, replica
        self._cached: OrderedDict[str, None] = OrderedDict()
        self._death: asyncio.Future[None] | None = None
        self._device = asyncio.Lock()
        self._num_in_flight = 0

    async def start(self) -> None:
        script = self._script
        await asyncio.sleep(script.start_s)
        if script.start_error:
            raise ProviderUnusableError(script.start_error)
        self._death = asyncio.get_running_loop().create_future()
        script.num_starts += 1
        script.num_open += 1

    async def close(self) -> None:
        self._script.num_open -= 1

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        script, text = self._script, request.text or ""
        script.order.append((self._replica, text))
        script.options.append(options)
        self._num_in_flight += 1
        script.max_in_flight = max(script.max_in_flight, self._num_in_flight)
        if "DIE" in text or len(script.order) - 1 in script.deaths:
            self._die(text)
        work = asyncio.ensure_future(self._answer(text, request.num_answers, options))
        assert self._death is not None
        try:
            await asyncio.wait((work, self._death), return_when=asyncio.FIRST_COMPLETED)
            if self._death.done():
                raise WorkerDiedError("the script says so")
            return work.result()
        except asyncio.CancelledError:
            script.num_aborted += 1
            raise
        finally:
            self._num_in_flight -= 1
            work.cancel()
            script.on_answer()

    def _die(self, text: str) -> None:
        assert self._death is not None
        if not self._death.done():
            asyncio.get_running_loop().call_soon(self._death.set_result, None)

    async def _answer(self, text: str, num_answers: int, options: Mapping[str, Any]) -> list[Generation]:
        prefix, script = text.partition(SEPARATOR)[0], self._script
        async with self._device:
            if is_cached := prefix in self._cached:
                script.num_hits += 1
                self._cached.move_to_end(prefix)
            await asyncio.sleep(script.request_s / 10 if is_cached else script.request_s)
            self._cached[prefix] = None
            if len(self._cached) > script.num_cached:
                self._cached.popitem(last=False)
        if "NO" in text or (options.get("temperature") or 0) < 0:
            raise RequestRefusedError("the engine refuses the request")
        if "WAIT" in text:
            await asyncio.Event().wait()
        num_words = len(text.split())
        return [Generation(text, "m", num_words, num_words, 0, "stop") for _ in range(num_answers)]


class _SkippingSelector(selectors.SelectSelector):
    """Advances the clock of a loop instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("all tasks wait, and nothing will wake them")
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready


def run_virtually(work: Coroutine[Any, Any, Any]) -> float:
    """Run a coroutine on a virtual clock and return the seconds that it took on it."""
    selector = _SkippingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    try:
        loop.run_until_complete(work)
        return selector.now_s
    finally:
        loop.close()

"""Replicas of an inference engine, such as vLLM, as actors on any nodes; the driver routes the requests to them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray

from penstock.ai.conversation import Generation, Request
from penstock.ai.local.serving.engine import EngineSpec
from penstock.ai.local.serving.prompter import EnginePrompter
from penstock.plan.stages import CallUdf
from penstock.runners.ray.actors import CLOSE_TIMEOUT_S
from penstock.runners.ray.failures import translated

MAX_REQUESTS = 1000  # that an engine takes at once


class EngineActor:
    """One replica, which uses the GPUs of its actor."""

    def __init__(self, packed_spec: bytes) -> None:
        spec: EngineSpec = pickle.loads(packed_spec)
        self._engine = spec.alone().make(0)

    async def start(self) -> None:
        await self._engine.start()

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        return await self._engine.generate(request, options)

    async def close(self) -> None:
        await self._engine.close()


class RemoteEngine:
    """Implements ``InferenceEngine`` with an actor."""

    def __init__(self, spec: EngineSpec, options: Mapping[str, Any]) -> None:
        import cloudpickle

        self._packed_spec = cloudpickle.dumps(spec)
        self._options = options
        self._actor: Any = None

    async def start(self) -> None:
        self._actor = ray.remote(EngineActor).options(**self._options).remote(self._packed_spec)
        try:
            await self._answer(self._actor.start.remote())
        except BaseException:  # it failed, or was cancelled
            ray.kill(self._actor)
            raise

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        answers: list[Generation] = await self._answer(self._actor.generate.remote(request, options))
        return answers

    async def close(self) -> None:
        if self._actor is not None:
            closing = self._actor.close.remote()
            await asyncio.to_thread(ray.wait, [closing], timeout=CLOSE_TIMEOUT_S)
            ray.kill(self._actor)

    async def _answer(self, ref: Any) -> Any:
        try:
            return await ref
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise
        except ray.exceptions.RayError as exc:
            raise translated(exc) from exc


@dataclass(frozen=True)
class RemoteEngineSpec:
    """Implements ``EngineSpec``: the replicas of ``spec`` are actors with ``num_gpus`` each."""

    spec: EngineSpec
    num_gpus: float

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def num_replicas(self) -> int:
        return self.spec.num_replicas

    def make(self, replica: int) -> RemoteEngine:
        options = {"num_cpus": 0, "num_gpus": self.num_gpus, "max_concurrency": MAX_REQUESTS}
        return RemoteEngine(self.spec, options | {"scheduling_strategy": "SPREAD"})

    def alone(self) -> EngineSpec:
        return self.spec.alone()

    def identity(self) -> Mapping[str, Any]:
        return self.spec.identity()


def with_remote_engine(work: CallUdf) -> CallUdf | None:
    """Return a call whose engine has its replicas in actors; None if it has no engine."""
    target, model = work.spec.target, _engine_prompter(work)
    if model is None:
        return None
    remote = model.with_spec(RemoteEngineSpec(model.spec, work.spec.resources.gpus / model.spec.num_replicas))
    init_args = tuple(remote if each is model else each for each in target.init_args)
    spec = replace(work.spec, target=replace(target, init_args=init_args))
    return replace(work, call=replace(work.call, udf=spec))


def num_replicas(work: CallUdf) -> int:
    """Return the number of actors that share the GPUs of a call: one for each replica of its engine."""
    model = _engine_prompter(work)
    return 1 if model is None else model.spec.num_replicas


def _engine_prompter(work: CallUdf) -> EnginePrompter | None:
    return next((each for each in work.spec.target.init_args if isinstance(each, EnginePrompter)), None)

"""An engine that answers with its place, and its provider."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

import penstock as ps
from penstock.ai.conversation import Generation, Request
from penstock.ai.local.serving.prompter import EnginePrompter
from penstock.ai.provider import Model, ModelTask
from penstock.errors import ProviderUnusableError, RequestRefusedError
from penstock.functions import prompt


@dataclass(frozen=True)
class PlacedSpec:
    """Implements ``EngineSpec`` for an engine that answers with its place."""

    name: str
    num_replicas: int
    marks: str  # a folder
    num_awaited: int = 0

    def make(self, replica: int) -> PlacedEngine:
        return PlacedEngine(self)

    def alone(self) -> PlacedSpec:
        return replace(self, num_replicas=1, num_awaited=self.num_replicas)

    def identity(self) -> Mapping[str, Any]:
        return {"name": self.name}


class PlacedEngine:
    """Answers with the prompt, its process, its node and its GPUs. ``DIE`` kills it, and ``DIE ONCE`` once.

    The answer to a prompt with ``ALL`` waits until all replicas have got such a prompt.
    """

    def __init__(self, spec: PlacedSpec) -> None:
        self._spec = spec

    async def start(self) -> None:
        if self._spec.name == "missing":
            raise ProviderUnusableError("there is no such model")

    async def close(self) -> None:
        pass

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        text = request.text or ""
        if "NO" in text:
            raise RequestRefusedError("the engine refuses the request")
        once = Path(self._spec.marks) / "once"
        if "DIE" in text and ("ONCE" not in text or not once.exists()):
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if "ALL" in text:
            (Path(self._spec.marks) / f"{os.getpid()}.asked").touch()
            while len(list(Path(self._spec.marks).glob("*.asked"))) < self._spec.num_awaited:
                await asyncio.sleep(0.01)
        answer = f"{text}/{os.getpid()}/{ray.get_runtime_context().get_node_id()}/{len(ray.get_gpu_ids())}"
        return [Generation(answer, "m", 1, 1, 0, "stop") for _ in range(request.num_answers)]


@dataclass(frozen=True)
class PlacedProvider(ps.Provider):
    """Replicas with a GPU each, or two without."""

    marks: str
    num_gpus: int = 0
    name: str = "placed"

    def model(self, task: ModelTask) -> Model:
        spec = PlacedSpec(task.model or "m", self.num_gpus or 2, self.marks)
        return EnginePrompter(spec, task, task.options, groups_prefixes=False, gpus=self.num_gpus)


def asked(questions: list[str], provider: PlacedProvider, **options: Any) -> ps.DataFrame:
    df = ps.from_pydict({"q": questions})
    return df.select(prompt(ps.col("q"), provider=provider, **{"model": "m", **options}).alias("a"))

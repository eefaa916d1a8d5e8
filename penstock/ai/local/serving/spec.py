"""Descriptions of engines that run in this process or beside it."""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from penstock.ai.local.serving.engine import InferenceEngine
from penstock.ai.local.weights import fingerprint
from penstock.errors import InvalidArgumentError


@dataclass(frozen=True)
class LocalEngineSpec(ABC):
    """An engine with the weights of a model. ``arguments`` are the engine's own as JSON, so that specs compare."""

    name: str
    arguments: str = "{}"
    num_replicas: int = 1
    engine: ClassVar[str]
    sizes: ClassVar[tuple[str, ...]]  # arguments whose product is the number of GPUs of one engine

    @classmethod
    def of(cls, model: str, arguments: Mapping[str, Any], num_replicas: int) -> Self:
        try:
            return cls(model, json.dumps(arguments, sort_keys=True), num_replicas)
        except TypeError as exc:
            raise InvalidArgumentError(f"engine_kwargs takes plain values, such as numbers and texts: {exc}.") from exc

    @abstractmethod
    def make(self, replica: int) -> InferenceEngine: ...

    def alone(self) -> Self:
        return replace(self, num_replicas=1)

    def identity(self) -> dict[str, Any]:
        arguments = json.loads(self.arguments)
        weights = fingerprint(self.name, arguments.get("revision"))
        return {"engine": self.engine, "weights": weights, "arguments": arguments}

    @classmethod
    def num_devices(cls, arguments: Mapping[str, Any]) -> int:
        """Return the number of GPUs of one engine."""
        return math.prod(int(arguments.get(name, 1)) for name in cls.sizes)

    def devices(self, replica: int) -> str | None:
        """Return the devices of a replica as in CUDA_VISIBLE_DEVICES, None if it may use all."""
        if self.num_replicas == 1:
            return None
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        width = self.num_devices(json.loads(self.arguments))
        visible = given.split(",") if given else list(map(str, range(width * self.num_replicas)))
        return ",".join(visible[replica * width : (replica + 1) * width])

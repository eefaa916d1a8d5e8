"""Providers whose models answer decisions and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.ai.decisions.decision_wire import DecisionWire
from penstock.ai.decisions.remote_decider import service_decider
from penstock.ai.decisions.system_one import PerplexityWire, SystemOneWire, TypeSafeWire
from penstock.ai.provider import Deciding, Model, ModelTask
from penstock.ai.providers.remote_provider import RemoteProvider


@dataclass(frozen=True)
class SystemOneProvider(RemoteProvider):
    """A service whose models only answer decisions."""

    wire: ClassVar[type[DecisionWire]] = SystemOneWire

    def model(self, task: ModelTask) -> Model:
        if not isinstance(task, Deciding):
            return super().model(task)
        return service_decider(task, self.model_name(task), self.endpoint(), self.wire)


@dataclass(frozen=True)
class TypeSafeProvider(SystemOneProvider):
    """TypeSafe, whose models are called Jev."""

    name: str = "typesafe"
    key_variables: ClassVar[tuple[str, ...]] = ("TYPESAFE_API_KEY",)
    default_url: ClassVar[str] = "https://api.typesafe.ai/v1"
    default_models: ClassVar[Mapping[str, str]] = {"decide": "jev-latest"}
    wire: ClassVar[type[DecisionWire]] = TypeSafeWire


@dataclass(frozen=True)
class PerplexityProvider(SystemOneProvider):
    """Perplexity's decision models."""

    name: str = "perplexity"
    key_variables: ClassVar[tuple[str, ...]] = ("PERPLEXITY_API_KEY",)
    default_url: ClassVar[str] = "https://api.perplexity.ai/v1"
    default_models: ClassVar[Mapping[str, str]] = {"decide": "pplx-decider-v1.2"}
    wire: ClassVar[type[DecisionWire]] = PerplexityWire


@dataclass(frozen=True)
class UpstageProvider(SystemOneProvider):
    """Upstage's decision model."""

    name: str = "upstage"
    key_variables: ClassVar[tuple[str, ...]] = ("UPSTAGE_API_KEY",)
    default_url: ClassVar[str] = "https://api.upstage.ai/v1"
    default_models: ClassVar[Mapping[str, str]] = {"decide": "solar-decide"}

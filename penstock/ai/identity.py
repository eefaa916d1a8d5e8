"""What determines the answers of a model, by the names that users know: for the fingerprint of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from penstock.ai.provider import Model, Provider
from penstock.ai.remote.addresses import shown
from penstock.ai.structured.formats import OutputFormat
from penstock.ai.structured.tools import ToolFunction
from penstock.plan.identity.code_keys import code_key

_OF_RUNNING = ("batch_size", "concurrency", "device", "gpus", "api_key", "headers")
"""Options that say where and how fast, or are secret."""

Told = tuple[tuple[str, Any], ...]


def told(
    function: str, provider: Provider, model: Model, name: str | None, options: Mapping[str, Any], **given: Any
) -> Told:
    """Return what a call of ``function`` is determined by, besides its rows; what is None or empty is left out.

    ``name`` is the model that the user asked for. A provider that is not ours counts by the code of its model, too.
    """
    is_ours = type(provider).__module__.partition(".")[0] == __name__.partition(".")[0]
    address = getattr(getattr(model, "_endpoint", None), "base_url", None)
    found: dict[str, Any] = {
        "provider": provider.name,
        "base_url": None if address is None else shown(address),
        "model": getattr(model, "model_name", None) or name or provider.default_models.get(function),
        **(_settings(provider) if is_ours else {"code": code_key(model).hex()}),
        **{each: _plain(value) for each, value in given.items()},
        **{each: _plain(value) for each, value in options.items() if each not in _OF_RUNNING},
    }
    return tuple((each, value) for each, value in found.items() if value is not None and value != ())


def _settings(provider: Provider) -> dict[str, Any]:
    """Return the settings of a provider of ours for all its models, such as a type of numbers."""
    if not dataclasses.is_dataclass(provider):
        return {}
    names = [
        field.name for field in dataclasses.fields(provider) if field.name not in ("name", "base_url", *_OF_RUNNING)
    ]
    values = {name: getattr(provider, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, str | bool | int | float)}


def _plain(value: Any) -> Any:
    match value:
        case OutputFormat():
            return f"{value.name} {value.dtype}, digest {code_key((value.schema, value.source)).hex()[:10]}"
        case tuple() if value and isinstance(value[0], ToolFunction):
            tools = ((tool.name, (tool.description, tool.schema, tool.function)) for tool in value)
            return [f"{name}, digest {code_key(parts).hex()[:10]}" for name, parts in tools]
        case _:
            return value

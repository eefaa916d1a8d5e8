"""The identity of an AI function: everything that determines its results, under names that users know. For fingerprints
of jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from penstock.ai.client.addresses import shown
from penstock.ai.decisions.questions import Question
from penstock.ai.provider import Model, Provider
from penstock.ai.structured.return_formats import OutputFormat
from penstock.ai.structured.tools import ToolFunction
from penstock.plan.identity.code_keys import code_key

_EXCLUDED = ("batch_size", "concurrency", "device", "gpus", "api_key", "headers")
"""Options that affect only speed and placement, or are secret."""

Identity = tuple[tuple[str, Any], ...]


def identity_of(
    function: str, provider: Provider, model: Model, name: str | None, options: Mapping[str, Any], **given: Any
) -> Identity:
    """Return the identity of a call of ``function``, without values that are None or empty.

    ``name`` is the model that the user asked for. For a user's own provider it includes the code of the model.
    """
    is_builtin = type(provider).__module__.partition(".")[0] == __name__.partition(".")[0]
    found: dict[str, Any] = {
        "provider": provider.name,
        "base_url": None if model.base_url is None else shown(model.base_url),
        "model": model.model_name or name or provider.default_models.get(function),
        **(_settings(provider) if is_builtin else {"code": code_key(model).hex()}),
        **{each: _plain(value) for each, value in given.items()},
        **{each: _plain(value) for each, value in options.items() if each not in _EXCLUDED},
    }
    return tuple((each, value) for each, value in found.items() if value is not None and value != ())


def _settings(provider: Provider) -> dict[str, Any]:
    """Return the settings of a built-in provider that apply to all its models."""
    if not dataclasses.is_dataclass(provider):
        return {}
    names = [field.name for field in dataclasses.fields(provider) if field.name not in ("name", "base_url", *_EXCLUDED)]
    values = {name: getattr(provider, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, str | bool | int | float)}


def _plain(value: Any) -> Any:
    match value:
        case OutputFormat():
            return f"{value.name} {value.dtype}, digest {code_key((value.schema, value.source)).hex()[:10]}"
        case tuple() if value and isinstance(value[0], ToolFunction):
            tools = ((tool.name, (tool.description, tool.schema, tool.function)) for tool in value)
            return [f"{name}, digest {code_key(parts).hex()[:10]}" for name, parts in tools]
        case ((str(), Question()), *_):
            return {name: dataclasses.asdict(question) for name, question in value}
        case _:
            return value

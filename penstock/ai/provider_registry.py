"""Providers by name, and the default provider."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any

from penstock.ai.provider import Provider
from penstock.errors import InvalidArgumentError, did_you_mean

# Modules and classes, imported when they are needed.
KNOWN: Mapping[str, tuple[str, str]] = {
    "openai": ("penstock.ai.providers.openai", "OpenAIProvider"),
    "anthropic": ("penstock.ai.providers.anthropic", "AnthropicProvider"),
    "google": ("penstock.ai.providers.google", "GoogleProvider"),
    "lm_studio": ("penstock.ai.providers.openai", "LmStudioProvider"),
    "ollama": ("penstock.ai.providers.openai", "OllamaProvider"),
    "typesafe": ("penstock.ai.decisions.decision_services", "TypeSafeProvider"),
    "perplexity": ("penstock.ai.decisions.decision_services", "PerplexityProvider"),
    "upstage": ("penstock.ai.decisions.decision_services", "UpstageProvider"),
    "transformers": ("penstock.ai.local.transformers", "TransformersProvider"),
    "vllm": ("penstock.ai.local.serving.provider", "VllmProvider"),
    "sglang": ("penstock.ai.local.serving.provider", "SglangProvider"),
    "vllm-prefix-caching": ("penstock.ai.local.serving.provider", "PrefixCachingProvider"),
}

# By default prompts go to the cloud, and models small enough for a laptop run on this machine.
DEFAULTS = {"prompt": "openai", "decide": "openai"}
LOCAL = "transformers"

_attached: dict[str, Provider] = {}
_chosen: list[Provider] = []  # set by set_provider; the last one applies


def set_provider(provider: str | Provider, **options: Any) -> None:
    """Set the default provider of the AI functions, and its options.

    ``options`` are options of the provider, such as ``api_key`` and ``base_url``. A later call with
    ``provider="openai"`` uses them as well. The initial default is ``openai`` for ``prompt`` and ``decide``, and
    ``transformers`` for the others, unless PENSTOCK_PROVIDER names one.

    >>> ps.set_provider("openai", base_url="http://localhost:8000/v1", api_key="none")
    """
    chosen = make_provider(provider, options) if isinstance(provider, str) else provider
    attach_provider(chosen, **({} if isinstance(provider, str) else options))
    _chosen[:] = [chosen]


def attach_provider(provider: str | Provider, name: str | None = None, **options: Any) -> None:
    """Register a provider under its name, or another one, for ``prompt(..., provider=name)``.

    >>> ps.attach_provider("openai", "vllm-a", base_url="http://localhost:8000/v1", api_key="none")
    """
    if isinstance(provider, str):
        provider = make_provider(provider, options)
    elif not isinstance(provider, Provider):
        raise InvalidArgumentError(f"attach_provider takes a ps.Provider or its name; got {type(provider).__name__}.")
    elif options:
        raise InvalidArgumentError("Options are for a provider given by name, not for an object.")
    known_as = name or getattr(provider, "name", None)
    if not known_as or not isinstance(known_as, str):
        raise InvalidArgumentError(
            f"{type(provider).__name__} has no name; set `name = ...` in the class, or give name=."
        )
    _attached[known_as] = provider


def detach_provider(name: str) -> None:
    """Remove a registered provider, even if it is the default."""
    removed = _attached.pop(name, None)
    if removed is None:
        raise InvalidArgumentError(f"Provider {name!r} is not attached.{did_you_mean(name, _attached)}")
    _chosen[:] = [provider for provider in _chosen if provider is not removed]


def detach_providers() -> None:
    """Remove all registered providers and the default."""
    _attached.clear()
    _chosen.clear()


def find_provider(given: str | Provider | None, function: str) -> Provider:
    if isinstance(given, Provider):
        return given
    if given is None and _chosen:
        return _chosen[0]
    name = given or os.environ.get("PENSTOCK_PROVIDER") or DEFAULTS.get(function, LOCAL)
    if not isinstance(name, str):
        raise InvalidArgumentError(f"provider={given!r} is neither the name of a provider nor a ps.Provider.")
    return _attached.get(name) or make_provider(name, {})


def make_provider(name: str, options: Mapping[str, Any]) -> Provider:
    if name in _attached and name not in KNOWN:
        if options:
            raise InvalidArgumentError(
                f"Provider {name!r} was attached as an object; create another one with these options."
            )
        return _attached[name]
    if name not in KNOWN:
        names = sorted({*KNOWN, *_attached})
        raise InvalidArgumentError(
            f"Provider {name!r} is not known; known are: {', '.join(names)}.{did_you_mean(name, names)} "
            "Register your own with ps.attach_provider(...)."
        )
    module, class_name = KNOWN[name]
    cls = getattr(importlib.import_module(module), class_name)
    taken = [option for option in inspect.signature(cls).parameters if option != "name"]
    for option in options:
        if option not in taken:
            raise InvalidArgumentError(
                f"Provider {name!r} does not take {option!r}; it takes: {', '.join(taken)}."
                f"{did_you_mean(option, taken)}"
            )
    for option in ("api_key", "base_url"):
        if options.get(option, "") is None:
            raise InvalidArgumentError(f"{option} is None; is its environment variable set?")
    provider: Provider = cls(**options)
    return provider

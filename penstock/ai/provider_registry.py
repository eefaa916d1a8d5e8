"""Providers by name, and the default provider."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Unpack, get_args

from penstock.ai.provider import Provider
from penstock.errors import InvalidArgumentError, check_choice, did_you_mean

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

Task = Literal["prompt", "decide", "embed", "classify"]
PAID = ("openai", "anthropic", "google")


class ProviderOptions(TypedDict, total=False):
    """The options of the built-in providers; each takes some of them."""

    api_key: Any
    base_url: str | None
    headers: Any
    use_chat_completions: bool
    use_completions: bool
    device: str | None
    dtype: str | None
    engine_kwargs: Mapping[str, Any] | None
    chat_template: str | None


_log = logging.getLogger("penstock.ai")
_attached: dict[str, Provider] = {}
_chosen: dict[str, Provider] = {}  # by set_provider, for each task
_switched: set[str] = set()  # tasks whose move from this machine to a paid provider was logged


def set_provider(provider: str | Provider, *, task: Task | None = None, **options: Unpack[ProviderOptions]) -> None:
    """Set the default provider of one task, or of all AI functions, and its options.

    ``options`` belong to the provider, such as ``api_key`` and ``base_url``. A later ``provider="openai"`` in a call
    uses them too. The initial default is ``openai`` for ``prompt`` and ``decide``, and ``transformers``, models on this
    machine, for ``embed`` and ``classify``, unless PENSTOCK_PROVIDER names one. When a default sends one of these to a
    paid provider for the first time, Penstock logs a warning.

    >>> ps.set_provider("openai", base_url="http://localhost:8000/v1", api_key="none")
    >>> ps.set_provider("transformers", task="embed")  # embeddings stay on this machine
    """
    if task is not None:
        check_choice("set_provider: task", task, get_args(Task))
    chosen = make_provider(provider, options) if isinstance(provider, str) else provider
    attach_provider(chosen, **({} if isinstance(provider, str) else options))
    _chosen.update(dict.fromkeys(get_args(Task) if task is None else (task,), chosen))


def attach_provider(provider: str | Provider, name: str | None = None, **options: Unpack[ProviderOptions]) -> None:
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
    for task in [task for task, provider in _chosen.items() if provider is removed]:
        del _chosen[task]


def detach_providers() -> None:
    """Remove all registered providers and the default."""
    _attached.clear()
    _chosen.clear()
    _switched.clear()


def find_provider(given: str | Provider | None, function: str) -> Provider:
    """Return the provider of a call: the given one, or else the default for its task."""
    found = given if isinstance(given, Provider) else _by_name(given, function)
    if given is None:
        _log_first_switch(found, function)
    return found


def _by_name(given: str | None, function: str) -> Provider:
    if given is None and (chosen := _chosen.get(_task_of(function))) is not None:
        return chosen
    name = given or os.environ.get("PENSTOCK_PROVIDER") or DEFAULTS.get(function, LOCAL)
    if not isinstance(name, str):
        raise InvalidArgumentError(f"provider={given!r} is neither the name of a provider nor a ps.Provider.")
    return _attached.get(name) or make_provider(name, {})


def _task_of(function: str) -> str:
    return function.partition("_")[0]


def _log_first_switch(provider: Provider, function: str) -> None:
    """Warn once for each task that leaves this machine for a paid provider because of a default."""
    task, address = _task_of(function), getattr(provider, "base_url", None) or "https://"
    is_paid = provider.name in PAID and address.startswith("https://")  # a server of one's own has no TLS
    if function not in DEFAULTS and is_paid and task not in _switched:
        _switched.add(task)
        _log.warning(
            "%s asks %r, which charges for it; without a default provider a model on this machine does it for free. "
            "ps.set_provider(%r, task=%r) goes back to that.", function, provider.name, LOCAL, task,
        )  # fmt: skip


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

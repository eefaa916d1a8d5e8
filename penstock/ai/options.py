"""Options of AI functions: check the engine's options, and leave the rest to the provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.ai.client.limits.caps import Caps
from penstock.ai.option_types import CALL_OPTIONS
from penstock.ai.provider import (
    FIRST_DELAY_S,
    MAX_RETRIES,
    POLL_INTERVAL_S,
    TIMEOUT_S,
    BatchSettings,
    CallSettings,
    Provider,
)
from penstock.config import check_price
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import Policy
from penstock.udf.options import check_options, check_positive, check_whole, error_policy, make_policy

BREAKER_CALLS = 100
"""Calls that nearly all must fail for the same reason before the circuit breaker stops a query: few, as calls cost."""

REMOTE_ONLY = ("timeout", "requests_per_minute", "tokens_per_minute", "price")
NOT_FOR_BATCHES = ("max_concurrency", "requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True)
class AiOptions:
    """The options of one AI function: error policy, call settings, and the provider's own options."""

    policy: Policy
    settings: CallSettings
    rest: Mapping[str, Any]
    remote_only: tuple[str, ...] = ()  # given options that apply only to remote models

    @staticmethod
    def of(function: str, options: Mapping[str, Any]) -> AiOptions:
        """Split and check options. None counts as not given, except for ``max_errors``."""
        given = {name: value for name, value in options.items() if value is not None or name == "max_errors"}
        taken = {name: given.pop(name) for name in CALL_OPTIONS if name in given}
        for name, least in (("max_retries", 0), ("max_concurrency", 1), ("batch_max_requests", 1)):
            if name in taken:
                check_whole(function, name, taken[name], least)
        for name in ("timeout", "requests_per_minute", "tokens_per_minute", "batch_poll_interval"):
            check_positive(function, name, taken.get(name))
        on_error = error_policy(function, taken.get("on_error", "raise"))
        limits = {"on_error": on_error, "max_errors": taken.get("max_errors", "auto")}
        check_options(function, limits)
        policy = make_policy(function, limits, can_stop=True, breaker_rows=BREAKER_CALLS)
        caps = Caps(taken.get("max_concurrency"), taken.get("requests_per_minute"), taken.get("tokens_per_minute"))
        cache = taken.get("cache")
        if cache is not None and not isinstance(cache, bool):
            raise InvalidArgumentError(f"{function}: cache={cache!r} must be True or False.")
        check_price(function, price := taken.get("price"))
        settings = CallSettings(
            taken.get("max_retries", MAX_RETRIES),
            taken.get("timeout", TIMEOUT_S),
            caps,
            FIRST_DELAY_S,
            cache,
            price,
            _batch_settings(function, taken),
        )
        return AiOptions(policy, settings, given, tuple(name for name in REMOTE_ONLY if name in taken))

    def of_provider(self, function: str, provider: Provider) -> AiOptions:
        """Return the options for a provider: without workers here, ``concurrency`` limits the requests.

        Refuse ``batch_api`` if the provider has none.
        """
        if self.settings.batch is not None and not provider.has_batch_api:
            raise InvalidArgumentError(
                f"{function}: batch_api=True is for providers with a batch API, 'openai' and 'anthropic'; "
                f"{provider.name!r} has none. Leave it out to send requests one by one."
            )
        if provider.has_workers or "concurrency" not in self.rest:
            return self
        rest = dict(self.rest)
        check_whole(function, "concurrency", most := rest.pop("concurrency"), 1)
        if self.settings.caps.max_concurrency is not None:
            raise InvalidArgumentError(f"{function}: max_concurrency= means concurrency=; give one of them.")
        if self.settings.batch is not None:
            raise InvalidArgumentError(f"{function}: concurrency has no effect with batch_api=True; leave it out.")
        caps = replace(self.settings.caps, max_concurrency=most)
        return replace(self, settings=replace(self.settings, caps=caps), rest=rest)

    def check_local(self, function: str, model: str) -> None:
        """Refuse options that have no effect on a model that sends no requests."""
        for name in self.remote_only:
            raise InvalidArgumentError(
                f"{function}: {name} is for remote models, and {model} runs on this machine; leave it out."
            )


def check_labels(function: str, labels: Any) -> tuple[str, ...]:
    """Return labels as a tuple. Refuse fewer than two, other values than texts, and duplicates."""
    is_list = isinstance(labels, Sequence) and not isinstance(labels, str)
    if not is_list or not labels or not all(isinstance(label, str) for label in labels):
        raise InvalidArgumentError(
            f"{function}: labels must be a list of texts such as ['cat', 'dog']; got {labels!r}."
        )
    if len(set(labels)) < len(labels):
        raise InvalidArgumentError(f"{function}: a label occurs twice in {list(labels)!r}.")
    if len(labels) == 1:
        raise InvalidArgumentError(
            f"{function}: every row would get the only label {labels[0]!r}. Give two or more, such as "
            f"[{labels[0]!r}, 'other'], or ask a question with yes or no by ps.ask."
        )
    return tuple(labels)


def _batch_settings(function: str, taken: Mapping[str, Any]) -> BatchSettings | None:
    """Return the settings of the batch API, or None if the calls do not use it."""
    is_batch = taken.get("batch_api", False)
    if not isinstance(is_batch, bool):
        raise InvalidArgumentError(f"{function}: batch_api={is_batch!r} must be True or False.")
    for name in NOT_FOR_BATCHES if is_batch else ("batch_poll_interval", "batch_max_requests"):
        if name in taken:
            raise InvalidArgumentError(
                f"{function}: {name} has no effect {'with' if is_batch else 'without'} batch_api=True; leave it out."
            )
    if not is_batch:
        return None
    return BatchSettings(taken.get("batch_poll_interval", POLL_INTERVAL_S), taken.get("batch_max_requests"))

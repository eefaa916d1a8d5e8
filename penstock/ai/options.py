"""The options of AI functions: those of the engine taken out and checked, the rest left for the provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.ai.provider import (
    CALL_OPTIONS,
    FIRST_DELAY_S,
    MAX_RETRIES,
    POLL_INTERVAL_S,
    TIMEOUT_S,
    BatchSettings,
    CallSettings,
    Provider,
)
from penstock.ai.remote.limits.limiter import Caps
from penstock.cost.price_files import check_price
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import OnError, Policy
from penstock.udf.options import check_whole, make_policy

ON_ERROR: dict[str, OnError] = {"raise": "raise", "null": "ignore", "ignore": "ignore", "log": "log"}

OF_REQUESTS = ("timeout", "requests_per_minute", "tokens_per_minute", "price")
OF_SINGLE_REQUESTS = ("max_concurrency", "requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True)
class AiOptions:
    """What a call says about its calls: when they fail, how many at once, and what is for the provider to read."""

    policy: Policy
    settings: CallSettings
    rest: Mapping[str, Any]
    of_requests: tuple[str, ...] = ()  # those that were given and mean something for remote models alone

    @staticmethod
    def of(function: str, options: Mapping[str, Any]) -> AiOptions:
        """Take out what is the engine's; what is None counts as not given."""
        given = {name: value for name, value in options.items() if value is not None}
        taken = {name: given.pop(name) for name in CALL_OPTIONS if name in given}
        for name, least in (("max_retries", 0), ("max_concurrency", 1), ("batch_max_requests", 1)):
            if name in taken:
                check_whole(function, name, taken[name], least)
        for name in ("timeout", "requests_per_minute", "tokens_per_minute", "batch_poll_interval"):
            _check_positive(function, name, taken.get(name))
        on_error = taken.get("on_error", "raise")
        if on_error not in ON_ERROR:
            raise InvalidArgumentError(
                f"{function}: on_error={on_error!r} is not known; use one of {', '.join(ON_ERROR)}."
                f"{did_you_mean(str(on_error), ON_ERROR)}"
            )
        policy = make_policy(
            function,
            on_error=ON_ERROR[on_error],
            max_retries=0,
            max_errors=taken.get("max_errors"),
            timeout_s=None,
            can_stop=True,
        )
        caps = Caps(taken.get("max_concurrency"), taken.get("requests_per_minute"), taken.get("tokens_per_minute"))
        cache = taken.get("cache")
        _check_cache(function, cache)
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
        return AiOptions(policy, settings, given, tuple(name for name in OF_REQUESTS if name in taken))

    def check_provider(self, function: str, provider: Provider) -> None:
        """Refuse ``batch_api`` where the provider has none."""
        if self.settings.batch is not None and not provider.has_batch_api:
            raise InvalidArgumentError(
                f"{function}: batch_api=True is for providers with a batch API, 'openai' and 'anthropic'; "
                f"{provider.name!r} has none. Leave it out, and rows are asked one by one, many at once."
            )

    def check_local(self, function: str, model: str) -> None:
        """Refuse what would do nothing for a model that sends no requests."""
        for name in self.of_requests:
            raise InvalidArgumentError(
                f"{function}: {name} is for requests to remote models, and {model} sends none: it is given batches in "
                "workers of its own; leave it out."
            )


def check_labels(function: str, labels: Any) -> tuple[str, ...]:
    """Return labels as a tuple: at least one, texts, none twice."""
    given = [labels] if isinstance(labels, str) else labels
    if not isinstance(given, Sequence) or not given or not all(isinstance(label, str) for label in given):
        raise InvalidArgumentError(f"{function}: labels is a list of texts such as ['cat', 'dog']; got {labels!r}.")
    if len(set(given)) < len(given):
        raise InvalidArgumentError(f"{function}: a label stands twice in {list(given)!r}.")
    return tuple(given)


def _check_positive(function: str, name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidArgumentError(f"{function}: {name}={value!r} must be a number above 0.")


def _batch_settings(function: str, taken: Mapping[str, Any]) -> BatchSettings | None:
    """Return how batches are made, None where calls are made one by one."""
    is_batch = taken.get("batch_api", False)
    if not isinstance(is_batch, bool):
        raise InvalidArgumentError(f"{function}: batch_api={is_batch!r} is neither True nor False.")
    for name in OF_SINGLE_REQUESTS if is_batch else ("batch_poll_interval", "batch_max_requests"):
        if name in taken:
            raise InvalidArgumentError(
                f"{function}: {name} means nothing {'with' if is_batch else 'without'} batch_api=True; leave it out."
            )
    if not is_batch:
        return None
    return BatchSettings(taken.get("batch_poll_interval", POLL_INTERVAL_S), taken.get("batch_max_requests"))


def _check_cache(function: str, cache: Any) -> None:
    if cache is not None and not isinstance(cache, bool):
        raise InvalidArgumentError(f"{function}: cache={cache!r} is neither True nor False.")

"""The sampling options of local models, which ``generate`` of transformers applies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError

MAX_OUTPUT_TOKENS = 512
LIMITS = ("max_output_tokens", "max_tokens")
ROW_OPTIONS = ("temperature", "top_p", "top_k", *LIMITS, "stop", "seed", "repetition_penalty")

Sampling = Mapping[str, Any]
"""The given options by name; ``max_new_tokens`` limits the answer."""


def checked_sampling(options: Mapping[str, Any]) -> Sampling:
    """Return the sampling options among the options of a model or of a request."""
    found: dict[str, Any] = {}
    for name in ROW_OPTIONS:
        if (value := options.get(name)) is not None:
            checked = _checked_stop(value) if name == "stop" else checked_number(name, value)
            found.setdefault("max_new_tokens" if name in LIMITS else name, checked)
    return found


def is_random(sampling: Sampling, samples_by_default: bool) -> bool:
    """Return whether tokens are drawn; ``samples_by_default`` says what the model's files ask for."""
    if (temperature := sampling.get("temperature")) is not None:
        return bool(temperature > 0)
    return samples_by_default or "top_p" in sampling or "top_k" in sampling


NUMBERS: dict[str, tuple[type, Callable[[Any], bool], str]] = {
    "temperature": (float, lambda value: 0 <= value < math.inf, "a number of 0 or more"),
    "top_p": (float, lambda value: 0 < value <= 1, "a number above 0 and up to 1"),
    "top_k": (int, lambda value: value >= 0, "a whole number of 0 or more"),
    "seed": (int, lambda value: 0 <= value < 2**63, "a whole number of 0 or more"),
    "repetition_penalty": (float, lambda value: 0 < value < math.inf, "a number above 0"),
    "top_logprobs": (int, lambda value: value >= 0, "a whole number of 0 or more"),
    **dict.fromkeys((*LIMITS, "max_length"), (int, lambda value: value >= 1, "a number of tokens, 1 or more")),
}


def checked_number(name: str, value: Any) -> Any:
    if value is None:
        return None
    kind, is_fitting, words = NUMBERS[name]
    kinds = int | np.integer if kind is int else int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kinds) or not is_fitting(value):
        raise InvalidArgumentError(f"prompt: {name} is {words}; got {value!r}")
    return kind(value)


def _checked_stop(stop: Any) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in stops):
        raise InvalidArgumentError(f"prompt: stop is a text or a list of texts; got {stop!r}")
    return stops

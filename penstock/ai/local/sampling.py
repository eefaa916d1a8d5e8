"""The sampling options of local models, and how they choose the next token of an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ai.providers.wire import check_row_options
from penstock.errors import InvalidArgumentError

MAX_OUTPUT_TOKENS = 512
LIMITS = ("max_output_tokens", "max_tokens")
ROW_OPTIONS = ("temperature", "top_p", "top_k", *LIMITS, "stop", "seed", "repetition_penalty")
DEFAULT_TOP_K = 50  # of transformers, for models that set none


@dataclass(frozen=True)
class Sampling:
    """Sampling options of all rows, or of a single row."""

    max_new: int
    stop: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(options: Mapping[str, Any]) -> Sampling:
        given = {name: value for name, value in options.items() if name in ROW_OPTIONS and value is not None}
        rest = tuple(
            sorted((name, checked_number(name, given[name])) for name in given if name not in (*LIMITS, "stop"))
        )
        limits = [checked_number(name, given[name]) for name in LIMITS if name in given]
        return Sampling(limits[0] if limits else MAX_OUTPUT_TOKENS, _checked_stop(given), rest)

    def changed(self, options: Mapping[str, Any] | None) -> Sampling:
        """Return these options, overridden by the options of one request."""
        if not options:
            return self
        check_row_options(options, ROW_OPTIONS)
        own = Sampling.of(options)
        return Sampling(
            own.max_new if any(options.get(name) is not None for name in LIMITS) else self.max_new,
            own.stop or self.stop,
            tuple(sorted({**dict(self.options), **dict(own.options)}.items())),
        )

    def is_random(self, samples_by_default: bool) -> bool:
        """Return whether tokens are drawn; ``samples_by_default`` says what the model's files ask for."""
        given = dict(self.options)
        if (temperature := given.get("temperature")) is not None:
            return bool(temperature > 0)
        return samples_by_default or "top_p" in given or "top_k" in given


class TokenChooser:
    """Chooses tokens from logits. The model's ``generation_config`` gives the options that the user omits."""

    def __init__(self, defaults: Any) -> None:
        self._defaults = defaults
        self._processors: dict[tuple[tuple[str, Any], ...], Any] = {}  # by options

    def is_random(self, sampling: Sampling) -> bool:
        return sampling.is_random(bool(self._defaults.do_sample))

    def choose(
        self,
        logits: Any,
        samplings: Sequence[Sampling],
        generators: Sequence[Any],
        tokens_of: Callable[[int], list[int]],
    ) -> Any:
        """Return the next token of each row as a tensor.

        A row that has a generator draws from it, so that its answer does not depend on the other rows. ``tokens_of``
        returns the tokens of a row so far, with its prompt.
        """
        import torch

        rows_of: dict[tuple[tuple[str, Any], ...], list[int]] = {}  # by options: each group costs calls of the device
        for row, sampling in enumerate(samplings):
            rows_of.setdefault(sampling.options, []).append(row)
        tokens = torch.empty(len(samplings), dtype=torch.long, device=logits.device)
        for rows in rows_of.values():
            sampling = samplings[rows[0]]
            scores = logits if len(rows_of) == 1 else logits[rows]
            processors = self._processors_of(sampling)
            if processors:
                ids = _padded([tokens_of(row) for row in rows], logits.device) if self._penalty(sampling) else None
                scores = processors(ids, scores)
            if not self.is_random(sampling):
                tokens[rows] = scores.argmax(-1)
                continue
            shares = scores.softmax(-1)
            if generators[rows[0]] is None:  # a seed is part of the options, so all rows of a group have one, or none
                tokens[rows] = torch.multinomial(shares, 1)[:, 0]
                continue
            for row, share in zip(rows, shares, strict=True):
                tokens[row] = torch.multinomial(share, 1, generator=generators[row])[0]
        return tokens

    def _penalty(self, sampling: Sampling) -> float | None:
        penalty = dict(sampling.options).get("repetition_penalty", self._defaults.repetition_penalty)
        return penalty if penalty not in (None, 1.0) else None

    def _processors_of(self, sampling: Sampling) -> Any:
        if (found := self._processors.get(sampling.options)) is None:
            found = self._processors[sampling.options] = self._make_processors(sampling)
        return found

    def _make_processors(self, sampling: Sampling) -> Any:
        import transformers as hf

        found = hf.LogitsProcessorList()
        if penalty := self._penalty(sampling):
            found.append(hf.RepetitionPenaltyLogitsProcessor(penalty))
        if not self.is_random(sampling):
            return found
        given, defaults = dict(sampling.options), self._defaults
        if (temperature := given.get("temperature", defaults.temperature)) not in (None, 1.0):
            found.append(hf.TemperatureLogitsWarper(float(temperature)))
        top_k = given.get("top_k", DEFAULT_TOP_K if defaults.top_k is None else defaults.top_k)
        if top_k:
            found.append(hf.TopKLogitsWarper(top_k))
        if (top_p := given.get("top_p", defaults.top_p)) is not None and top_p < 1:
            found.append(hf.TopPLogitsWarper(float(top_p)))
        if (min_p := getattr(defaults, "min_p", None)) is not None:
            found.append(hf.MinPLogitsWarper(min_p))
        return found


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


def _checked_stop(options: Mapping[str, Any]) -> tuple[str, ...]:
    stop = options.get("stop") or ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in stops):
        raise InvalidArgumentError(f"prompt: stop is a text or a list of texts; got {stop!r}")
    return stops


def _padded(texts: Sequence[list[int]], device: Any) -> Any:
    """Return rows of tokens as one tensor. A row is padded with its own first token, which occurs in it anyway."""
    import torch

    width = max(map(len, texts))
    return torch.tensor([[text[0]] * (width - len(text)) + text for text in texts], device=device)

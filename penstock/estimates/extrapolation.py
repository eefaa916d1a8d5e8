"""Project the calls of a sample to all rows: the sample mean with its standard error."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.cost.accounts import NANO, CallRecord

STANDARD_ERRORS = 1.73
"""Half the width of a 90 % interval for the default sample of 20 rows."""

MAX_AT_ONCE = 1024
"""Concurrent calls to a model where the user sets no smaller limit."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 90 % interval."""

    middle: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """Return the sum, assuming that both are high together or low together: a row that is long for one model is
        long for another.
        """
        return Interval(self.middle + other.middle, self.low + other.low, self.high + other.high)


NOTHING = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """The estimated use of one model by all rows.

    ``dollars`` is None if the price is not known, ``seconds`` for batch calls, whose time is unknown.
    """

    provider: str
    model: str
    calls: Interval
    tokens_in: Interval
    tokens_out: Interval
    dollars: Interval | None
    seconds: Interval | None


def project_calls(calls: Iterable[CallRecord], num_sampled: int, num_rows: int) -> list[ModelEstimate]:
    """Return the estimate for ``num_rows`` rows by model, given the calls of ``num_sampled`` rows.

    Calls that a ledger answered count as made, because it may not have the answers of other rows.
    """
    by_model: dict[tuple[str, str], list[CallRecord]] = defaultdict(list)
    for call in calls:
        by_model[call.provider, call.model].append(call)
    return [_model_estimate(found, num_sampled, num_rows) for found in by_model.values()]


def _model_estimate(calls: Sequence[CallRecord], num_sampled: int, num_rows: int) -> ModelEstimate:
    counted, given, made, dollars = scaled(call_figures(calls), num_sampled, num_rows)
    is_priced = all(call.nanodollars is not None for call in calls)
    return ModelEstimate(
        calls[0].provider,
        calls[0].model,
        counted,
        given,
        made,
        dollars if is_priced else None,
        None if any(call.is_for_batch for call in calls) else duration_of(calls, counted, given + made),
    )


def call_figures(calls: Sequence[CallRecord]) -> Any:
    """Return a matrix with the calls, tokens in, tokens out and dollars of each input.

    Inputs that were sent together share the figures of their call by weight.
    """
    rows = []
    for call in calls:
        figures = [1.0, call.input_tokens, call.output_tokens, (call.nanodollars or 0) / NANO]
        weights = call.inputs or (1,)
        num_together = max(call.max_inputs or 0, len(weights)) if call.inputs else 1  # when all rows are sent
        for weight in weights:
            share = weight / max(sum(weights), 1)
            rows.append([1 / num_together, *(figure * share for figure in figures[1:])])
    return np.array(rows).reshape(-1, 4)


def scaled(figures: Any, num_sampled: int, num_rows: int) -> list[Interval]:
    """Return the sum of each column for ``num_rows`` rows, given the inputs of ``num_sampled`` rows.

    The larger the share of rows in the sample, the narrower the interval.
    """
    num_without = max(0, num_sampled - len(figures))  # rows that made no call
    values = np.vstack([figures, np.zeros((num_without, figures.shape[1]))])
    values = values[np.lexsort(values.T)]  # so that the order of the answers does not matter
    scale = num_rows / max(num_sampled, 1)
    middles = values.sum(axis=0) * scale
    margins = np.zeros(len(middles))
    if len(values) > 1:
        unsampled = math.sqrt(max(0.0, 1 - num_sampled / max(num_rows, 1)))
        margins = STANDARD_ERRORS * unsampled * scale * math.sqrt(len(values)) * values.std(axis=0, ddof=1)
    found = zip(middles.tolist(), margins.tolist(), strict=True)
    return [Interval(middle, max(0.0, middle - margin), middle + margin) for middle, margin in found]


def duration_of(calls: Sequence[CallRecord], counted: Interval, tokens: Interval) -> Interval:
    """Return the rough duration of the calls to a model.

    A short sample cannot show how many concurrent calls a server bears. So one end of the interval assumes the most
    calls that are allowed, the other end as many as the sample reached.
    """
    latencies = [call.latency_s for call in calls if call.latency_s is not None]
    latency_s = sum(latencies) / len(latencies) if latencies else 0.0
    max_concurrency, per_minute, tokens_per_minute = calls[0].caps
    most = min(max_concurrency or MAX_AT_ONCE, MAX_AT_ONCE)
    reached = min(max(call.max_at_once or 1 for call in calls), most)

    def seconds(num_calls: float, num_tokens: float, at_once: int) -> float:
        paced = [60 * num_calls / per_minute] if per_minute else []
        paced += [60 * num_tokens / tokens_per_minute] if tokens_per_minute else []
        return max(latency_s if num_calls else 0.0, num_calls * latency_s / at_once, *paced, 0.0)

    low, high = seconds(counted.low, tokens.low, most), seconds(counted.high, tokens.high, reached)
    return Interval(math.sqrt(low * high), low, high)

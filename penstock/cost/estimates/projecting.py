"""From the calls of a sample to those of all rows, and how sure that is. The same calls give the same figures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.cost.accounts import NANO, CallRecord

NUM_RESAMPLES = 1_000
SEED = 0
Z = 1.6449  # of the normal distribution: 90 % lie within, 5 % beyond each end
MOST_AT_ONCE = 1024
"""Calls to a model that may be under way where nobody says a smaller number."""


@dataclass(frozen=True, slots=True)
class Range:
    """A figure and the interval that holds it in 90 of 100 cases."""

    middle: float
    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        """Return the sum as if both were high, or low, together: what is long for one model often is for another."""
        return Range(self.middle + other.middle, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        return Range(self.middle * factor, self.low * factor, self.high * factor)


NOTHING = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """What all rows will take of one model; ``dollars`` is None where the price is not known.

    ``seconds`` is None where calls go by batches, which providers answer when they have time.
    """

    provider: str
    model: str
    calls: Range
    tokens_in: Range
    tokens_out: Range
    dollars: Range | None
    seconds: Range | None


def projected(calls: Iterable[CallRecord], num_sampled: int, num_rows: int) -> list[ModelEstimate]:
    """Return what ``num_rows`` rows will take, by model, when ``num_sampled`` of them made these calls.

    Calls that a ledger answered count as if they were made: of other rows it may have nothing.
    """
    by_model: dict[tuple[str, str], list[CallRecord]] = defaultdict(list)
    for call in calls:
        by_model[call.provider, call.model].append(call)
    return [_model_estimate(found, num_sampled, num_rows) for found in by_model.values()]


def _model_estimate(calls: Sequence[CallRecord], num_sampled: int, num_rows: int) -> ModelEstimate:
    figures = rows_of(calls)
    counted, given, made, nanodollars = scaled(figures, num_sampled, num_rows)
    is_priced = all(call.nanodollars is not None for call in calls)
    return ModelEstimate(
        calls[0].provider,
        calls[0].model,
        counted,
        given,
        made,
        nanodollars.times(1 / NANO) if is_priced else None,
        None if any(call.is_for_batch for call in calls) else time_of(calls, counted, given + made),
    )


def rows_of(calls: Sequence[CallRecord]) -> Any:
    """Return calls, tokens in, tokens out and billionths of dollars of each row that made calls, as a matrix.

    Inputs that went together share a call by their weights.
    """
    rows: dict[Any, Any] = {}
    for number, call in enumerate(calls):
        figures = np.array([1.0, call.input_tokens, call.output_tokens, call.nanodollars or 0])
        if call.parts:
            whole = max(call.max_parts or 0, len(call.parts))
            for part, weight in enumerate(call.parts):
                share = figures * (weight / max(sum(call.parts), 1))
                share[0] = 1 / whole  # of all rows, as many as may go together will
                rows[number, part] = share
        else:
            key = (number, None) if call.row is None else call.row
            rows[key] = rows[key] + figures if key in rows else figures
    return np.array(list(rows.values())).reshape(-1, 4)


def scaled(figures: Any, num_sampled: int, num_rows: int) -> list[Range]:
    """Return the sum of each column for ``num_rows`` rows, where these are the rows of a sample that had any.

    The interval comes from sums of rows drawn again and again (bootstrap), widened for the small number of them, and
    narrowed where the sample is a large part of all rows. Where only some rows ask, it is at least as wide as that of
    their share: of three rows that ask among twenty, drawing again says too little.
    """
    num_without = max(0, num_sampled - len(figures))  # rows that asked nothing
    values = np.vstack([figures, np.zeros((num_without, figures.shape[1]))])
    values = values[np.lexsort(values.T)]  # whatever order the answers came in
    scale = num_rows / max(num_sampled, 1)
    middle = values.sum(axis=0) * scale
    if len(values) < 2:
        return [Range(each, each, each) for each in middle.tolist()]
    random = np.random.default_rng(SEED)
    drawn = random.multinomial(len(values), np.full(len(values), 1 / len(values)), size=NUM_RESAMPLES) @ values * scale
    freedom = len(values) - 1
    wider = math.sqrt(len(values) / freedom) * (1 + (Z**2 + 1) / (4 * freedom))  # Student's quantile by the normal's
    left = math.sqrt(max(0.0, 1 - num_sampled / max(num_rows, 1)))
    low, high = (np.quantile(drawn, share, axis=0) - middle for share in (0.05, 0.95))
    low, high = low * wider, high * wider
    if num_without and len(figures):
        least, most = share_within(len(figures), num_sampled)
        each = figures.mean(axis=0) * num_rows  # if all rows asked
        low, high = np.minimum(low, each * least - middle), np.maximum(high, each * most - middle)
    found = zip(middle, low * left, high * left, strict=True)
    return [Range(float(m), max(0.0, float(m + lo)), float(m + hi)) for m, lo, hi in found]


def share_within(num_hits: int, num_tries: int) -> tuple[float, float]:
    """Return the interval of 90 % of a share that was hit so often in so many tries (Clopper and Pearson's).

    >>> least, most = share_within(0, 20)
    >>> least, round(most, 3)
    (0.0, 0.139)
    """

    def at_most(num: int, share: float) -> float:
        return math.fsum(math.comb(num_tries, k) * share**k * (1 - share) ** (num_tries - k) for k in range(num + 1))

    def crossing(num: int, level: float) -> float:
        """Return the share with which at most ``num`` are hit with a probability of ``level``; more make it less."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(num, middle) > level else (low, middle)
        return low

    least = crossing(num_hits - 1, 0.95) if num_hits else 0.0
    return least, crossing(num_hits, 0.05) if num_hits < num_tries else 1.0


def time_of(calls: Sequence[CallRecord], counted: Range, tokens: Range) -> Range:
    """Return about how long the calls to a model take, from as many at once as may be, to as many as the sample found.

    A short sample cannot find how many a server bears, so the ends are far apart and the middle is between.
    """
    latencies = [call.latency_s for call in calls if call.latency_s is not None]
    latency_s = sum(latencies) / len(latencies) if latencies else 0.0
    max_at_once, per_minute, tokens_per_minute = calls[0].caps
    most = min(max_at_once or MOST_AT_ONCE, MOST_AT_ONCE)
    found = min(max((call.max_at_once or 1 for call in calls), default=1), most)

    def seconds(num_calls: float, num_tokens: float, at_once: int) -> float:
        paced = [60 * num_calls / per_minute] if per_minute else []
        paced += [60 * num_tokens / tokens_per_minute] if tokens_per_minute else []
        return max(latency_s if num_calls else 0.0, num_calls * latency_s / at_once, *paced, 0.0)

    low, high = seconds(counted.low, tokens.low, most), seconds(counted.high, tokens.high, found)
    return Range(math.sqrt(low * high), low, high)

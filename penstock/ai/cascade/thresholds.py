"""Find thresholds for a cheap judge's scores that keep a promise: a least precision and recall, with a confidence.

The expensive model labels two uniform samples. The *pilot* chooses the judge, the size of the second sample, and the
thresholds to try, in an order. The *calibration* sample then tests each threshold exactly (binomial). A test stops at
the first threshold that fails, so its error does not grow with the number of thresholds ("fixed sequence testing").
Precision and recall share the error. The samples' own rows are never guessed.

Sampling without replacement makes the binomial tests safe rather than exact. A row whose score is NaN is asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.plan.cascade_relations import Promise

Numbers = np.ndarray[Any, Any]

MAX_PILOT = 400
PILOT_SHARE = 10  # one row in ten of a small input
SPARE = 3.4  # the calibration sample aims at this multiple of the true rows that a test without a miss needs
MIN_CALIBRATION = 300
CALIBRATION_SHARE = 4  # one row in four at most
MAX_CALIBRATION = 50_000
LOG_FACTORIALS: Numbers = np.cumsum(np.log(np.maximum(np.arange(MAX_CALIBRATION + 1), 1)))
HIGHEST_TARGET = 0.999  # a sample for more would be all rows
MIN_DECIDED = 0.1
"""A judge that decides a smaller share of the rows is useless: its own calls cost about as much as it saves."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share in the sample, and the lower end of its confidence interval."""

    estimate: float
    low: float

    @staticmethod
    def of(num_true: int, num_rows: int, error: float) -> Share:
        if not num_rows:
            return Share(1.0, 0.0)
        return Share(num_true / num_rows, lower_bound(num_true, num_rows, error))

    def __str__(self) -> str:
        return f"{self.estimate:.2f} (at least {self.low:.2f})"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Scores below ``low`` are no, scores from ``high`` on are yes, and the model decides between them."""

    low: float = -math.inf
    high: float = math.inf
    decided: float = 0.0  # the share of rows that the judge decides
    precision: Share = Share(1.0, 1.0)
    recall: Share = Share(1.0, 1.0)

    @property
    def is_useful(self) -> bool:
        return self.decided >= MIN_DECIDED


def pilot_rows(num_rows: int) -> int:
    """Return the size of the first sample."""
    return min(MAX_PILOT, -(-num_rows // PILOT_SHARE))


def max_calibration_rows(num_rows: int) -> int:
    """Return the largest size of the second sample."""
    return min(num_rows // CALIBRATION_SHARE, MAX_CALIBRATION)


def wanted_calibration_rows(pilot: Numbers, promise: Promise) -> int:
    """Return the size of the second sample, given the labels of the first one.

    It is larger if few rows are true, and for a higher promise.

    >>> promise = Promise(0.9, 0.9, 0.95)
    >>> wanted_calibration_rows(np.arange(400) < 100, promise), wanted_calibration_rows(np.arange(400) < 3, promise)
    (474, 11964)
    """
    share = float(pilot.sum() + 1) / (len(pilot) + 2)
    highest = min(max(promise.precision, promise.recall), HIGHEST_TARGET)
    needed = math.log(promise.error) / math.log(highest)
    return max(MIN_CALIBRATION, round(SPARE * needed / share))


def find_thresholds(
    pilot_scores: Numbers, pilot: Numbers, scores: Numbers, labels: Numbers, promise: Promise
) -> Thresholds:
    """Return the thresholds that decide the most rows and keep the promise."""
    tried = np.unique(pilot_scores[np.isfinite(pilot_scores)])
    high = _highest_yes(tried, pilot_scores, pilot, scores, labels, promise)
    low = min(_lowest_asked(tried, scores, labels, promise), high)  # a lower threshold has a higher recall
    is_no, is_yes = scores < low, scores >= high
    found, wrong = int((labels & ~is_no).sum()), int((~labels & is_yes).sum())
    return Thresholds(
        low,
        high,
        float((is_no | is_yes).mean()) if len(scores) else 0.0,
        Share.of(found, found + wrong, promise.error) if wrong or is_yes.any() else Share(1.0, 1.0),
        Share.of(found, int(labels.sum()), promise.error) if is_no.any() else Share(1.0, 1.0),
    )


def _lowest_asked(tried: Numbers, scores: Numbers, labels: Numbers, promise: Promise) -> float:
    """Return the highest threshold that keeps the promised recall: few true rows score lower.

    Recall falls as the threshold rises, so the test begins with the lowest one, which is the safest.
    """
    low, true_scores = -math.inf, scores[labels]
    for threshold in tried:
        num_found = len(true_scores) - int((true_scores < threshold).sum())
        if tail(num_found, len(true_scores), promise.recall) > promise.error:
            break
        low = float(threshold)
    return low


def _highest_yes(
    tried: Numbers, pilot_scores: Numbers, pilot: Numbers, scores: Numbers, labels: Numbers, promise: Promise
) -> float:
    """Return the lowest tested threshold that keeps the promised precision: most rows from it on are true.

    The test begins with the thresholds that pass most clearly in the pilot.
    """
    high = math.inf
    for threshold in tried[np.argsort(-_expected_to_pass(tried, pilot_scores, pilot, promise), kind="stable")]:
        is_yes = scores >= threshold
        if tail(int(labels[is_yes].sum()), int(is_yes.sum()), promise.precision) > promise.error:
            break
        high = min(high, float(threshold))
    return high


def _expected_to_pass(tried: Numbers, scores: Numbers, labels: Numbers, promise: Promise) -> Numbers:
    """Return, for each threshold, how far its precision in the pilot lies above the target, in standard errors."""
    is_yes = scores >= tried[:, None]
    num_rows = is_yes.sum(1)
    precision = ((is_yes & labels).sum(1) + 1) / (num_rows + 2)
    expected: Numbers = (precision - promise.precision) * np.sqrt(num_rows)
    return expected


def tail(num_true: int, num_rows: int, share: float) -> float:
    """Return the probability of ``num_true`` or more among ``num_rows``, each true with probability ``share``.

    >>> round(tail(36, 36, 0.9), 4)
    0.0225
    """
    if num_true <= 0 or share >= 1:
        return 1.0
    counts = np.arange(num_true, num_rows + 1)
    weights = LOG_FACTORIALS[num_rows] - LOG_FACTORIALS[counts] - LOG_FACTORIALS[num_rows - counts]
    return float(np.exp(weights + counts * math.log(share) + (num_rows - counts) * math.log1p(-share)).sum())


def lower_bound(num_true: int, num_rows: int, error: float) -> float:
    """Return the lower end of the exact (Clopper-Pearson) interval of a share.

    >>> round(lower_bound(36, 36, 0.025), 3)
    0.903
    """
    low, high = 0.0, num_true / num_rows
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(num_true, num_rows, middle) <= error else (low, middle)
    return low

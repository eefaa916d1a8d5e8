"""A cheap judge that learns from labelled vectors: logistic regression with a penalty, fitted by Newton's method."""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]

MAX_STEPS = 25
TOLERANCE = 1e-4
NUM_FOLDS = 5
LOGIT_SPREAD = 3.0
"""The expected standard deviation of the logits, which sets the penalty: many numbers and few labels need a strong
one."""


class LearnedJudge:
    """Scores vectors after learning from labelled ones. A vector with NaN has the score NaN."""

    def __init__(self, vectors: Numbers, labels: Numbers) -> None:
        is_valid = np.isfinite(vectors).all(axis=1)
        vectors, labels = vectors[is_valid], labels[is_valid].astype(float)
        self._mean = vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1])
        self._scale = vectors.std(axis=0) + 1e-9 if len(vectors) else np.ones(vectors.shape[1])
        # With fewer labels than numbers, all that can be learned lies in the space that the labelled vectors span.
        self._space = (
            np.linalg.qr(((vectors - self._mean) / self._scale).T)[0] if len(vectors) < vectors.shape[1] else None
        )
        inputs = self._inputs(vectors)
        penalty = np.full(inputs.shape[1], vectors.shape[1] / LOGIT_SPREAD**2)
        penalty[-1] = 1e-2  # of the intercept
        self._weights = np.zeros(inputs.shape[1])
        for _ in range(MAX_STEPS):
            found = _logistic(inputs @ self._weights)
            slope = inputs.T @ (labels - found) - penalty * self._weights
            curvature = (inputs.T * (found * (1 - found))) @ inputs + np.diag(penalty)
            step = np.linalg.solve(curvature, slope)
            self._weights += step
            if np.abs(step).max() < TOLERANCE:
                break

    def scores(self, vectors: Numbers) -> Numbers:
        return _logistic(self._inputs(vectors) @ self._weights)

    def _inputs(self, vectors: Numbers) -> Numbers:
        scaled = (vectors - self._mean) / self._scale
        return np.column_stack([scaled if self._space is None else scaled @ self._space, np.ones(len(scaled))])


def held_out_scores(vectors: Numbers, labels: Numbers) -> Numbers:
    """Return a score for each vector by a judge that has not learned from it."""
    scores, folds = np.full(len(vectors), np.nan), np.arange(len(vectors)) % NUM_FOLDS
    for fold in range(min(NUM_FOLDS, len(vectors))):
        own = folds == fold
        scores[own] = LearnedJudge(vectors[~own], labels[~own]).scores(vectors[own])
    return scores


def ranking(scores: Numbers, labels: Numbers) -> float:
    """Return the share of pairs of a true and a false row that the scores order correctly (AUC); 0.5 without pairs.

    >>> ranking(np.array([0.1, 0.4, 0.8, np.nan]), np.array([False, True, True, True]))
    1.0
    """
    is_valid = np.isfinite(scores)
    yes, no = scores[is_valid & labels], scores[is_valid & ~labels]
    if not len(yes) or not len(no):
        return 0.5
    return float(((yes[:, None] > no).mean() + (yes[:, None] >= no).mean()) / 2)


def _logistic(logits: Numbers) -> Numbers:
    scores: Numbers = 1 / (1 + np.exp(-np.clip(logits, -50, 50)))
    return scores

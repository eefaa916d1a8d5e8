"""Choose a judge and its thresholds by the labels of two samples."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from penstock.ai.cascade.learned_judge import LearnedJudge, held_out_scores, ranking
from penstock.ai.cascade.thresholds import MIN_DECIDED, Thresholds, find_thresholds
from penstock.events.metrics import set_gauge
from penstock.plan.cascade_relations import Promise

Numbers = np.ndarray[Any, Any]
_log = logging.getLogger("penstock.ai")


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows of both samples: number, rank (0 in the pilot), label, whether it is null, score, and vector if any."""

    numbers: Numbers
    ranks: Numbers
    labels: Numbers
    is_null: Numbers
    scores: Numbers
    vectors: Numbers

    @staticmethod
    def joined(parts: Sequence[LabelledRows]) -> LabelledRows:
        width = max(part.vectors.shape[1] for part in parts)
        parts = [part if part.vectors.shape[1] == width else part.without_vectors(width) for part in parts]
        names = [each.name for each in fields(LabelledRows)]
        return LabelledRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def without_vectors(self, width: int) -> LabelledRows:
        """Return the rows with vectors of NaN."""
        return replace(self, vectors=np.full((len(self.numbers), width), np.nan))


class Calibration:
    """The better judge by the pilot, and its thresholds. The labels of both samples stay known."""

    def __init__(self, sample: LabelledRows, promise: Promise) -> None:
        self._promise = promise
        order = np.argsort(sample.numbers)
        self._numbers, self._labels, self._is_null = (
            each[order] for each in (sample.numbers, sample.labels, sample.is_null)
        )
        is_pilot = sample.ranks == 0
        pilot, pilot_scores = sample.labels[is_pilot], sample.scores[is_pilot]
        scores = sample.scores[~is_pilot]
        self._judge = None
        if sample.vectors.shape[1]:
            vectors = sample.vectors[is_pilot]
            held_out = held_out_scores(vectors, pilot)
            if ranking(held_out, pilot) > ranking(pilot_scores, pilot):
                self._judge = LearnedJudge(vectors, pilot)
                pilot_scores, scores = held_out, self._judge.scores(sample.vectors[~is_pilot])
        found = find_thresholds(pilot_scores, pilot, scores, sample.labels[~is_pilot], promise)
        self.decided = found.decided
        self.thresholds = found if found.is_useful else Thresholds()

    @property
    def is_scored(self) -> bool:
        """True if the judge that makes calls scores the rows outside the samples."""
        return self.thresholds.is_useful and self._judge is None

    def learned_scores(self, vectors: Numbers, num_rows: int) -> Numbers:
        """Return the scores of the learned judge; NaN if the other judge was chosen."""
        if self._judge is None or not self.thresholds.is_useful:
            return np.full(num_rows, np.nan)
        return self._judge.scores(vectors)

    def known(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return three arrays for the rows: the labels, which of them are null, and which are known."""
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        is_known = self._numbers[places] == numbers
        return self._labels[places], self._is_null[places] | ~is_known, is_known

    def report(self, title: str) -> None:
        """Log what was found, and show the guaranteed shares among the statistics."""
        found, promise = self.thresholds, self._promise
        if not found.is_useful:
            _log.warning(
                "%s: the cheap judge would decide %.0f%% of the rows at precision %g and recall %g, less than %.0f%%, "
                "so the model answers every row.",
                title, 100 * self.decided, promise.precision, promise.recall, 100 * MIN_DECIDED,
            )  # fmt: skip
            return
        _log.info(
            "%s: the cheap judge decides about %.0f%% of the rows; precision %s, recall %s.",
            title, 100 * found.decided, found.precision, found.recall,
        )  # fmt: skip
        for name, share in (("precision", found.precision), ("recall", found.recall)):
            set_gauge(f"{title}: {name}", round(share.estimate, 4))
            set_gauge(f"{title}: {name} at least", round(share.low, 4))

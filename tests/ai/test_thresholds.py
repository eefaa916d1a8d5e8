"""The statistics of ``ask`` with a cheap judge. ``benchmarks/cascade_promise.py`` runs the same simulation in full."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cascade_promise import ORDERS, PROMISE, SEPARATION, run
from penstock.ai.cascade.calibration import Calibration, LabelledRows
from penstock.ai.cascade.handlers import draw_probes
from penstock.ai.cascade.learned_judge import LearnedJudge, held_out_scores, ranking
from penstock.ai.cascade.thresholds import find_thresholds, lower_bound, tail
from penstock.plan.cascade_relations import Promise

NO_ROWS = np.zeros(0)


@pytest.mark.parametrize("order", ORDERS)
def test_the_promise_holds_and_calls_are_saved(order: str) -> None:
    """If a run misses with probability 0.05, 5 or more of 18 miss in one of 600 tries; the seeds are fixed."""
    for judge in ("easy", "medium", "hard"):
        runs = [run(order, SEPARATION[judge], seed) for seed in range(6)]
        assert sum(each.has_missed for each in runs) <= 2
        if judge == "easy":
            assert np.mean([each.asked for each in runs]) <= 0.4


def test_a_useless_judge_decides_nothing() -> None:
    runs = [run("random", 0.0, seed) for seed in range(5)]
    assert [(each.asked, each.is_useful) for each in runs] == [(1.0, False)] * 5


def test_scores_that_mislead_decide_nothing() -> None:
    """A judge that is wrong about every row, and one that has no score for any."""
    labels = np.random.default_rng(0).random(800) < 0.5
    for scores in (np.where(labels, 0.0, 1.0), np.full(800, np.nan)):
        found = find_thresholds(scores[:400], labels[:400], scores[400:], labels[400:], PROMISE)
        assert not found.is_useful


def test_without_true_rows_nothing_is_promised() -> None:
    labels = np.zeros(800, bool)
    scores = np.random.default_rng(0).random(800)
    found = find_thresholds(scores[:400], labels[:400], scores[400:], labels[400:], PROMISE)
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert not find_thresholds(NO_ROWS, NO_ROWS > 0, NO_ROWS, NO_ROWS > 0, PROMISE).is_useful


def test_perfect_targets_are_met_by_asking() -> None:
    labels = np.random.default_rng(0).random(800) < 0.5
    found = find_thresholds(labels[:400] * 1.0, labels[:400], labels[400:] * 1.0, labels[400:], Promise(1.0, 1.0, 0.95))
    assert not found.is_useful


def test_tests_are_exact() -> None:
    rng = np.random.default_rng(0)
    draws = rng.binomial(60, 0.9, 200_000)
    assert tail(58, 60, 0.9) == pytest.approx((draws >= 58).mean(), abs=2e-3)
    assert tail(57, 60, lower_bound(57, 60, 0.025)) == pytest.approx(0.025, rel=1e-4)
    assert lower_bound(0, 10, 0.025) == 0


def test_samples_are_uniform_and_apart() -> None:
    drawn = np.zeros(1000)
    for seed in range(300):
        pilot, candidates = draw_probes(1000, seed)
        assert len(set(pilot[:, 0]) | set(candidates[:, 0])) == len(pilot) + len(candidates) == 350
        assert sorted(candidates[:, 1]) == list(range(1, 251))
        drawn[candidates[candidates[:, 1] <= 100, 0]] += 1
    assert abs(drawn[:500].sum() - drawn[500:].sum()) < 5 * np.sqrt(300 * 100)
    assert drawn.max() < 30 + 6 * np.sqrt(30)
    assert [len(each) for each in draw_probes(3, 0)] == [1, 0]


def test_a_judge_learns_from_few_labels_of_long_vectors() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(150, 80))
    labels = rng.random(150) < 0.3
    vectors[labels, :10] += 3
    scores = LearnedJudge(vectors[:60], labels[:60]).scores(vectors[60:])
    assert ranking(scores, labels[60:]) > 0.95
    assert ranking(held_out_scores(vectors, ~labels), ~labels) > 0.95
    vectors[149] = np.nan
    assert np.isnan(LearnedJudge(vectors[:60], labels[:60]).scores(vectors[149:])).all()
    assert LearnedJudge(vectors[:60], np.zeros(60, bool)).scores(vectors[:60]).max() < 0.1


def test_the_pilot_chooses_the_judge() -> None:
    rng = np.random.default_rng(0)
    labels, numbers = rng.random(900) < 0.5, np.arange(900)
    ranks = np.maximum(numbers - 399, 0)
    vectors = rng.normal(size=(900, 4)) + 8 * labels[:, None]

    def found(scores: np.ndarray) -> Calibration:
        return Calibration(LabelledRows(numbers, ranks, labels, np.zeros(900, bool), scores, vectors), PROMISE)

    assert found(labels * 1.0 + rng.random(900) / 10).is_scored
    learned = found(rng.random(900))
    assert not learned.is_scored
    assert ((learned.learned_scores(vectors, 900) > learned.thresholds.low) == labels).mean() > 0.95

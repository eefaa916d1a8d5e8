"""The promise of ``ask`` with a cheap judge, by simulation: how often it is missed, and how many calls it saves.

    python -m benchmarks.cascade_promise [SEEDS]

At confidence 0.95 at most 16 of 200 runs may miss a target: a promise that is kept in exactly 95 % of the runs would
miss more in 2 % of the tries.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ai.cascade.handlers import draw_probes
from penstock.ai.cascade.thresholds import find_thresholds, wanted_calibration_rows
from penstock.plan.cascade_relations import Promise

Numbers = np.ndarray[Any, Any]

PROMISE = Promise(precision=0.9, recall=0.9, confidence=0.95)
NUM_ROWS = 20_000
ORDERS = ("random", "sorted", "drifting", "1 % true")
SEPARATION = {"easy": 5.0, "medium": 2.5, "hard": 1.2, "useless": 0.0}  # of the scores of true and false rows


@dataclass(frozen=True)
class Run:
    """One simulated query: its precision and recall, and the share of rows that the model is asked about."""

    precision: float
    recall: float
    asked: float
    is_useful: bool

    @property
    def has_missed(self) -> bool:
        return self.precision < PROMISE.precision or self.recall < PROMISE.recall


def rows(order: str, separation: float, random: np.random.Generator, num_rows: int) -> tuple[Numbers, Numbers]:
    """Return the judge's scores and the model's answers, in one of ORDERS; ``drifting`` rows become harder."""
    labels = random.random(num_rows) < (0.01 if order == "1 % true" else 0.3)
    distance = separation * np.linspace(1.3, 0.5, num_rows) if order == "drifting" else separation
    scores = 1 / (1 + np.exp(-(random.normal(size=num_rows) + distance * (labels - 0.5)) * max(separation, 0.1)))
    places = np.argsort(scores) if order == "sorted" else slice(None)
    return scores[places], labels[places]


def run(order: str, separation: float, seed: int, num_rows: int = NUM_ROWS) -> Run:
    scores, labels = rows(order, separation, np.random.default_rng(seed), num_rows)
    pilot, candidates = draw_probes(num_rows, seed)
    pilot = pilot[:, 0]
    sample = candidates[candidates[:, 1] <= wanted_calibration_rows(labels[pilot], PROMISE), 0]
    found = find_thresholds(scores[pilot], labels[pilot], scores[sample], labels[sample], PROMISE)
    is_guessed = np.full(num_rows, found.is_useful)
    is_guessed[pilot] = is_guessed[sample] = False
    is_no, is_yes = is_guessed & (scores < found.low), is_guessed & (scores >= found.high)
    answers = (labels & ~is_no) | is_yes
    num_right = (answers & labels).sum()
    return Run(
        num_right / max(answers.sum(), 1),
        num_right / max(labels.sum(), 1),
        1 - (is_no | is_yes).mean(),
        found.is_useful,
    )


def main() -> None:
    num_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print("| order | judge | runs that miss | precision | recall | rows asked |\n|---|---|---|---|---|---|")
    for order in ORDERS:
        for judge, separation in SEPARATION.items():
            runs = [run(order, separation, seed) for seed in range(num_seeds)]
            precision, recall, asked = (
                float(np.mean([getattr(each, name) for each in runs])) for name in ("precision", "recall", "asked")
            )
            missed = f"{sum(each.has_missed for each in runs)} of {num_seeds}"
            print(f"| {order} | {judge} | {missed} | {precision:.3f} | {recall:.3f} | {asked:.0%} |", flush=True)


if __name__ == "__main__":
    main()

"""Run a model over a dataset: read product reviews, predict how each customer felt, write Parquet, show the table.

Half of the reviews teach the model, the other half are scored. Nothing is downloaded. Run it with `make demo`.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np

import penstock as ps

ROOT = Path(__file__).resolve().parents[1]
REVIEWS = ROOT / "examples" / "data" / "reviews.jsonl"
OUTPUT = ROOT / "demo-output" / "sentiment"

LABELS = ("negative", "mixed", "positive")


def label_of(rating: int) -> str:
    return "negative" if rating <= 2 else "mixed" if rating == 3 else "positive"


def words_of(text: str) -> list[str]:
    """Return the words of a text, and each pair of neighbours: 'not dry' says more than 'not' and 'dry'."""
    words = re.findall(r"[a-z']+", text.lower())
    return words + [f"{left} {right}" for left, right in itertools.pairwise(words)]


# A row function: plain Python, its return type taken from the hint.
@ps.func
def num_words(text: str) -> int:
    return len(text.split())


# A model: __init__ runs once in each worker, then the method is given a batch of rows at a time.
@ps.cls
class SentimentModel:
    """Naive Bayes, fitted on the reviews with an even id."""

    def __init__(self, path: str) -> None:
        counts = {label: Counter[str]() for label in LABELS}
        num_reviews = Counter[str]()
        for line in Path(path).read_text().splitlines():
            review = json.loads(line)
            if review["id"] % 2 == 0:
                label = label_of(review["rating"])
                num_reviews[label] += 1
                counts[label].update(words_of(review["text"]))
        vocabulary = sorted(set().union(*counts.values()))
        self.column = {word: position for position, word in enumerate(vocabulary)}
        table = np.array([[counts[label][word] + 0.5 for word in vocabulary] for label in LABELS])
        self.log_likelihood = np.log(table / table.sum(axis=1, keepdims=True))
        self.log_prior = np.array([math.log(num_reviews[label] / num_reviews.total()) for label in LABELS])

    @ps.method.batch(
        return_dtype=ps.DataType.struct({"label": ps.DataType.string(), "confidence": ps.DataType.float64()}),
        batch_size=64,
    )
    def predict(self, text: ps.Series) -> list[dict[str, object]]:
        features = np.zeros((len(text), len(self.column)))
        for row, review in enumerate(text.to_pylist()):
            for word in words_of(review):
                if word in self.column:
                    features[row, self.column[word]] += 1
        scores = features @ self.log_likelihood.T + self.log_prior
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return [
            {"label": LABELS[best], "confidence": float(chances[row, best])}
            for row, best in enumerate(chances.argmax(axis=1))
        ]


def main() -> None:
    model = SentimentModel(str(REVIEWS))  # nothing is fitted yet: the worker does that

    df = ps.read_json(str(REVIEWS))
    df = df.where(ps.col("id") % 2 == 1)
    df = df.with_column("prediction", model.predict(ps.col("text")))
    df = df.select(
        "category",
        "rating",
        ps.col("prediction")["label"].alias("sentiment"),
        ps.col("prediction")["confidence"].alias("confidence"),
        num_words(ps.col("text")).alias("num_words"),
        "text",
    )
    df.write_parquet(str(OUTPUT), mode="overwrite")

    scored = ps.read_parquet(str(OUTPUT))
    scored.show(10)

    rows = scored.to_pylist()
    num_right = sum(row["sentiment"] == label_of(row["rating"]) for row in rows)
    print(f"{len(rows)} reviews scored, {num_right / len(rows):.0%} as the customer's own stars say.")
    print(f"Written to {OUTPUT.relative_to(ROOT)}/")


if __name__ == "__main__":
    main()

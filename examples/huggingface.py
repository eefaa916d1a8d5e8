"""Take a Hugging Face dataset, add a column, and give a Hugging Face dataset back.

`ps.read_huggingface("owner/name")` and `df.write_huggingface("owner/name")` do the same with the hub.
"""

from pathlib import Path

import datasets  # type: ignore[import-untyped]

import penstock as ps
from penstock.functions import classify_text

REVIEWS = str(Path(__file__).parent / "data" / "reviews.jsonl")

dataset = datasets.Dataset.from_json(REVIEWS).select(range(120))
df = ps.from_huggingface(dataset)
df = df.with_column("topic", classify_text(ps.col("text"), ["electronics", "kitchen", "outdoor", "home"]))
df = df.with_column("is_right", ps.col("topic") == ps.col("category"))

labelled = datasets.Dataset(df.to_arrow())
print(labelled)
print(f"{sum(labelled['is_right']) / len(labelled):.0%} of the topics are the same as the shop's")

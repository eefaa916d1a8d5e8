"""The same script on a laptop and on a cluster: PENSTOCK_RUNNER=ray python examples/on_ray.py"""

import os
from pathlib import Path

import numpy as np

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"


class Scorer:
    """Built once in each worker; on a cluster each worker may be on another machine."""

    def __init__(self) -> None:
        self.weights = {"great": 1.0, "worth": 1.0, "recommended": 1.0, "disappointed": -1.0, "returned": -1.0}

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        words = [text.lower().replace(".", "").split() for text in batch["text"]]
        return {
            "rating": batch["rating"],
            "score": np.array([sum(self.weights.get(word, 0.0) for word in each) for each in words]),
            "process": np.full(len(words), os.getpid()),
        }


df = ps.read_json(str(REVIEWS)).map_batches(Scorer, batch_size=60, concurrency=2, use_process=True).collect()
df.group_by("rating").agg(ps.col("score").mean(), ps.col("score").count().alias("reviews")).sort("rating").show()
print(f"{ps.get_config().runner} runner, worker processes: {df.select('process').distinct().count_rows()}")

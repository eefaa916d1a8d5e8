"""Summarise the complaints about each product, and find the reviews that help a buyer most."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from offline import COMPLAINTS, connect

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"


def usefulness(review: str) -> tuple[int, int]:
    return len(COMPLAINTS.findall(review)), len(review)


def answer(request: Any) -> Any:
    """Stand in for a model: count complaints, and prefer reviews that name many and are long."""
    text, task = request.body["input"], request.body["instructions"]
    if task.startswith("Rank"):
        shown = [(usefulness(review), int(label)) for label, review in re.findall(r"\[(\d+)\]\n(.*)", text)]
        return {"value": [label for _, label in sorted(shown, reverse=True)]}
    found = Counter(COMPLAINTS.findall(text)).most_common(2)
    return "; ".join(f"{each} ({count})" for each, count in found) or "no complaints"


server = connect(answer=answer)
df = ps.read_json(str(REVIEWS))

complaints = df.semantic_agg("What do these customers complain about?", by="product", text="{text}", model="gpt-5-mini")
complaints.sort("product").limit(4).show(max_width=80)

useful = df.where(ps.col("rating") < 3).semantic_top_k(
    2, "Which review is most useful to a buyer?", by="category", text="{text}", model="gpt-5-mini"
)
useful.select("category", "rank", "text").show(max_width=80)
if server is not None:
    print(f"{server.num_requests} requests for {df.count_rows()} reviews")

"""Keep the reviews that complain, as an expensive model would, and ask it about few of them."""

from pathlib import Path
from typing import Any

import numpy as np
from offline import COMPLAINTS, connect

import penstock as ps
from penstock.functions import ask

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"
STATEMENT = "{text} complains about the product"


def answer(request: Any) -> dict[str, Any]:
    """Stand in for both models: the expensive one sees each complaint, the cheap one is rarely unsure."""
    is_complaint = COMPLAINTS.search(request.text) is not None
    if request.model == "gpt-5":
        return {"value": "yes" if is_complaint else "no"}
    doubt = np.random.default_rng(len(request.text)).beta(1, 12)
    return {"true": 1 - doubt if is_complaint else doubt}


server = connect(answer=answer, latency=0.005)
reviews = ps.read_json(str(REVIEWS))
found = reviews.where(ask(STATEMENT, model="gpt-5", cheap="gpt-6-luna", precision=0.9, recall=0.9)).collect()
found.select("text").show(3)
for name, value in [*found.stats().counters.items(), *found.stats().gauges.items()]:
    print(f"{name} {value:,.4g}")
if server is not None:
    asked = sum(request.body["model"] == "gpt-5" for request in server.requests)
    print(f"The expensive model was asked about {asked:,} of {reviews.count_rows():,} reviews")

"""Answer three questions about each review with one request, and read only the doubtful ones yourself."""

from pathlib import Path
from typing import Any

from offline import COMPLAINTS, connect

import penstock as ps
from penstock.functions import choice, decide, score, yes_no

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"


def answer(request: Any) -> dict[str, Any]:
    """Stand in for a decision model: more complaints make a customer less happy."""
    complaints = len(COMPLAINTS.findall(request.text))
    calm, furious = 0.9 ** (1 + 4 * complaints), min(0.8, 0.1 + 0.35 * complaints)
    return {
        "returns": min(0.97, 0.04 + 0.45 * complaints),
        "topic": {"quality": 0.7, "delivery": 0.2, "price": 0.1} if complaints else {"quality": 0.4, "price": 0.6},
        "anger": {"calm": calm * (1 - furious), "cross": 1 - furious - calm * (1 - furious), "furious": furious},
    }


server = connect(answer=answer)
df = ps.read_json(str(REVIEWS))
df = df.with_column(
    "d",
    decide(
        "{text}",
        {
            "returns": yes_no("Will the customer send the product back?"),
            "topic": choice("What is it about?", ["quality", "delivery", "price"]),
            "anger": score("How angry is the customer?", ["calm", "cross", "furious"]),
        },
        model="gpt-6-luna",
    ),
).collect()

returns = ps.col("d")["returns"]["probability"]
df.where((returns > 0.3) & (returns < 0.7)).select("text", returns.alias("sends it back")).show(3)
df.select(ps.col("d")["topic"]["value"].alias("topic"), ps.col("d")["anger"]["score"].alias("anger")).groupby(
    "topic"
).agg(ps.col("anger").count().alias("reviews"), ps.col("anger").mean()).sort("topic").show()
if server is not None:
    print(f"{server.num_requests} requests for {df.count_rows()} reviews and three questions")

"""Let two models do a task and a third one judge, with the order shuffled so that position cannot decide."""

from pathlib import Path
from typing import Literal

from offline import connect
from pydantic import BaseModel

import penstock as ps
from penstock.functions import if_else

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"


class Verdict(BaseModel):
    winner: Literal["A", "B"]
    reason: str


connect()
df = ps.read_json(str(REVIEWS)).limit(100)
df = df.with_columns(
    {
        "small": ps.prompt("Summarise in a few words: {text}", model="gpt-5-mini"),
        "large": ps.prompt("Summarise in a few words: {text}", model="gpt-5"),
        "small_first": ps.col("id") % 2 == 0,
    }
)
df = df.with_column("a", if_else(ps.col("small_first"), ps.col("small"), ps.col("large")))
df = df.with_column("b", if_else(ps.col("small_first"), ps.col("large"), ps.col("small")))
df = df.with_column(
    "verdict",
    ps.prompt(
        "Which is the better summary of this review?\n{text}\nA: {a}\nB: {b}", Verdict, model="gpt-5", temperature=0
    ),
)
won = if_else((ps.col("verdict")["winner"] == "A") == ps.col("small_first"), "gpt-5-mini", "gpt-5")
df = df.with_column("won", won).collect()

df.select("small", "large", "won").show(4)
df.group_by("won").agg(ps.col("id").count().alias("times")).sort("won").show()

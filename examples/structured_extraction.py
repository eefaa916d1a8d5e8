"""Read facts out of reviews into typed columns, then count them: a template, a pydantic model, SQL."""

from pathlib import Path

from offline import connect
from pydantic import BaseModel

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"


class Review(BaseModel):
    sentiment: str
    complaints: list[str]


connect()
df = ps.read_json(str(REVIEWS)).limit(200)
df = df.with_column("facts", ps.prompt("A review of a {product}: {text}", Review, model="gpt-5-mini"))
df = df.select("category", "product", "rating", ps.unnest(ps.col("facts"))).collect()
df.show(5)

print("What customers of each category complain about most:")
ps.sql("""
    select category, complaint, count(*) as times
    from (select category, unnest(complaints) as complaint from df)
    group by category, complaint
    qualify row_number() over (partition by category order by count(*) desc, complaint) = 1
    order by category
""").show()

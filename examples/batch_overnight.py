"""Ask through a provider's batch API: half the price, answers within a day, and a kill loses nothing.

Here the batches of the test server take a second. With a real provider, start this in the evening; if the machine
restarts, run it again: it waits for the batches that the provider already has.
"""

import tempfile
from pathlib import Path

from offline import connect

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"

connect()
output = tempfile.mkdtemp()
verdict = ps.prompt(
    "Is this customer happy? {text}",
    model="gpt-5-mini",
    batch_api=True,
    batch_poll_interval=0.2,  # seconds; the default of 30 suits real batches
)
df = ps.read_json(str(REVIEWS)).with_column("happy", verdict)

with ps.spending(None) as account:
    df.write_parquet(output, resume=True)

print(f"{account.num_calls} prompts in batches for ${account.dollars:.4f}, half the list price")
ps.read_parquet(output).group_by("happy").agg(ps.col("rating").mean(), ps.col("id").count().alias("n")).show()

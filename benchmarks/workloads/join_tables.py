"""Join: 10M rows with 1M rows on a whole number, Parquet to Parquet.

Both sides come from one dataset: the right one has the rows whose id is below a million.
"""

TARGETS = [("work_s", 1.0, "daft"), ("peak_mb", 1.0, "daft")]
DATASET = "orders"
NUM_ROWS = 10_000_000


def make_batch(rng, start, num_rows):
    """Return a unique id, the id of another row among the first million, and a float."""
    import numpy as np
    import pyarrow as pa

    ids = np.arange(start, start + num_rows)
    return pa.record_batch({"id": ids, "other": rng.integers(0, 1_000_000, num_rows), "x": rng.random(num_rows)})


def penstock(run):
    import penstock as ps
    from penstock import col

    with run.working():
        rows = ps.read_parquet(run.input)
        right = rows.where(col("id") < 1_000_000).select(col("id").alias("key"), col("x").alias("y"))
        rows.join(right, left_on="other", right_on="key").write_parquet(run.output, mode="overwrite")


def daft(run):
    import daft
    from daft import col

    with run.working():
        rows = daft.read_parquet(run.input)
        right = rows.where(col("id") < 1_000_000).select(col("id").alias("key"), col("x").alias("y"))
        rows.join(right, left_on="other", right_on="key").write_parquet(run.output, write_mode="overwrite")

"""Group-by with an exchange: 2M rows to about 860k groups with two aggregates, in 48 MB of memory.

The rows exceed the half of it that a relation may use, so on Ray they are divided by their keys, and workers aggregate
the parts.
"""

DATASET = "visits"
NUM_ROWS = 2_000_000
ONCE = ("ray_data",)  # it takes minutes


def make_batch(rng, start, num_rows):
    """Return a key of 1M values and a whole number."""
    import pyarrow as pa

    return pa.record_batch({"k": rng.integers(0, 1_000_000, num_rows), "n": rng.integers(0, 1000, num_rows)})


def penstock(run):
    import penstock as ps
    from penstock import col

    with run.working(), ps.config(memory_limit="48MB"):
        groups = ps.read_parquet(run.input).groupby("k")
        rows = groups.agg(col("n").sum().alias("total"), col("n").max().alias("most"))
        rows.write_parquet(run.output, mode="overwrite")


def daft(run):
    import daft
    from daft import col

    with run.working():
        groups = daft.read_parquet(run.input).groupby("k")
        rows = groups.agg(col("n").sum().alias("total"), col("n").max().alias("most"))
        rows.write_parquet(run.output, write_mode="overwrite")


def ray_data(run):
    import ray
    from ray.data.aggregate import Max, Sum

    from benchmarks.ray_cluster import start

    start()
    with run.working():
        groups = ray.data.read_parquet(run.input).groupby("k")
        rows = groups.aggregate(Sum("n", alias_name="total"), Max("n", alias_name="most"))
        rows.write_parquet(run.output)

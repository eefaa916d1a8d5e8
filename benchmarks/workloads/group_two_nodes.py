"""Group-by on two nodes of one core and 200 MB of object store: 20M rows to about 8.6M groups with two aggregates.

The rows (320 MB) fit in neither store, so every engine exchanges them between the nodes, and spills.
"""

import os

DATASET = "visits_of_many"
NUM_ROWS = 20_000_000
ONCE = ("ray_data",)  # it takes minutes
STORE_NBYTES = 200_000_000


def make_batch(rng, start, num_rows):
    """Return a key of 10M values and a whole number."""
    import pyarrow as pa

    return pa.record_batch({"k": rng.integers(0, 10_000_000, num_rows), "n": rng.integers(0, 1000, num_rows)})


def penstock(run):
    from benchmarks.ray_cluster import start_nodes

    start_nodes(2, STORE_NBYTES)
    import penstock as ps
    from penstock import col

    ps.set_runner_ray()
    with run.working():
        groups = ps.read_parquet(run.input).groupby("k")
        rows = groups.agg(col("n").sum().alias("total"), col("n").max().alias("most"))
        rows.write_parquet(run.output, mode="overwrite")


def daft(run):
    from benchmarks.ray_cluster import start_nodes

    start_nodes(2, STORE_NBYTES)
    os.environ["DAFT_RUNNER"] = "ray"
    import daft
    from daft import col

    with run.working():
        groups = daft.read_parquet(run.input).groupby("k")
        rows = groups.agg(col("n").sum().alias("total"), col("n").max().alias("most"))
        rows.write_parquet(run.output, write_mode="overwrite")


def ray_data(run):
    from benchmarks.ray_cluster import start_nodes

    start_nodes(2, STORE_NBYTES)
    import ray
    from ray.data.aggregate import Max, Sum

    with run.working():
        groups = ray.data.read_parquet(run.input).groupby("k")
        rows = groups.aggregate(Sum("n", alias_name="total"), Max("n", alias_name="most"))
        rows.write_parquet(run.output)

"""Group-by with an exchange: 20M rows to about 8.6M groups, on two Ray nodes of one core and 200 MB of object store.

The rows (320 MB) fit in neither store, so every engine on Ray moves rows between the nodes, and spills. On one machine
no engine has these limits.
"""

DATASET = "visits_of_many"
NUM_ROWS = 20_000_000
NUM_NODES = 2
STORE_NBYTES = 200_000_000


def make_batch(rng, start, num_rows):
    """Return a key of 10M values and a whole number."""
    import pyarrow as pa

    return pa.record_batch({"k": rng.integers(0, 10_000_000, num_rows), "n": rng.integers(0, 1000, num_rows)})


def start_ray():
    from benchmarks.ray_cluster import start_nodes

    start_nodes(NUM_NODES, STORE_NBYTES)


def penstock(run):
    import penstock as ps
    from penstock import col

    with run.working():
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

    start_ray()
    with run.working():
        groups = ray.data.read_parquet(run.input).groupby("k")
        rows = groups.aggregate(Sum("n", alias_name="total"), Max("n", alias_name="most"))
        rows.write_parquet(run.output)

"""Group-by and sort: 10M rows to 100k groups with four aggregates, in order of their sums."""

TARGETS = [("work_s", 1.0, "daft"), ("peak_mb", 1.0, "daft")]
DATASET = "sales"
NUM_ROWS = 10_000_000
ONCE = ("ray_data",)  # it takes minutes


def make_batch(rng, start, num_rows):
    """Return a key of 100k values, a whole number and a float."""
    import pyarrow as pa

    keys = rng.integers(0, 100_000, num_rows)
    return pa.record_batch({"k": keys, "n": rng.integers(0, 1000, num_rows), "x": rng.random(num_rows).round(3)})


def penstock(run):
    import penstock as ps
    from penstock import col

    with run.working():
        df = ps.read_parquet(run.input).groupby("k")
        counted = col("n").count().cast(ps.DataType.int64()).alias("c")  # the type that Ray Data gives it
        df = df.agg(col("n").sum().alias("total"), counted, col("x").min(), col("x").max().alias("y"))
        df.sort(["total", "k"], desc=[True, False]).write_parquet(run.output, mode="overwrite")


def daft(run):
    import daft
    from daft import col

    with run.working():
        df = daft.read_parquet(run.input).groupby("k")
        counted = col("n").count().cast(daft.DataType.int64()).alias("c")  # the type that Ray Data gives it
        df = df.agg(col("n").sum().alias("total"), counted, col("x").min(), col("x").max().alias("y"))
        df.sort(["total", "k"], desc=[True, False]).write_parquet(run.output, write_mode="overwrite")


def ray_data(run):
    import ray
    from ray.data.aggregate import Count, Max, Min, Sum

    from benchmarks.ray_cluster import start

    start()
    with run.working():
        groups = ray.data.read_parquet(run.input).groupby("k")
        aggregates = Sum("n", alias_name="total"), Count("n", alias_name="c"), Min("x", alias_name="x")
        rows = groups.aggregate(*aggregates, Max("x", alias_name="y"))
        rows.sort(["total", "k"], descending=[True, False]).write_parquet(run.output)

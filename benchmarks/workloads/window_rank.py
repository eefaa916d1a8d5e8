"""Window: the rank of each of 5M rows within its group, Parquet to Parquet."""

TARGETS = [("work_s", 1.0, "daft"), ("peak_mb", 1.0, "daft")]
DATASET = "scores"
NUM_ROWS = 5_000_000


def make_batch(rng, start, num_rows):
    """Return a key of 10k values and a score."""
    import pyarrow as pa

    return pa.record_batch({"k": rng.integers(0, 10_000, num_rows), "score": rng.integers(0, 10_000, num_rows)})


def penstock(run):
    import penstock as ps
    from penstock.functions import rank

    with run.working():
        window = ps.Window().partition_by("k").order_by("score", desc=True)
        df = ps.read_parquet(run.input).with_column("rank", rank().over(window))
        df.write_parquet(run.output, mode="overwrite")


def daft(run):
    import daft
    from daft.functions import rank

    with run.working():
        window = daft.Window().partition_by("k").order_by("score", desc=True)
        df = daft.read_parquet(run.input).with_column("rank", rank().over(window))
        df.write_parquet(run.output, write_mode="overwrite")

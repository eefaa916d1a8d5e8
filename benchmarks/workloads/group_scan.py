"""Group-by straight from Parquet: 10M rows to 1,000 groups, with the first query of the process and a second one."""

TARGETS = [("work_s", 1.0, "daft"), ("warm_s", 1.0, "daft"), ("peak_mb", 1.0, "daft")]
FIGURES = {"warm_s": "seconds of the second query"}
DATASET = "values"
NUM_ROWS = 10_000_000
TOLERANCE = 1e-3


def make_batch(rng, start, num_rows):
    """Return a number of the row and a float."""
    import numpy as np
    import pyarrow as pa

    return pa.record_batch({"id": np.arange(start, start + num_rows), "v": rng.random(num_rows)})


def penstock(run):
    with run.working():
        import penstock as ps

        found = grouped(ps.read_parquet(run.input), ps.col)
    return measured_again(run, found, lambda: grouped(ps.read_parquet(run.input), ps.col))


def daft(run):
    with run.working():
        import daft

        found = grouped(daft.read_parquet(run.input), daft.col)
    return measured_again(run, found, lambda: grouped(daft.read_parquet(run.input), daft.col))


def grouped(df, col):
    """Return the groups in order, as lists."""
    df = df.with_column("k", col("id") % 1000).groupby("k")
    return df.agg(col("v").sum().alias("total"), col("v").mean().alias("mean")).sort("k").to_pydict()


def measured_again(run, found, query):
    """Return some sums of the answer, and note how long the same query takes once everything is loaded."""
    import time

    started = time.perf_counter()
    query()
    run.figures["warm_s"] = time.perf_counter() - started
    return {"groups": len(found["k"]), "total": sum(found["total"]), "mean": sum(found["mean"])}

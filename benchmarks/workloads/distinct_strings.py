"""Distinct: 5M strings, a fifth of them different, Parquet to Parquet."""

TARGETS = [("work_s", 1.0, "daft"), ("peak_mb", 1.0, "daft")]
DATASET = "strings"
NUM_ROWS = 5_000_000


def make_batch(rng, start, num_rows):
    """Return texts of about twenty characters; a million are different."""
    import pyarrow as pa

    return pa.record_batch({"text": [f"visitor {number:012d}" for number in rng.integers(0, 1_000_000, num_rows)]})


def penstock(run):
    import penstock as ps

    with run.working():
        ps.read_parquet(run.input).distinct().write_parquet(run.output, mode="overwrite")


def daft(run):
    import daft

    with run.working():
        daft.read_parquet(run.input).distinct().write_parquet(run.output, write_mode="overwrite")

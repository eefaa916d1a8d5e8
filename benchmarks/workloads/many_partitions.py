"""Many partitions: 300,000 rows, Parquet to 3,000 `k=...` folders.

Penstock's files are staged, on disk before they are moved into place, and visible all at once; Daft's are not.
"""

TARGETS = [("work_s", 1.0, "daft")]
DATASET = "partitions"
NUM_ROWS = 300_000
NUM_PARTITIONS = 3_000


def make_batch(rng, start, num_rows):
    """Return a key, a number and a short text."""
    import pyarrow as pa

    texts = [f"text {row}" for row in range(start, start + num_rows)]
    return pa.record_batch({"k": rng.integers(0, NUM_PARTITIONS, num_rows), "x": rng.random(num_rows), "t": texts})


def penstock(run):
    import penstock as ps

    with run.working():
        ps.read_parquet(run.input).write_parquet(run.output, mode="overwrite", partition_cols=["k"])


def daft(run):
    import daft

    with run.working():
        daft.read_parquet(run.input).write_parquet(run.output, write_mode="overwrite", partition_cols=["k"])

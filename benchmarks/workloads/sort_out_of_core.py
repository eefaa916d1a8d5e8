"""Sort of 800 MB with a memory limit of 200 MB, Parquet to Parquet.

Daft has no limit on the memory of a query; it sorts with as much as it takes.
"""

TARGETS = [("work_s", 1.0, "daft"), ("peak_mb", 1.0, "daft")]
DATASET = "events"
NUM_ROWS = 7_000_000


def make_batch(rng, start, num_rows):
    """Return a random key and a text of a hundred characters that does not compress."""
    import pyarrow as pa

    drawn = rng.bytes(num_rows * 50).hex()
    texts = [drawn[at : at + 100] for at in range(0, len(drawn), 100)]
    return pa.record_batch({"key": rng.integers(0, 2**62, num_rows), "text": texts})


def penstock(run):
    import penstock as ps

    ps.set_config(memory_limit="200MB")
    with run.working():
        ps.read_parquet(run.input).sort("key").write_parquet(run.output, mode="overwrite")


def daft(run):
    import daft

    with run.working():
        daft.read_parquet(run.input).sort("key").write_parquet(run.output, write_mode="overwrite")

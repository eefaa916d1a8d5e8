"""CPU-bound row UDF: edit distance to a fixed text, in pure Python, on 100k text rows, without asking for processes."""

TARGETS = [("work_s", 1 / 1.3, "daft"), ("work_s", 1.3, "plain")]
DATASET = "words"
NUM_ROWS = 100_000
REFERENCE = "the quick brown fox"


def make_batch(rng, start, num_rows):
    """Return texts of 15 to 25 letters."""
    import numpy as np
    import pyarrow as pa

    texts = ["".join(map(chr, rng.integers(97, 123, n))) for n in rng.integers(15, 26, num_rows).tolist()]
    return pa.record_batch({"id": np.arange(start, start + num_rows), "text": texts})


def distance(text):
    """Return the number of letters to change, add or leave out."""
    last = list(range(len(REFERENCE) + 1))
    for i, letter in enumerate(text, 1):
        row = [i]
        for j, other in enumerate(REFERENCE, 1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other)))
        last = row
    return last[-1]


def penstock(run):
    import penstock as ps

    @ps.func
    def count_edits(text: str) -> int:
        return distance(text)

    with run.working():
        df = ps.read_parquet(run.input).select(ps.col("id"), count_edits(ps.col("text")).alias("n"))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import daft

    @daft.func
    def count_edits(text: str) -> int:
        return distance(text)

    with run.working():
        df = daft.read_parquet(run.input).select(daft.col("id"), count_edits(daft.col("text")).alias("n"))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    import ray

    from benchmarks.ray_cluster import start

    def count_edits(row):
        return {"id": row["id"], "n": distance(row["text"])}

    start()
    with run.working():
        ray.data.read_parquet(run.input).map(count_edits).write_parquet(run.output, compression="snappy")


def plain(run):
    from concurrent.futures import ProcessPoolExecutor
    from pathlib import Path

    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    with run.working(), ProcessPoolExecutor(max_workers=2) as pool:
        schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
        with pq.ParquetWriter(f"{run.output}/part-0.parquet", schema, compression="snappy") as writer:
            for path in sorted(Path(run.input).glob("*.parquet")):
                for batch in pq.ParquetFile(path).iter_batches():
                    counts = list(pool.map(distance, batch["text"].to_pylist(), chunksize=256))
                    writer.write_batch(pa.record_batch([batch["id"], pa.array(counts, pa.int64())], schema))

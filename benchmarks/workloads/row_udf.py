"""Row UDF: `len(text.split())` on 1M text rows, Parquet to Parquet."""

TARGETS = [("work_s", 1 / 3, "daft"), ("work_s", 1.2, "plain")]
DATASET = "text"
NUM_ROWS = 1_000_000


def make_batch(rng, start, num_rows):
    """Return rows of 5 to 30 words, drawn from 5,000 words of 2 to 10 letters."""
    import numpy as np
    import pyarrow as pa

    letters = np.random.default_rng(0)  # the same words in every file
    words = ["".join(map(chr, letters.integers(97, 123, n))) for n in letters.integers(2, 11, 5_000)]
    lengths = rng.integers(5, 31, num_rows)
    chosen = iter(rng.integers(0, len(words), lengths.sum()).tolist())
    texts = [" ".join([words[next(chosen)] for _ in range(n)]) for n in lengths.tolist()]
    return pa.record_batch({"id": np.arange(start, start + num_rows), "text": texts})


def penstock(run):
    import penstock as ps

    @ps.func
    def count_words(text: str) -> int:
        return len(text.split())

    with run.working():
        df = ps.read_parquet(run.input).select(ps.col("id"), count_words(ps.col("text")).alias("n"))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import daft

    @daft.func
    def count_words(text: str) -> int:
        return len(text.split())

    with run.working():
        df = daft.read_parquet(run.input).select(daft.col("id"), count_words(daft.col("text")).alias("n"))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    import ray

    from benchmarks.ray_cluster import start

    def count_words(row):
        return {"id": row["id"], "n": len(row["text"].split())}

    start()
    with run.working():
        ray.data.read_parquet(run.input).map(count_words).write_parquet(run.output, compression="snappy")


def plain(run):
    from pathlib import Path

    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    with run.working():
        schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
        with pq.ParquetWriter(f"{run.output}/part-0.parquet", schema, compression="snappy") as writer:
            for path in sorted(Path(run.input).glob("*.parquet")):
                for batch in pq.ParquetFile(path).iter_batches(batch_size=125_000):
                    counts = [len(text.split()) for text in batch["text"].to_pylist()]
                    writer.write_batch(pa.record_batch([batch["id"], pa.array(counts, pa.int64())], schema))

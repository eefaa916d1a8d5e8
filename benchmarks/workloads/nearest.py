"""Nearest neighbours: the 10 nearest of 1M vectors of 384 numbers for 1,000 queries, by cosine, exact.

The plain loop is the usual one: blocks of 8,192 rows, a matrix product, and `argpartition` of each block.
"""

TARGETS = [("work_s", 1.3, "plain")]
DATASET = "vectors"
NUM_ROWS = 1_000_000
DIMENSIONS = 384
NUM_QUERIES = 1000
K = 10


def make_batch(rng, start, num_rows):
    """Return numbered vectors; random ones are the worst case, as none is near."""
    import numpy as np
    import pyarrow as pa

    numbers = pa.array(rng.standard_normal(num_rows * DIMENSIONS, dtype=np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, DIMENSIONS)
    return pa.record_batch({"id": pa.array(range(start, start + num_rows), pa.int64()), "vector": vectors})


def make_queries():
    import numpy as np

    return np.random.default_rng(7).standard_normal((NUM_QUERIES, DIMENSIONS), dtype=np.float32)


def penstock(run):
    import pyarrow as pa

    import penstock as ps

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(make_queries().reshape(-1)), DIMENSIONS)
    queries = ps.from_arrow(pa.table({"query": pa.array(range(NUM_QUERIES)), "vector": vectors}))
    with run.working():
        found = ps.read_parquet(run.input).nearest(queries, on="vector", k=K)
        found.select("query", "rank", "id").write_parquet(run.output, mode="overwrite", compression="snappy")


def plain(run):
    from pathlib import Path

    import numpy as np
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    queries = make_queries()
    with run.working():
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        best, ids = np.empty((NUM_QUERIES, 0), np.float32), np.empty((NUM_QUERIES, 0), np.int64)
        for path in sorted(Path(run.input).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(batch_size=8192):
                block = batch["vector"].values.to_numpy().reshape(-1, DIMENSIONS)
                scores = queries @ (block / np.linalg.norm(block, axis=1, keepdims=True)).T
                top = np.argpartition(scores, -K, axis=1)[:, -K:]
                best = np.concatenate([best, np.take_along_axis(scores, top, axis=1)], axis=1)
                ids = np.concatenate([ids, batch["id"].to_numpy()[top]], axis=1)
                top = np.argsort(-best, axis=1)[:, :K]
                best, ids = np.take_along_axis(best, top, axis=1), np.take_along_axis(ids, top, axis=1)
        ranks = np.tile(np.arange(1, K + 1, dtype=np.uint64), NUM_QUERIES)
        columns = {"query": np.repeat(np.arange(NUM_QUERIES), K), "rank": ranks, "id": ids.reshape(-1)}
        pq.write_table(pa.table(columns), f"{run.output}/part-0.parquet", compression="snappy")

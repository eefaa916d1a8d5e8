"""Batch UDF: `sqrt(x * y)` on 10M numeric rows, Parquet to Parquet.

The floats do not repeat, so dictionary encoding would waste half the time: it is off in every engine that allows it.
"""

TARGETS = [("work_s", 1 / 1.5, "daft"), ("work_s", 1.2, "plain"), ("peak_mb", 0.5, "daft")]
DATASET = "numbers"
NUM_ROWS = 10_000_000


def make_batch(rng, start, num_rows):
    """Return two columns of floats that do not compress."""
    import pyarrow as pa

    return pa.record_batch({"x": rng.random(num_rows), "y": rng.random(num_rows)})


def penstock(run):
    import numpy as np

    import penstock as ps

    @ps.func.batch(return_dtype=ps.DataType.float64())
    def geometric_mean(x: ps.Series, y: ps.Series):
        return np.sqrt(x.to_numpy() * y.to_numpy())

    with run.working():
        df = ps.read_parquet(run.input).with_column("z", geometric_mean(ps.col("x"), ps.col("y")))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import daft
    import numpy as np

    @daft.func.batch(return_dtype=daft.DataType.float64())
    def geometric_mean(x: daft.Series, y: daft.Series):
        # A Series made from the array is quicker than returning the array.
        return daft.Series.from_numpy(np.sqrt(x.to_arrow().to_numpy() * y.to_arrow().to_numpy()))

    with run.working():
        df = daft.read_parquet(run.input).with_column("z", geometric_mean(daft.col("x"), daft.col("y")))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    import numpy as np
    import ray

    from benchmarks.ray_cluster import start

    def add_geometric_mean(table):
        return table.append_column("z", [np.sqrt(table["x"].to_numpy() * table["y"].to_numpy())])

    start()
    with run.working():
        rows = ray.data.read_parquet(run.input).map_batches(add_geometric_mean, batch_format="pyarrow")
        rows.write_parquet(run.output, compression="snappy", use_dictionary=False)


def plain(run):
    from pathlib import Path

    import numpy as np
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    with run.working():
        schema = pa.schema({"x": pa.float64(), "y": pa.float64(), "z": pa.float64()})
        with pq.ParquetWriter(
            f"{run.output}/part-0.parquet", schema, compression="snappy", use_dictionary=False
        ) as writer:
            for path in sorted(Path(run.input).glob("*.parquet")):
                for batch in pq.ParquetFile(path).iter_batches(batch_size=125_000):
                    z = np.sqrt(batch["x"].to_numpy() * batch["y"].to_numpy())
                    writer.write_batch(pa.record_batch([batch["x"], batch["y"], pa.array(z)], schema))

"""Batch UDF in two worker processes: `sqrt(x * y)` on 10M numeric rows in batches of 16,384, Parquet to Parquet."""

from benchmarks.workloads.batch_udf import DATASET, NUM_ROWS, make_batch

__all__ = ["DATASET", "NUM_ROWS", "make_batch"]
TARGETS = [("work_s", 1 / 1.8, "daft")]


def penstock(run):
    import numpy as np

    import penstock as ps

    @ps.func.batch(return_dtype=ps.DataType.float64(), use_process=True, max_concurrency=2, batch_size=16_384)
    def geometric_mean(x: ps.Series, y: ps.Series):
        return np.sqrt(x.to_numpy() * y.to_numpy())

    with run.working():
        df = ps.read_parquet(run.input).with_column("z", geometric_mean(ps.col("x"), ps.col("y")))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import daft
    import numpy as np

    @daft.cls(use_process=True, max_concurrency=2)  # a synchronous daft.func takes no max_concurrency
    class GeometricMean:
        @daft.method.batch(return_dtype=daft.DataType.float64(), batch_size=16_384)
        def __call__(self, x: daft.Series, y: daft.Series):
            return daft.Series.from_numpy(np.sqrt(x.to_arrow().to_numpy() * y.to_arrow().to_numpy()))

    with run.working():
        df = daft.read_parquet(run.input).with_column("z", GeometricMean()(daft.col("x"), daft.col("y")))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    import numpy as np
    import ray

    from benchmarks.ray_cluster import start

    def add_geometric_mean(table):
        return table.append_column("z", [np.sqrt(table["x"].to_numpy() * table["y"].to_numpy())])

    start()
    with run.working():
        # The fastest setting on two cores. Two actors of one core each did not finish within 90 s (the read seems to
        # have no core left), two of half a core took 10.3 s, two tasks 8.6 s.
        two = ray.data.TaskPoolStrategy(size=2)
        rows = ray.data.read_parquet(run.input).map_batches(add_geometric_mean, batch_format="pyarrow", compute=two)
        rows.write_parquet(run.output, compression="snappy", use_dictionary=False)


def plain(run):
    from concurrent.futures import ProcessPoolExecutor
    from pathlib import Path

    with run.working(), ProcessPoolExecutor(max_workers=2) as pool:
        inputs = sorted(Path(run.input).glob("*.parquet"))
        list(pool.map(_plain_file, inputs, [f"{run.output}/part-{i}.parquet" for i in range(len(inputs))]))


def _plain_file(source, target):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema({"x": pa.float64(), "y": pa.float64(), "z": pa.float64()})
    with pq.ParquetWriter(target, schema, compression="snappy", use_dictionary=False) as writer:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=125_000):
            z = np.sqrt(batch["x"].to_numpy() * batch["y"].to_numpy())
            writer.write_batch(pa.record_batch([batch["x"], batch["y"], pa.array(z)], schema))

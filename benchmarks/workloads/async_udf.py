"""Async UDF: 5 ms of waiting on each of 100k rows, 512 at once, Parquet to Parquet."""

TARGETS = [("work_s", 1 / 3, "daft"), ("work_s", 1.3, "plain")]
DATASET = "ids"
NUM_ROWS = 100_000
CONCURRENCY = 512  # with 256 the waiting alone takes 2 s, which hides the engine
WAIT_S = 0.005


def make_batch(rng, start, num_rows):
    """Return one column of integers."""
    import pyarrow as pa

    return pa.record_batch({"x": pa.array(range(start, start + num_rows))})


def penstock(run):
    import asyncio

    import penstock as ps

    @ps.func(max_concurrency=CONCURRENCY)
    async def double(x: int) -> int:
        await asyncio.sleep(WAIT_S)
        return 2 * x

    with run.working():
        df = ps.read_parquet(run.input).with_column("y", double(ps.col("x")))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import asyncio

    import daft

    @daft.func(max_concurrency=CONCURRENCY)
    async def double(x: int) -> int:
        await asyncio.sleep(WAIT_S)
        return 2 * x

    with run.working():
        df = daft.read_parquet(run.input).with_column("y", double(daft.col("x")))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    import asyncio

    import ray

    from benchmarks.ray_cluster import start

    class Double:
        """An async actor is given rows to wait for together in a batch; rows one by one took several times as long."""

        async def __call__(self, batch):
            return {"x": batch["x"], "y": await asyncio.gather(*map(self.double, batch["x"]))}

        async def double(self, x):
            await asyncio.sleep(WAIT_S)
            return 2 * x

    start()
    with run.working():
        rows = ray.data.read_parquet(run.input).map_batches(Double, batch_size=CONCURRENCY, concurrency=1)
        rows.write_parquet(run.output, compression="snappy")


def plain(run):
    """Run one coroutine per concurrent call, each taking the next row: faster than one task per row."""
    import asyncio

    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    async def double(x):
        await asyncio.sleep(WAIT_S)
        return 2 * x

    async def take_rows(rows, results):
        for row, x in rows:
            results[row] = await double(x)

    async def call_all(values):
        results = [None] * len(values)
        rows = enumerate(values)
        await asyncio.gather(*[take_rows(rows, results) for _ in range(CONCURRENCY)])
        return results

    with run.working():
        table = pq.read_table(run.input)
        doubled = asyncio.run(call_all(table["x"].to_pylist()))
        pq.write_table(table.append_column("y", pa.array(doubled)), f"{run.output}/part-0.parquet")

"""Download: 5,000 objects of 100 kB by the S3 API on loopback, 32 at once, to the sum of their lengths."""

TARGETS = [("work_s", 1 / 1.5, "daft")]
DATASET = "s3_paths"
NUM_ROWS = 5_000
CONNECTIONS = 32
OBJECT_NBYTES = 100_000


def make_batch(rng, start, num_rows):
    """Return the paths of the objects."""
    import pyarrow as pa

    return pa.record_batch({"path": [f"s3://benchmark/{row:06d}.bin" for row in range(start, start + num_rows)]})


def serving(num_rows):
    """Serve the objects by a server fast enough to show differences between clients; moto's is not."""
    from benchmarks.object_server import serving_any

    return serving_any(OBJECT_NBYTES)


def penstock(run):
    import penstock as ps

    with run.working():
        content = ps.col("path").download(max_connections=CONNECTIONS)
        df = ps.read_parquet(run.input).select(content.length().alias("n"))
        return sum(df.to_pydict()["n"])


def daft(run):
    import os

    import daft
    from daft.io import IOConfig, S3Config

    s3 = S3Config(
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        key_id=os.environ["AWS_ACCESS_KEY_ID"],
        access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region_name=os.environ["AWS_REGION"],
    )
    with run.working():
        content = daft.functions.download(daft.col("path"), max_connections=CONNECTIONS, io_config=IOConfig(s3=s3))
        df = daft.read_parquet(run.input).select(content.length().alias("n"))
        return sum(df.to_pydict()["n"])


def plain(run):
    """Use the library that Penstock uses, and as little else as possible."""
    import asyncio
    import os

    import obstore
    import pyarrow.parquet as pq
    from obstore.store import S3Store

    async def take_keys(store, keys, lengths):
        for key in keys:
            response = await obstore.get_async(store, key)
            lengths.append(len(bytes(await response.bytes_async())))

    async def fetch_all(keys):
        store = S3Store("benchmark", endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True})
        lengths = []
        rest = iter(keys)
        await asyncio.gather(*[take_keys(store, rest, lengths) for _ in range(CONNECTIONS)])
        return lengths

    with run.working():
        paths = pq.read_table(run.input)["path"].to_pylist()
        return sum(asyncio.run(fetch_all([path.removeprefix("s3://benchmark/") for path in paths])))

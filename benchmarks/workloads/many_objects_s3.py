"""Small objects: 10,000 of 1 kB written to an S3 API on loopback, listed, read again; the sum of their lengths."""

DATASET = "small_contents"
NUM_ROWS = 10_000
CONNECTIONS = 32


def make_batch(rng, start, num_rows):
    """Return contents of one kilobyte."""
    import pyarrow as pa

    return pa.record_batch({"content": pa.array([b"%08d" % row * 125 for row in range(start, start + num_rows)])})


def serving(num_rows):
    """Serve an empty bucket. The server is moto's, in Python: it takes most of the time, the same for all engines."""
    from benchmarks.s3 import serving_objects

    return serving_objects(iter(()))


def penstock(run):
    import os

    import penstock as ps

    folder = f"s3://benchmark/penstock-{os.getpid()}"
    with run.working():
        ps.read_parquet(run.input).select(ps.col("content").upload(folder, max_connections=CONNECTIONS)).collect()
        content = ps.col("path").download(max_connections=CONNECTIONS)
        df = ps.from_glob_path(f"{folder}/*").select(content.length().alias("n"))
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
    options = {"max_connections": CONNECTIONS, "io_config": IOConfig(s3=s3)}
    folder = f"s3://benchmark/daft-{os.getpid()}"
    with run.working():
        daft.read_parquet(run.input).select(daft.functions.upload(daft.col("content"), folder, **options)).collect()
        content = daft.functions.download(daft.col("path"), **options)
        df = daft.from_glob_path(f"{folder}/*", io_config=IOConfig(s3=s3)).select(content.length().alias("n"))
        return sum(df.to_pydict()["n"])

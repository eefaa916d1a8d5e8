"""Small files: 20,000 Parquet files of ten rows, counted and then read."""

TARGETS = [("work_s", 1, "daft"), ("count_s", 1, "daft")]
FIGURES = {"count_s": "seconds to count the rows"}
DATASET = "small_files"
NUM_ROWS = 20_000  # files


def make_file(rng, folder, number):
    """Write a file of ten rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = range(10 * number, 10 * number + 10)
    rows = pa.table({"id": list(ids), "text": [f"row {row}" for row in ids], "x": rng.random(10)})
    pq.write_table(rows, folder / f"{number:05d}.parquet")


def penstock(run):
    import time

    import penstock as ps

    with run.working():
        begun = time.perf_counter()
        num_rows = ps.read_parquet(run.input).count_rows()
        run.figures["count_s"] = time.perf_counter() - begun
        return [num_rows, sum(ps.read_parquet(run.input).to_arrow()["id"].to_pylist())]


def daft(run):
    import time

    import daft

    with run.working():
        begun = time.perf_counter()
        num_rows = daft.read_parquet(f"{run.input}/*.parquet").count_rows()
        run.figures["count_s"] = time.perf_counter() - begun
        return [num_rows, sum(daft.read_parquet(f"{run.input}/*.parquet").to_arrow()["id"].to_pylist())]

"""Wide table: filter 5,000 columns by one of them and keep two, from Parquet; then read them all."""

TARGETS = [("work_s", 1.0, "daft"), ("read_s", 1.0, "daft")]
FIGURES = {"read_s": "seconds to read every column"}
DATASET = "wide"
NUM_ROWS = 1


def make_file(rng, folder, number):
    """Write 5,000 rows of 5,000 columns: numbers, text and booleans."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    num_rows = 5_000
    kinds = (
        lambda: rng.integers(0, 1000, num_rows),
        lambda: rng.random(num_rows),
        lambda: rng.integers(0, 100, num_rows).astype(str),
        lambda: rng.integers(0, 2, num_rows).astype(bool),
    )
    columns = {f"c{place}": kinds[place % len(kinds)]() for place in range(5_000)}
    pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def penstock(run):
    import penstock as ps

    return answer(run, ps.read_parquet(run.input), ps.col)


def daft(run):
    import daft

    return answer(run, daft.read_parquet(run.input), daft.col)


def answer(run, df, col):
    """Return the sizes of both results; the filter is the measured work, and reading a figure."""
    import time

    with run.working():
        kept = df.where(col("c1") > 0.5).select("c0", "c2").to_arrow()
    started = time.perf_counter()
    table = df.to_arrow()
    run.figures["read_s"] = time.perf_counter() - started
    return [kept.num_rows, sum(kept.column("c0").to_pylist()), table.num_rows, table.num_columns]

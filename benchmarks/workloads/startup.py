"""Start-up: import, then a UDF over three rows; the work includes the import."""

TARGETS = [("wall_s", 1.0, "daft")]
MIN_REPEAT = 5
ROWS = [1, 2, 3]


def penstock(run):
    with run.working():
        import penstock as ps

        @ps.func
        def double(x: int) -> int:
            return x * 2

        return ps.from_pydict({"x": ROWS}).with_column("y", double(ps.col("x"))).to_pydict()["y"]


def daft(run):
    with run.working():
        import daft

        @daft.func
        def double(x: int) -> int:
            return x * 2

        return daft.from_pydict({"x": ROWS}).with_column("y", double(daft.col("x"))).to_pydict()["y"]


def ray_data(run):
    import ray

    from benchmarks.ray_cluster import start

    start()
    with run.working():
        rows = ray.data.from_items([{"x": x} for x in ROWS]).map(lambda row: {**row, "y": row["x"] * 2}).take_all()
        return sorted(row["y"] for row in rows)


def plain(run):
    with run.working():
        import pyarrow as pa

        table = pa.table({"x": ROWS})
        table = table.append_column("y", pa.array([x * 2 for x in table["x"].to_pylist()]))
        return table.to_pydict()["y"]

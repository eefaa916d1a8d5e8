"""Executor overhead: 20,000 bundles of one row through read, map and consume; time per bundle and stage."""

TARGETS = [("unit_us", 200, None)]
NUM_BUNDLES = 20_000
NUM_STAGES = 2  # the read and the map; the consumer takes what comes


def penstock(run):
    import pyarrow as pa

    import penstock as ps

    def same(batch):
        return batch

    bundles = [pa.record_batch({"x": [i]}) for i in range(NUM_BUNDLES)]
    df = ps.from_arrow(bundles).map_batches(same, batch_format="pyarrow")
    with run.working():
        num_rows = sum(batch.num_rows for batch in df.iter_partitions())
    run.num_units = NUM_BUNDLES * NUM_STAGES
    return num_rows

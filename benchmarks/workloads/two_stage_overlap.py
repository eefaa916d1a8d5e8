"""Two stages that overlap: NumPy preprocessing feeds a model that is slower; plain is the time of the model alone.

The model is one worker that takes 40 ms a batch, as a GPU would while the CPU is free. Preprocessing takes about half
of that on one core. An engine that overlaps them perfectly takes as long as the model alone.
"""

TARGETS = [("work_s", 1.2, "plain")]
NUM_BATCHES = 60
ROWS_A_BATCH = 64
MODEL_S = 0.04


def penstock(run):
    import penstock as ps

    with run.working():
        df = ps.range(NUM_BATCHES * ROWS_A_BATCH).into_batches(ROWS_A_BATCH)
        df = df.map_batches(preprocess, batch_size=ROWS_A_BATCH)
        df = df.map_batches(Model, batch_size=ROWS_A_BATCH, concurrency=1)
        return _total(df.to_pydict()["y"])


def daft(run):
    import daft

    @daft.func.batch(return_dtype=daft.DataType.float64(), batch_size=ROWS_A_BATCH)
    def prepare(ids: daft.Series):
        return preprocess({"id": ids.to_arrow().to_numpy()})["x"]

    @daft.cls(max_concurrency=1)
    class Scorer:
        def __init__(self):
            self.model = Model()

        @daft.method.batch(return_dtype=daft.DataType.float64(), batch_size=ROWS_A_BATCH)
        def __call__(self, x: daft.Series):
            return self.model({"x": x.to_arrow().to_numpy()})["y"]

    with run.working():
        df = daft.range(NUM_BATCHES * ROWS_A_BATCH).into_batches(ROWS_A_BATCH)
        df = df.with_column("x", prepare(daft.col("id")))
        return _total(df.with_column("y", Scorer()(daft.col("x"))).to_pydict()["y"])


def ray_data(run):
    import ray

    from benchmarks.ray_cluster import start

    start()
    with run.working():
        rows = ray.data.range(NUM_BATCHES * ROWS_A_BATCH, override_num_blocks=NUM_BATCHES)
        rows = rows.map_batches(preprocess, batch_size=ROWS_A_BATCH)
        # Half a core, since a model on a GPU would leave the cores to the preprocessing.
        rows = rows.map_batches(Model, batch_size=ROWS_A_BATCH, concurrency=1, num_cpus=0.5)
        return _total([row["y"] for row in rows.take_all()])


def plain(run):
    """The slower stage alone, on inputs that are ready."""
    import numpy as np

    ids = np.arange(NUM_BATCHES * ROWS_A_BATCH).reshape(NUM_BATCHES, ROWS_A_BATCH)
    ready = [preprocess({"id": batch}) for batch in ids]
    model = Model()
    with run.working():
        return _total([y for batch in ready for y in model(batch)["y"].tolist()])


def preprocess(batch):
    """About 20 ms of work that lets other threads run: each id becomes the least value of noise that it seeds."""
    import numpy as np

    noise = np.empty(25_000)
    low = [np.random.default_rng(int(seed)).standard_normal(out=noise).min() for seed in batch["id"]]
    return {"x": np.array(low)}


class Model:
    """Takes a fixed time a batch, whatever its input, and leaves the cores free."""

    def __call__(self, batch):
        import time

        time.sleep(MODEL_S)
        return {"y": batch["x"] * 2}


def _total(values):
    return [len(values), round(sum(sorted(values)), 6)]

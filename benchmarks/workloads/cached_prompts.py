"""Cached prompts: 100,000 prompts whose answers are all cached, Parquet to Parquet; no call is made.

The first engine asks a server and caches the answers before the clock runs. The hand-written loop caches them in SQLite
by a hash of the request, and looks them up one by one.
"""

from contextlib import contextmanager

from benchmarks.model_server import API_KEY, MODEL, PlainClient, control, fresh_api, make_prompts, said, serving_models

TARGETS = [("unit_us", 20, None)]
DATASET = "prompts"
NUM_ROWS = 100_000
KEPT = "BENCHMARK_KEPT_ANSWERS"

make_batch = make_prompts


@contextmanager
def serving(num_rows):
    import tempfile

    with tempfile.TemporaryDirectory() as folder, serving_models(keep_requests=0) as environment:
        yield {**environment, KEPT: folder}


def penstock(run):
    import os
    import shutil

    import penstock as ps
    from penstock.functions import prompt

    cache_dir = f"{os.environ[KEPT]}/penstock"
    ps.set_config(cache_dir=cache_dir)
    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    answer = prompt(ps.col("prompt"), model=MODEL)
    if not os.path.exists(cache_dir):
        ps.read_parquet(run.input).with_column("answer", answer).write_parquet(run.output, mode="overwrite")
        shutil.rmtree(run.output)
        os.mkdir(run.output)
    num_asked, run.num_units = control("counts"), ps.read_parquet(run.input).count_rows()
    with run.working():
        df = ps.read_parquet(run.input).with_column("answer", answer)
        df.write_parquet(run.output, mode="overwrite", compression="snappy")
    assert control("counts") == num_asked


def plain(run):
    import hashlib
    import os
    import sqlite3

    import orjson
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    def key(prompt):
        return hashlib.sha256(orjson.dumps({"model": MODEL, "input": prompt})).digest()

    path = f"{os.environ[KEPT]}/answers.sqlite"
    is_new = not os.path.exists(path)
    db = sqlite3.connect(path)
    if is_new:
        prompts = pq.read_table(run.input)["prompt"].to_pylist()
        client = PlainClient(fresh_api() + "/responses")
        bodies = client.ask_all([{"model": MODEL, "input": prompt} for prompt in prompts], orjson.dumps)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE answers (key BLOB PRIMARY KEY, answer BLOB) WITHOUT ROWID")
        with db:
            db.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?)", zip(map(key, prompts), bodies, strict=True))
    with run.working():
        table = pq.read_table(run.input)
        answers = []
        for prompt in table["prompt"].to_pylist():
            (raw,) = db.execute("SELECT answer FROM answers WHERE key = ?", (key(prompt),)).fetchone()
            answers.append(said(orjson.loads(raw)))
        pq.write_table(table.append_column("answer", pa.array(answers)), f"{run.output}/part-0.parquet")
    run.num_units = len(answers)

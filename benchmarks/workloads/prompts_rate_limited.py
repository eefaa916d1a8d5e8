"""Prompts: 9,000 to a server that refuses (429) more than 300 requests a second without announcing the limit.

Penstock has to find the rate. The hand-written loop knows it and stays 3 % below. The figures are
by the server's own record: how much of the 300 was left unused, from the tenth second on (from the half, of a run too
short for that) to the last request, and how many requests were refused.
"""

from benchmarks.model_server import (
    API_KEY,
    MODEL,
    PlainClient,
    control,
    fresh_api,
    load_penstock,
    make_prompts,
    said,
    serving_models,
)

FIGURES = {
    "unused_percent": "% of the allowed rate unused after 10 s",
    "refused_percent": "% of the requests refused",
}
TARGETS = [("unused_percent", 10, None), ("refused_percent", 5, None)]
DATASET = "prompts"
NUM_ROWS = 9_000
LATENCY_S = 0.05
PER_SECOND = 300
SETTLED_AFTER_S = 10

make_batch = make_prompts


def serving(num_rows):
    return serving_models(latency=LATENCY_S, requests_per_second=PER_SECOND, has_limit_headers=False)


def penstock(run):
    import penstock as ps
    from penstock.functions import prompt

    load_penstock()
    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        df = ps.read_parquet(run.input).with_column("answer", prompt(ps.col("prompt"), model=MODEL))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")
    run.figures = figures(control("requests"))


def plain(run):
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    client = PlainClient(fresh_api() + "/responses", per_second=0.97 * PER_SECOND)
    with run.working():
        table = pq.read_table(run.input)
        bodies = [{"model": MODEL, "input": prompt} for prompt in table["prompt"].to_pylist()]
        answers = client.ask_all(bodies, said)
        pq.write_table(table.append_column("answer", pa.array(answers)), f"{run.output}/part-0.parquet")
    run.figures = figures(control("requests"))


def figures(requests):
    """Return the server's record."""
    taken = sorted(request["arrived"] for request in requests if request["status"] == 200)
    start = min(request["arrived"] for request in requests)
    end = taken[-1]
    settled = start + min(SETTLED_AFTER_S, (end - start) / 2)
    rate = sum(arrived > settled for arrived in taken) / (end - settled)
    refused = sum(request["status"] == 429 for request in requests)
    return {
        "unused_percent": 100 * (1 - rate / PER_SECOND),
        "refused_percent": 100 * refused / len(requests),
    }

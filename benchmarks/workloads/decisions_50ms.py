"""Decisions: five questions in separate columns about 20,000 texts, one request of 50 ms for each text.

The hand-written loop knows that the five questions are one request; Penstock finds that out from the plan.
"""

from benchmarks.model_server import API_KEY, PlainClient, fresh_api, load_penstock, make_prompts, serving_models

TARGETS = [("work_s", 1 / 0.85, "plain")]
DATASET = "prompts"
NUM_ROWS = 20_000
LATENCY_S = 0.05
MODEL = "gpt-6-luna"
OPTIONS = ["river", "engine", "valve", "summer"]
QUESTIONS = {f"q{number}": f"Which word fits number {number}?" for number in range(5)}

make_batch = make_prompts


def serving(num_rows):
    return serving_models(latency=LATENCY_S, keep_requests=0)


def penstock(run):
    import penstock as ps
    from penstock.functions import choice, decide

    load_penstock()
    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        df = ps.read_parquet(run.input)
        for name, text in QUESTIONS.items():
            df = df.with_column(name, decide(ps.col("prompt"), {"fits": choice(text, OPTIONS)}, model=MODEL))
        found = {name: ps.col(name)["fits"]["value"] for name in QUESTIONS}
        df.select("id", **found).write_parquet(run.output, mode="overwrite", compression="snappy")


def plain(run):
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    client = PlainClient(fresh_api() + "/decisions")
    with run.working():
        table = pq.read_table(run.input)
        choices = [{"value": option} for option in OPTIONS]
        questions = [
            {"name": name, "type": "choice", "instructions": text, "choices": choices}
            for name, text in QUESTIONS.items()
        ]
        bodies = [{"model": MODEL, "questions": questions, "input": text} for text in table["prompt"].to_pylist()]
        answers = client.ask_all(bodies, lambda body: [answer["choice"] for answer in body["answers"]])
        columns = dict(zip(QUESTIONS, map(pa.array, zip(*answers, strict=True)), strict=True))
        pq.write_table(pa.table({"id": table["id"], **columns}), f"{run.output}/part-0.parquet")

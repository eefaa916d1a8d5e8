"""Decisions: five questions in separate columns about 20,000 texts, one request of 50 ms for each text.

The hand-written loop knows that the five questions are one request; Penstock finds that out from the plan.
"""

from benchmarks.model_server import make_prompts, run_penstock, run_plain, serving_in_50ms

TARGETS = [("work_s", 1 / 0.85, "plain")]
DATASET = "prompts"
NUM_ROWS = 20_000
MODEL = "gpt-6-luna"
OPTIONS = ["river", "engine", "valve", "summer"]
QUESTIONS = {f"q{number}": f"Which word fits number {number}?" for number in range(5)}

make_batch = make_prompts
serving = serving_in_50ms


def penstock(run):
    import penstock as ps
    from penstock.functions import choice, decide

    def answered(df):
        for name, text in QUESTIONS.items():
            df = df.with_column(name, decide(ps.col("prompt"), {"fits": choice(text, OPTIONS)}, model=MODEL))
        return df.select("id", **{name: ps.col(name)["fits"]["value"] for name in QUESTIONS})

    run_penstock(run, answered)


def plain(run):
    import pyarrow as pa

    choices = [{"value": option} for option in OPTIONS]
    questions = [
        {"name": name, "type": "choice", "instructions": text, "choices": choices} for name, text in QUESTIONS.items()
    ]

    def result(table, answers):
        columns = zip(QUESTIONS, map(pa.array, zip(*answers, strict=True)), strict=True)
        return pa.table({"id": table["id"], **dict(columns)})

    run_plain(
        run,
        "/decisions",
        lambda table: [{"model": MODEL, "questions": questions, "input": text} for text in table["prompt"].to_pylist()],
        lambda body: [answer["choice"] for answer in body["answers"]],
        result,
    )

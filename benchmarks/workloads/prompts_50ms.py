"""Prompts: 10,000 to a server that answers each after 50 ms, Parquet to Parquet.

Only the hand-written loop is given a concurrency: the best one for this server. Ray Data gets it too, with the client
of OpenAI. Daft takes minutes and runs once.
"""

from benchmarks.model_server import (
    API_KEY,
    CONCURRENCY,
    DAFT_OPTIONS,
    MODEL,
    fresh_api,
    make_prompts,
    prompt_bodies,
    run_penstock,
    run_plain,
    said,
    serving_in_50ms,
    with_answers,
)

TARGETS = [("work_s", 1 / 15, "daft"), ("work_s", 1.15, "plain")]
DATASET = "prompts"
NUM_ROWS = 10_000
ONCE = ("daft", "daft_ray")

make_batch = make_prompts
serving = serving_in_50ms


def penstock(run):
    import penstock as ps
    from penstock.functions import prompt

    run_penstock(run, lambda df: df.with_column("answer", prompt(ps.col("prompt"), model=MODEL)))


def daft(run):
    import daft
    import openai  # noqa: F401  (the same)
    from daft.functions import prompt

    daft.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        answer = prompt(daft.col("prompt"), model=MODEL, **DAFT_OPTIONS)
        df = daft.read_parquet(run.input).with_column("answer", answer)
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def ray_data(run):
    import asyncio

    import openai
    import ray

    from benchmarks.ray_cluster import start

    url = fresh_api()

    class Asker:
        def __init__(self):
            self._client = openai.AsyncOpenAI(base_url=url, api_key=API_KEY, max_retries=5)
            self._free = asyncio.Semaphore(CONCURRENCY)

        async def _ask(self, prompt):
            async with self._free:
                return (await self._client.responses.create(model=MODEL, input=prompt)).output_text

        async def __call__(self, batch):
            yield batch | {"answer": await asyncio.gather(*map(self._ask, batch["prompt"]))}

    start()
    with run.working():
        rows = ray.data.read_parquet(run.input).map_batches(Asker, batch_size=1024, concurrency=1)
        rows.write_parquet(run.output, compression="snappy")


def plain(run):
    run_plain(run, "/responses", prompt_bodies, said, with_answers)

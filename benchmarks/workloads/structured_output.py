"""Structured output: 5,000 prompts answered by a pydantic model of five fields, 50 ms each, Parquet to Parquet.

The fields are a text, a number, a choice, a list and a model inside the model. The hand-written loop checks each answer
with pydantic. Daft takes minutes, and is run once.
"""

from benchmarks.model_server import (
    API_KEY,
    DAFT_OPTIONS,
    MODEL,
    PlainClient,
    fresh_api,
    load_penstock,
    make_prompts,
    said,
    serving_models,
)

TARGETS = [("work_s", 1 / 10, "daft"), ("work_s", 1.3, "plain")]
DATASET = "prompts"
NUM_ROWS = 5_000
ONCE = ("daft",)
LATENCY_S = 0.05

make_batch = make_prompts


def serving(num_rows):
    return serving_models(latency=LATENCY_S, keep_requests=0)


def make_model():
    """Return the model. Importing pydantic is left to each engine."""
    from enum import StrEnum

    from pydantic import BaseModel

    class State(StrEnum):  # Daft takes no Literal
        NEW = "new"
        PAID = "paid"
        SENT = "sent"

    class Address(BaseModel):
        street: str
        town: str

    class Order(BaseModel):
        customer: str
        amount: int
        state: State
        items: list[str]
        address: Address

    return Order


def penstock(run):
    import penstock as ps

    order = make_model()
    load_penstock()
    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        answer = ps.col("prompt").prompt(order, model=MODEL)
        df = ps.read_parquet(run.input).select("id", answer.alias("answer"))
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    import daft
    import openai  # noqa: F401  (the same)
    from daft.functions import prompt

    order = make_model()
    daft.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    with run.working():
        answer = prompt(daft.col("prompt"), return_format=order, model=MODEL, **DAFT_OPTIONS)
        df = daft.read_parquet(run.input).select("id", answer.alias("answer"))
        df.write_parquet(run.output, write_mode="overwrite", compression="snappy")


def plain(run):
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = make_model()
    form = {"type": "json_schema", "name": "Order", "schema": strict(order.model_json_schema()), "strict": True}
    client = PlainClient(fresh_api() + "/responses")
    with run.working():
        table = pq.read_table(run.input)
        prompts = table["prompt"].to_pylist()
        bodies = [{"model": MODEL, "input": prompt, "text": {"format": form}} for prompt in prompts]
        orders = client.ask_all(bodies, lambda body: order.model_validate_json(said(body)).model_dump(mode="json"))
        result = pa.table({"id": table["id"], "answer": pa.array(orders)})
        pq.write_table(result, f"{run.output}/part-0.parquet")


def strict(schema):
    """Return the schema with every object closed, as the API requires."""
    closed = {"additionalProperties": False}
    inner = {name: part | closed if "properties" in part else part for name, part in schema["$defs"].items()}
    return schema | closed | {"$defs": inner}

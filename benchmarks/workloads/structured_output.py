"""Structured output: 5,000 prompts answered by a pydantic model of five fields, 50 ms each, Parquet to Parquet.

The fields are a text, a number, a choice, a list and a model inside the model. The hand-written loop checks each answer
with pydantic. Daft takes minutes, and is run once.
"""

from benchmarks.model_server import (
    API_KEY,
    DAFT_OPTIONS,
    MODEL,
    fresh_api,
    make_prompts,
    prompt_bodies,
    run_penstock,
    run_plain,
    said,
    serving_in_50ms,
)

TARGETS = [("work_s", 1 / 10, "daft"), ("work_s", 1.3, "plain")]
DATASET = "prompts"
NUM_ROWS = 5_000
ONCE = ("daft",)

make_batch = make_prompts
serving = serving_in_50ms


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
    run_penstock(run, lambda df: df.select("id", answer=ps.col("prompt").prompt(order, model=MODEL)))


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
    import pyarrow as pa

    order = make_model()
    form = {"type": "json_schema", "name": "Order", "schema": strict(order.model_json_schema()), "strict": True}
    run_plain(
        run,
        "/responses",
        lambda table: [{**body, "text": {"format": form}} for body in prompt_bodies(table)],
        lambda body: order.model_validate_json(said(body)).model_dump(mode="json"),
        lambda table, orders: pa.table({"id": table["id"], "answer": pa.array(orders)}),
    )


def strict(schema):
    """Return the schema with every object closed, as the API requires."""
    closed = {"additionalProperties": False}
    inner = {name: part | closed if "properties" in part else part for name, part in schema["$defs"].items()}
    return schema | closed | {"$defs": inner}

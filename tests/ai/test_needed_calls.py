"""A reader that needs few rows makes few calls, also behind operators that drop or multiply rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.functions import prompt
from penstock.llm import OpenAIProcessorConfig, build_processor
from penstock.testing import ModelServer

NUM_ROWS = 3_000
EVERY = 5  # a selective operator keeps one row of so many


def ask(df: ps.DataFrame) -> ps.DataFrame:
    return df.with_column("a", prompt(ps.col("q"), model="gpt-5-mini"))


def is_kept(text: str) -> bool:
    return int(text.split()[-1]) % EVERY == 0


@ps.func
def keep(text: str) -> bool:
    return is_kept(text)


def processed(df: ps.DataFrame) -> ps.DataFrame:
    processor = build_processor(
        OpenAIProcessorConfig(model="gpt-5-mini"),
        preprocess=lambda row: {"prompt": row["q"]},
        postprocess=lambda row: {"a": row["generated_text"]},
    )
    return processor(df)


OPERATORS: dict[str, Callable[[ps.DataFrame], ps.DataFrame]] = {
    "where": lambda df: ask(df).where(ps.col("a").endswith("0") | ps.col("a").endswith("5")),
    "udf": lambda df: ask(df).where(keep(ps.col("a"))),
    "filter": lambda df: ask(df).filter(lambda row: is_kept(row["a"])),
    "map": lambda df: ask(df).map(lambda row: {"a": row["a"]}),
    "map_batches": lambda df: ask(df).map_batches(lambda batch: {"a": batch["a"][::EVERY]}),
    "flat_map": lambda df: ask(df).flat_map(lambda row: [row] if is_kept(row["a"]) else []),
    "explode": lambda df: ask(df).with_column("a", ps.col("a").split(" ")).explode("a"),
    "drop_null": lambda df: ask(df).with_column("b", ps.when(ps.col("a").endswith("0"), 1)).drop_null("b"),
    "processor": processed,
    "chained": lambda df: ask(ask(df).where(keep(ps.col("a"))).with_column("q", ps.col("a"))).where(keep(ps.col("a"))),
}
NEEDED_PER_ROW = {"where": 5, "udf": 5, "filter": 5, "map_batches": 5, "flat_map": 5, "drop_null": 10, "chained": 10}
"""Calls for one row of the result, of all stages together."""


def left_early(rows: Any) -> None:
    with contextlib.closing(rows):
        next(rows)


READERS: dict[str, tuple[Callable[[ps.DataFrame], object], int]] = {
    "show": (lambda df: df.show(3), 3),
    "limit": (lambda df: df.limit(30).collect(), 30),
    "iter_rows": (lambda df: left_early(df.iter_rows()), 1),
    "iter_batches": (lambda df: left_early(df.iter_batches(batch_size=16)), 16),
    "schema": (lambda df: df.map(lambda row: row).schema, 1),
}


@pytest.mark.parametrize(
    ("operator", "reader"),
    [*((each, "show") for each in OPERATORS), *(("udf", each) for each in READERS if each != "show")],
)
def test_a_reader_of_few_rows_makes_few_calls(model_server: ModelServer, operator: str, reader: str) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    read, num_rows = READERS[reader]
    df = ps.from_pydict({"id": range(NUM_ROWS), "q": [f"row {n}" for n in range(NUM_ROWS)]})
    read(OPERATORS[operator](df))
    num_stages = 2 if operator == "chained" else 1
    # Each stage may make four times the calls that are needed, and 16.
    assert model_server.counts.requests <= 4 * num_rows * NEEDED_PER_ROW.get(operator, 1) + 16 * num_stages


def test_a_batch_api_gets_all_rows_of_a_loop_at_once(model_server: ModelServer) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    df = ps.from_pydict({"q": [f"row {n}" for n in range(300)]})
    asked = df.select(prompt(ps.col("q"), model="gpt-5-mini", batch_api=True, batch_poll_interval=0.05))
    assert sum(1 for _ in asked.iter_rows()) == 300
    assert sum(each.path.endswith("/batches") for each in model_server.requests) == 1

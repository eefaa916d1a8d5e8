"""Queries whose rows are large only in the result: ``python -m tests.faults.widening NAME MEMORY_LIMIT FOLDER``.

Each runs as a process of its own, so that its memory is its own too. It prints the peak of its memory before the query
and after it, and the number of rows that are in the output.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

import penstock as ps
from tests.faults.process_memory import high_water

ANSWER_NBYTES = 6_000_000
NUM_ANSWERS = 90
NUM_TEXTS, TEXT_NBYTES, TIMES = 1_000, 1_000, 1_000
NUM_LINES = 6_000_000
LINE = "1234567,0.123456,some text that is about as long as a sentence of a review\n"


@ps.func(use_process=False)
def small(number: int) -> bytes:
    return b""


@ps.func(use_process=False)
def large(number: int) -> bytes:
    return bytes(ANSWER_NBYTES)


@ps.func(use_process=False)
async def large_async(number: int) -> bytes:
    await asyncio.sleep(0)
    return bytes(ANSWER_NBYTES)


def numbers() -> ps.DataFrame:
    return ps.from_pydict({"number": list(range(NUM_ANSWERS))})


def repeat(folder: Path) -> ps.DataFrame:
    texts = ps.from_pydict({"text": ["x" * TEXT_NBYTES] * NUM_TEXTS})
    return texts.select(ps.col("text").repeat(TIMES).alias("value"))


def csv(folder: Path) -> ps.DataFrame:
    with open(folder / "in.csv", "w") as file:
        file.write("id,x,value\n")
        for _ in range(NUM_LINES // 100_000):
            file.write(LINE * 100_000)
    return ps.read_csv(folder / "in.csv")


def rows(folder: Path) -> ps.DataFrame:
    return numbers().select(large(ps.col("number")).alias("value"))


def async_rows(folder: Path) -> ps.DataFrame:
    return numbers().select(large_async(ps.col("number")).alias("value"))


def prompts(folder: Path) -> ps.DataFrame:
    options = {"base_url": (folder / "url").read_text(), "api_key": "key"}
    ps.set_provider("openai", use_chat_completions=True, **options)
    return numbers().select(ps.prompt(ps.col("number").cast("string"), model="large").alias("value"))


QUERIES: dict[str, Callable[[Path], ps.DataFrame]] = {
    "repeat": repeat,
    "csv": csv,
    "rows": rows,
    "async_rows": async_rows,
    "prompts": prompts,
}


def main(name: str, memory_limit: int, folder: Path) -> None:
    ps.set_config(memory_limit=memory_limit, progress=False)
    numbers().limit(1).select(small(ps.col("number"))).write_parquet(folder / "first")  # imports what queries need
    before = high_water(os.getpid())
    QUERIES[name](folder).write_parquet(folder / "out")
    num_rows = sum(pq.read_metadata(path).num_rows for path in (folder / "out").glob("*"))
    sys.stdout.write(f"{before} {high_water(os.getpid())} {num_rows}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

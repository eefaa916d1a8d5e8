"""Pipelines that make many rows of few: ``python -m tests.faults.multiplying NAME MEMORY_LIMIT``. Writes their number.

Each makes 200 MB of a few, three times the budget of the test, and runs as a process of its own, so that its memory is
its own too.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow as pa

import penstock as ps

TEXT = "x" * 4000
NUM_ROWS = 50_000


def explode() -> ps.DataFrame:
    return ps.from_pydict({"text": [TEXT] * 500, "numbers": [list(range(NUM_ROWS // 500))] * 500}).explode("numbers")


def explode_one_row() -> ps.DataFrame:
    return ps.from_pydict({"text": [TEXT], "numbers": [list(range(NUM_ROWS))]}).explode("numbers")


def unpivot() -> ps.DataFrame:
    columns = {f"c{n}": list(range(NUM_ROWS // 400)) for n in range(400)}
    return ps.from_pydict({"text": [TEXT] * (NUM_ROWS // 400), **columns}).unpivot("text")


@ps.func(use_process=False)
def rows_of(number: int) -> Iterator[str]:
    for _ in range(NUM_ROWS):
        yield TEXT


@ps.func
async def async_rows_of(number: int) -> AsyncIterator[str]:
    for _ in range(NUM_ROWS):
        yield TEXT


def dicts_of(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _ in range(NUM_ROWS):
        yield {"text": TEXT}


async def batches_of(batch: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for _ in range(NUM_ROWS // 1000):
        yield {"text": [TEXT] * 1000}


PIPELINES: dict[str, Callable[[], ps.DataFrame]] = {
    "explode": explode,
    "explode_one_row": explode_one_row,
    "unpivot": unpivot,
    "generator": lambda: ps.range(1).select("id", rows_of(ps.col("id")).alias("text")),
    "async_generator": lambda: ps.range(1).select("id", async_rows_of(ps.col("id")).alias("text")),
    "flat_map": lambda: ps.range(1).flat_map(dicts_of, use_process=False),
    "async_map_batches": lambda: ps.range(1).map_batches(batches_of),
}


def num_rows(batch: pa.Table) -> pa.Table:
    return pa.table({"rows": [batch.num_rows]})


if __name__ == "__main__":
    ps.set_config(memory_limit=int(sys.argv[2]), progress=False)
    counted = PIPELINES[sys.argv[1]]().map_batches(num_rows, batch_format="pyarrow", batch_size=None, use_process=False)
    sys.stdout.write(f"{sum(counted.to_pydict()['rows'])}\n")

"""Pipelines in which each row grows fiftyfold: ``python -m tests.faults.inflating NAME NUM_ROWS MEMORY_LIMIT FOLDER``.

A row is read with 0.4 MB and becomes 20. What becomes of it is a sum, so that the result is small and can be
checked. Each runs as a process of its own, so that its memory is its own too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.protocols import ReadRequest

ROW_NBYTES = 400_000
INFLATION = 50
ROWS_PER_BATCH = 16  # what readers of files give: batches of 6 MB
STRIDE = 4096
ROW_S = 0.005  # what the slow end takes for a row, and longer than it takes to make one


@dataclass(frozen=True)
class CompactRead:
    first: int
    num_rows: int | None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        ids = range(self.first, self.first + (self.num_rows or 0))
        payloads = [bytes([i % 251]) * ROW_NBYTES for i in ids]
        yield pa.record_batch({"id": pa.array(list(ids)), "payload": pa.array(payloads, pa.binary())})


@dataclass(frozen=True)
class CompactSource:
    """Rows of 0.4 MB each, made as they are asked for."""

    num_rows: int
    name: str = "compact"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_arrow(pa.schema({"id": pa.int64(), "payload": pa.binary()}))

    def read_tasks(self, request: ReadRequest) -> Iterator[CompactRead]:
        for first in range(0, self.num_rows, ROWS_PER_BATCH):
            yield CompactRead(first, min(ROWS_PER_BATCH, self.num_rows - first))


Batch = dict[str, Any]


def inflate_batch(batch: Batch) -> Batch:
    images = np.empty((len(batch["id"]), INFLATION * ROW_NBYTES), np.uint8)
    for row, payload in enumerate(batch["payload"]):
        images[row] = payload[0]
    return {"id": batch["id"], "image": images}


def consume_batch(batch: Batch) -> Batch:
    time.sleep(ROW_S * len(batch["id"]))
    return {"id": batch["id"], "total": batch["image"][:, ::STRIDE].sum(axis=1, dtype=np.int64)}


@ps.func(return_dtype=ps.DataType.binary(), use_process=False)
def inflate_row(payload: bytes) -> bytes:
    return payload * INFLATION


@ps.func(return_dtype=ps.DataType.int64(), use_process=False)
def consume_row(image: bytes) -> int:
    time.sleep(ROW_S)
    return int(np.frombuffer(image, np.uint8)[::STRIDE].sum(dtype=np.int64))


def threads(df: ps.DataFrame) -> ps.DataFrame:
    return df.map_batches(inflate_batch, use_process=False).map_batches(consume_batch, use_process=False)


def rows(df: ps.DataFrame) -> ps.DataFrame:
    inflated = df.select("id", inflate_row(ps.col("payload")).alias("image"))
    return inflated.select("id", consume_row(ps.col("image")).alias("total"))


def processes(df: ps.DataFrame) -> ps.DataFrame:
    inflated = df.map_batches(inflate_batch, use_process=True, concurrency=2)
    return inflated.map_batches(consume_batch, use_process=True, concurrency=2)


def expressions(df: ps.DataFrame) -> ps.DataFrame:
    copies = ps.lit(list(range(INFLATION)))
    exploded = df.with_column("copy", copies).explode("copy")
    return exploded.map_batches(consume_payload, use_process=False)


def consume_payload(batch: Batch) -> Batch:
    """Rows of which fifty were one; the sum that stands for them all comes from the first."""
    time.sleep(ROW_S / INFLATION * len(batch["id"]))
    totals = [payload[0] * -(-INFLATION * ROW_NBYTES // STRIDE) for payload in batch["payload"]]
    is_first = batch["copy"] == 0
    return {"id": batch["id"][is_first], "total": np.array(totals)[is_first]}


def slow_first(df: ps.DataFrame) -> ps.DataFrame:
    """What is made out of turn is held back until the first batch is there."""
    inflated = df.map_batches(inflate_slow_first, concurrency=2, use_process=False)
    return inflated.map_batches(consume_batch, use_process=False)


def inflate_slow_first(batch: Batch) -> Batch:
    if batch["id"][0] == 0:
        time.sleep(2)  # all the others are made meanwhile, as far as memory allows
    return inflate_batch(batch)


PIPELINES: dict[str, Callable[[ps.DataFrame], ps.DataFrame]] = {
    "threads": threads,
    "rows": rows,
    "processes": processes,
    "expressions": expressions,
    "slow_first": slow_first,
}


def main(name: str, num_rows: int, memory_limit: int, folder: str) -> None:
    ps.set_config(memory_limit=memory_limit, progress=False)
    df = ps.read_source(CompactSource(num_rows))
    if name == "reader":
        read_slowly(df.map_batches(inflate_batch, use_process=False), folder)
    else:
        PIPELINES[name](df).write_parquet(folder)


def read_slowly(df: ps.DataFrame, folder: str) -> None:
    """The user's own loop is what takes time."""
    totals: dict[int, int] = {}
    for batch in df.iter_batches(batch_size=None):
        for row, total in enumerate(consume_batch(batch)["total"].tolist()):
            totals[int(batch["id"][row])] = total
    assert list(totals) == sorted(totals)
    ps.from_pydict({"id": list(totals), "total": list(totals.values())}).write_parquet(folder)


def expected_totals(num_rows: int) -> dict[int, int]:
    num_summed = -(-INFLATION * ROW_NBYTES // STRIDE)
    return {i: i % 251 * num_summed for i in range(num_rows)}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

"""Relations over much data: ``python -m tests.faults.spilling NAME MEMORY_LIMIT NBYTES TEMP_DIR``.

Writes the number of rows, and of the bytes that the process has written to files. Each runs as a process of its own, so
that its memory is its own too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.protocols import ReadRequest

BATCH_ROWS = 5_000
ROW_NBYTES = 8 + 8 + 4 + 400


@dataclass(frozen=True)
class RandomRead:
    number: int
    num_rows: int | None = BATCH_ROWS
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        generator = np.random.default_rng(self.number)
        ids = np.arange(self.number * BATCH_ROWS, (self.number + 1) * BATCH_ROWS)
        keys = (ids * 2_654_435_761) % 2**32
        text = generator.bytes(BATCH_ROWS * (ROW_NBYTES - 20) // 2).hex()
        width = len(text) // BATCH_ROWS
        texts = pa.Array.from_buffers(
            pa.string(),
            BATCH_ROWS,
            [None, pa.py_buffer(np.arange(0, len(text) + 1, width, dtype=np.int32)), pa.py_buffer(text.encode())],
        )
        yield pa.record_batch({"id": keys, "half": keys // 2, "text": texts})


@dataclass(frozen=True)
class RandomRows:
    """A source of rows in random order: ``id`` is unique, each ``half`` occurs about twice."""

    nbytes: int
    name: str = "random"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_arrow(pa.schema({"id": pa.int64(), "half": pa.int64(), "text": pa.string()}))

    def read_tasks(self, request: ReadRequest) -> Iterator[RandomRead]:
        for number in range(self.nbytes // (BATCH_ROWS * ROW_NBYTES)):
            yield RandomRead(number)


def joined(df: ps.DataFrame) -> ps.DataFrame:
    return df.join(df.select("id", other=ps.col("text")), on="id")


PIPELINES: dict[str, Callable[[ps.DataFrame], ps.DataFrame]] = {
    "sort": lambda df: df.sort("id"),
    "join": joined,
    "distinct": lambda df: df.distinct(),
    "group": lambda df: df.groupby("text").agg(ps.col("id").sum()),
}


def num_rows(batch: pa.Table) -> pa.Table:
    return pa.table({"rows": [batch.num_rows]})


if __name__ == "__main__":
    name, memory_limit, nbytes, temp_dir = sys.argv[1:]
    ps.set_config(memory_limit=int(memory_limit), progress=False, temp_dir=temp_dir)
    result = PIPELINES[name](ps.read_source(RandomRows(int(nbytes))))
    counted = result.map_batches(num_rows, batch_format="pyarrow", batch_size=None, use_process=False)
    num_rows_out = sum(counted.to_pydict()["rows"])
    (written,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar: "))
    sys.stdout.write(f"{num_rows_out} {written.split()[1]}\n")

"""One Parquet file of several gigabytes, and some columns of one that lies in a bucket."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from tests.storage.servers import Bucket

GROUP_ROWS = 2**18
NUM_GROUPS = 80
TEXT = "x" * 100


def test_a_file_of_two_gigabytes_streams_through_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(GROUP_ROWS, np.int32)), [TEXT]).cast(pa.string())
    with pq.ParquetWriter(path, pa.schema([("group", pa.int32()), ("text", pa.string())])) as writer:
        for group in range(NUM_GROUPS):
            numbers = pa.array(np.full(GROUP_ROWS, group, np.int32))
            writer.write_table(pa.table({"group": numbers, "text": texts}), row_group_size=GROUP_ROWS)
    largest: list[int] = []

    def weigh(batch: pa.RecordBatch) -> dict[str, Any]:
        largest.append(pa.total_allocated_bytes())
        return {"rows": [batch.num_rows], "nbytes": [batch.nbytes]}

    before = pa.total_allocated_bytes()
    with ps.config(memory_limit="256MiB"):
        weighed = ps.read_parquet(path).map_batches(lambda b: weigh(b), batch_format="pyarrow").to_pydict()
    assert sum(weighed["rows"]) == GROUP_ROWS * NUM_GROUPS
    assert sum(weighed["nbytes"]) > 2 * 2**30
    assert max(largest) - before < 2**30
    kept = ps.read_parquet(path).where(ps.col("group") == NUM_GROUPS - 1).select("group")
    assert kept.count_rows() == GROUP_ROWS


def test_some_columns_of_a_large_file_in_a_bucket(bucket: Bucket) -> None:
    noise = np.random.default_rng(0).integers(0, 2**62, 2**17)
    columns = {f"c{number}": noise + number for number in range(10)}
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": range(2**17), **columns}), buffer, row_group_size=2**15, use_dictionary=False)
    bucket.store.put("large.parquet", buffer.getvalue())
    frame = ps.read_parquet(f"{bucket.url}/large.parquet", storage_options=bucket.options)
    kept = frame.where(ps.col("id") >= 2**17 - 3).select("c7").to_pydict()
    assert kept == {"c7": (noise[-3:] + 7).tolist()}

"""Batches that a reader cuts from larger blocks: the same values as ever, at a small cost for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import penstock as ps
from penstock.expr.udf import BatchFormat
from penstock.frame.cut_batches import MAX_ROWS, cut_batches
from penstock.types import DataType, to_arrow_array
from penstock.udf.formats import batch_in_format

NUM_ROWS, SIZE = 300, 64


def every_third(values: list[Any]) -> list[Any]:
    return [None if number % 3 == 0 and number > SIZE else value for number, value in enumerate(values)]


NUMBERS = list(range(NUM_ROWS))
COLUMNS: dict[str, Any] = {
    "integers": pa.array(NUMBERS),
    "unsigned": pa.array(NUMBERS, pa.uint16()),
    "integers with nulls in some batches": pa.array(every_third(NUMBERS)),
    "floats": pa.array(NUMBERS, pa.float32()),
    "flags": pa.array([number % 2 == 0 for number in NUMBERS]),
    "flags with nulls": pa.array(every_third([True] * NUM_ROWS)),
    "text": pa.array([f"row {number}" for number in NUMBERS]),
    "text with nulls": pa.array(every_third(["é"] * NUM_ROWS)),
    "bytes": pa.array([b"x"] * NUM_ROWS),
    "times": pa.array(every_third(NUMBERS), pa.timestamp("us")),
    "dates": pa.array(NUMBERS, pa.date32()),
    "lists": pa.array([[number] * (number % 3) for number in NUMBERS]),
    "pairs": pa.array([[number, 0.5] for number in NUMBERS], pa.list_(pa.float64(), 2)),
    "structs": pa.array([{"a": number} for number in NUMBERS]),
    "embeddings": to_arrow_array([[1.0, 2.0]] * NUM_ROWS, DataType.embedding(DataType.float32(), 2), what="x"),
    "embeddings with nulls": to_arrow_array(
        every_third([[1.0, 2.0]] * NUM_ROWS), DataType.embedding(DataType.float32(), 2), what="x"
    ),
    "tensors": to_arrow_array(
        [np.full((2, 2), number) for number in NUMBERS], DataType.tensor(DataType.int64(), (2, 2)), what="x"
    ),
    "images": to_arrow_array(
        [np.zeros((2 if number > SIZE else 3, 2, 3), np.uint8) for number in NUMBERS], DataType.image("RGB"), what="x"
    ),
}


def blocks(*given: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield from given


def cut(
    block: pa.RecordBatch, batch_format: BatchFormat, size: int | None = SIZE, drop_last: bool = False
) -> list[Any]:
    generator: Any = blocks(block)
    return list(cut_batches(generator, size, batch_format, drop_last))


def same(left: Any, right: Any) -> bool:
    """Compare batches with their types; NaN equals NaN."""
    match left:
        case pd.DataFrame():
            pd.testing.assert_frame_equal(left, right)
            return True
        case pa.Table():
            return bool(left.equals(right))
        case dict():
            return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
        case list():
            return len(left) == len(right) and all(map(same, left, right))
        case torch.Tensor():
            return left.dtype == right.dtype and torch.allclose(left, right, equal_nan=True)
        case np.ndarray() if left.dtype == object:
            return right.dtype == object and same(left.tolist(), right.tolist())
        case np.ndarray():
            has_nan = left.dtype.kind in "fmM"
            return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=has_nan)
        case _:
            return bool(left == right)


@pytest.mark.one_machine
@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow", "pylist", "torch"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_batch_has_the_values_and_types_that_it_has_alone(column: str, batch_format: BatchFormat) -> None:
    block = pa.RecordBatch.from_arrays([COLUMNS[column]], ["x"]).slice(3)
    try:
        alone = [batch_in_format(block.slice(start, SIZE), batch_format) for start in range(0, block.num_rows, SIZE)]
    except Exception as exc:  # torch has no texts
        with pytest.raises(type(exc)):
            cut(block, batch_format)
    else:
        assert same(cut(block, batch_format), alone)


@pytest.mark.one_machine
@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "torch"])
def test_batches_may_be_changed_and_share_no_memory(batch_format: BatchFormat) -> None:
    block = pa.RecordBatch.from_pydict({"x": NUMBERS})
    batches = cut(block, batch_format)
    for batch in batches[1:]:
        if isinstance(batch, pd.DataFrame):
            batch.iloc[:, 0] = 0
        else:
            batch["x"][:] = 0
    assert batches[0]["x"].tolist() == NUMBERS[:SIZE]
    assert block.column("x").to_pylist() == NUMBERS


@pytest.mark.one_machine
def test_blocks_of_many_rows_are_cut_without_gaps() -> None:
    num_rows = 3 * MAX_ROWS + 5
    block = pa.RecordBatch.from_pydict({"x": range(num_rows)})
    batches = cut(block, "numpy", 7)
    assert [len(batch["x"]) for batch in batches] == [7] * (num_rows // 7) + [num_rows % 7]
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == list(range(num_rows))
    assert len(cut(block, "numpy", 7, drop_last=True)) == num_rows // 7
    assert [len(batch["x"]) for batch in cut(block, "numpy", None)] == [num_rows]


def frame(num_rows: int) -> ps.DataFrame:
    return ps.from_arrow(pa.table({"id": range(num_rows), "x": np.zeros(num_rows)})).with_column("y", ps.col("id") + 1)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_engine_hands_over_many_batches_at_a_time(prefetch: int) -> None:
    df = frame(500_000)
    num_batches = sum(1 for _ in df.iter_batches(prefetch=prefetch))
    assert num_batches == -(-500_000 // 256)
    assert df.stats().stages[-1].num_bundles < num_batches / 3


def num_calls(num_rows: int) -> int:
    """Return how many functions the reader's thread, which also drives the query, calls to read all batches."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    batches = frame(num_rows).iter_batches(prefetch=0)
    next(batches)
    sys.setprofile(note)
    try:
        for _ in batches:
            pass
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.one_machine
def test_a_batch_costs_few_calls() -> None:
    few, many = num_calls(256 * 200), num_calls(256 * 2200)
    assert (many - few) / 2000 < 100  # 267 if each batch is a task of its own

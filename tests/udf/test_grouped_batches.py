"""Short batches travel to a process in groups; the function still gets them one by one, and so do failures."""

from __future__ import annotations

import os
from typing import Any

import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import UdfError

INT = DataType.int64()
NUM_ROWS, SIZE = 4_010, 10
BAD = 3_005  # in the middle of a batch, when batches are grouped already


def in_process(function: Any, **options: Any) -> Any:
    return ps.func.batch(return_dtype=INT, use_process=True, max_concurrency=1, batch_size=SIZE, **options)(function)


def test_the_function_gets_exact_batches_and_few_tasks_carry_them() -> None:
    df = ps.range(NUM_ROWS - 1).select(size=in_process(lambda ids: [len(ids)] * len(ids))(col("id")))
    parts = [part.column("size").to_pylist() for part in df.iter_partitions()]
    sizes = [size for part in parts for size in part]
    assert sizes == [SIZE] * (NUM_ROWS - SIZE) + [SIZE - 1] * (SIZE - 1)
    assert len(parts) < NUM_ROWS // SIZE


def test_a_batch_that_fails_is_named_and_the_others_keep_their_rows() -> None:
    def doubled(ids: Series) -> list[int]:
        values = ids.to_pylist()
        if BAD in values:
            raise KeyError(len(values))
        return [2 * value for value in values]

    with pytest.raises(UdfError, match=rf"failed on a batch of {SIZE} rows \(.*\): KeyError: {SIZE}"):
        ps.range(NUM_ROWS).select(in_process(doubled)(col("id"))).collect()
    df = ps.range(NUM_ROWS).select(in_process(doubled, on_error="ignore")(col("id"))).collect()
    assert df.to_pydict()["id"] == [None if i == BAD else 2 * i for i in range(NUM_ROWS)]
    assert df.errors().to_pydict()["message"] == ["1"]


@pytest.mark.parametrize("on_error", ["raise", "ignore"])
def test_a_batch_that_ends_its_process_is_tried_alone(tmp_path: Any, on_error: Any) -> None:
    died = tmp_path / "died"

    def doubled(ids: Series) -> list[int]:
        values = ids.to_pylist()
        if BAD in values and (on_error == "ignore" or not died.exists()):
            died.touch()
            os._exit(3)
        return [2 * value for value in values]

    df = ps.range(NUM_ROWS).select(in_process(doubled, on_error=on_error)(col("id"))).collect()
    expected = [2 * i if i != BAD or on_error == "raise" else None for i in range(NUM_ROWS)]
    assert df.to_pydict()["id"] == expected
    assert df.errors().count_rows() == (on_error == "ignore")

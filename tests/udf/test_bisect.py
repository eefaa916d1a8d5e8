"""A batch function that fails on some rows: the others keep their results."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import UdfError
from penstock.expr.udf import BatchLimits
from penstock.udf.sizing import BatchSizes

BAD = {3, 7, 8}
GOOD = [x for x in range(10) if x not in BAD]


@settings(deadline=None)
@given(bad=st.sets(st.integers(0, 40)), num_rows=st.integers(1, 40))
def test_every_row_comes_once_in_order_and_bad_ones_alone(bad: set[int], num_rows: int) -> None:
    sizes = BatchSizes(BatchLimits(), "f", lambda batch: batch.columns)
    parts = sizes.parts(pa.record_batch({"x": list(range(num_rows))}))
    settled = []
    for part in parts:
        rows = part["x"].to_pylist()
        if not bad.isdisjoint(rows) and parts.split():
            continue
        assert bad.isdisjoint(rows) or len(rows) == 1
        settled += rows
    assert settled == list(range(num_rows))


def doubled(values: list[int]) -> list[int]:
    if not BAD.isdisjoint(values):
        raise ValueError("bad row")
    return [2 * value for value in values]


def over_series(series: Series) -> list[int]:
    return doubled(series.to_pylist())


async def over_series_async(series: Series) -> list[int]:
    return doubled(series.to_pylist())


@pytest.mark.parametrize("function", [over_series, over_series_async])
@pytest.mark.parametrize("max_retries", [0, 1])
def test_func_batch(function: Any, max_retries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.udf.retry.FIRST_DELAY_S", 0.001)
    tolerant = ps.func.batch(return_dtype=DataType.int64(), on_error="ignore", max_retries=max_retries)(function)
    result = ps.range(10).select("id", x=tolerant(col("id"))).to_pydict()
    assert result == {"id": list(range(10)), "x": [None if x in BAD else 2 * x for x in range(10)]}


def over_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": doubled(batch["id"].tolist())}


async def over_batch_async(batch: dict[str, Any]) -> dict[str, Any]:
    return over_batch(batch)


def over_batch_bit_by_bit(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Fails after some rows are out already."""
    for value in batch["id"].tolist():
        yield {"x": doubled([value])}


@pytest.mark.parametrize("function", [over_batch, over_batch_async, over_batch_bit_by_bit])
@pytest.mark.parametrize("use_process", [False, True])
def test_map_batches(function: Any, use_process: bool) -> None:
    df = ps.range(10).map_batches(function, on_error="ignore", use_process=use_process)
    assert df.to_pydict() == {"x": [2 * x for x in GOOD]}


def test_nothing_is_left_where_every_row_fails() -> None:
    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("always")

    assert ps.range(5).map_batches(fail, on_error="ignore").to_pylist() == []


@pytest.mark.one_machine
def test_each_bad_row_is_logged_once_with_its_values(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock"):
        ps.range(10).map_batches(over_batch, on_error="log", concurrency=1).collect()
    assert [record.getMessage() for record in caplog.records] == [
        f'map_batches over_batch: row {x} of the input failed with ValueError: bad row; its values: {{"id": {x}}}'
        for x in sorted(BAD)
    ]


@pytest.mark.one_machine
def test_raise_calls_it_once() -> None:
    calls = []

    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        calls.append(len(batch["id"]))
        raise ValueError("always")

    with pytest.raises(
        UdfError, match=r"map_batches\(fail\) failed on a batch of 10 rows \(from row 0 .*\): ValueError: always"
    ):
        ps.range(10).map_batches(fail, batch_size=None).collect()
    assert calls == [10]

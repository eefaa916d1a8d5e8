"""A query that has ended holds nothing, also before the garbage collector runs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

import penstock as ps
from tests.jobs.helpers import wait_until

TABLE = pa.table({"n": range(40_000), "text": [f"{number:>80}" for number in range(40_000)]})


def call() -> None:
    ps.from_arrow(TABLE).map_batches(lambda batch: batch, batch_size=4000).to_pydict()


def sort() -> None:
    ps.from_arrow(TABLE).sort("n", desc=True).to_pydict()


def group_more_rows_than_memory() -> None:
    with ps.config(memory_limit=4_000_000):
        ps.from_arrow(TABLE).into_batches(4000).groupby("n").agg(ps.col("text").max()).to_pydict()


def stop_early() -> None:
    next(iter(ps.from_arrow(TABLE).into_batches(100).map_batches(lambda batch: batch).iter_rows()))


def fail() -> None:
    with pytest.raises(ZeroDivisionError):
        ps.from_arrow(TABLE).map_batches(lambda batch: 1 / 0, batch_size=4000).to_pydict()


def engine_objects() -> Counter[str]:
    """Count the objects of the engine by their classes; those of a query refer to its batches."""
    classes = (type(each) for each in gc.get_objects())
    return Counter(each.__qualname__ for each in classes if str(each.__module__).startswith("penstock.engine"))


@pytest.mark.parametrize("query", [call, sort, group_more_rows_than_memory, stop_early, fail])
def test_no_object_of_the_engine_outlives_its_query(runner: str, query: Callable[[], None]) -> None:
    query()  # starts what later queries use too
    gc.collect()
    gc.disable()
    try:
        before = engine_objects()
        query()
        wait_until(lambda: not engine_objects() - before)  # a worker may still be starting
    finally:
        gc.enable()

"""Plans and reads of many columns: what is done for each column does not depend on the number of the others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col
from penstock.plan.lower import lower
from penstock.plan.optimizer import optimize
from penstock.plan.stages import Read

NARROW, WIDE = 200, 1600


def wide_file(folder: Path, num_columns: int) -> str:
    path = folder / f"{num_columns}.parquet"
    if not path.exists():
        pq.write_table(pa.table({f"c{place}": pa.array([1, 2], pa.int64()) for place in range(num_columns)}), path)
    return str(path)


def num_calls(work: Callable[[], object]) -> int:
    """Return the number of calls of Python and C functions on this thread, which load does not change."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


QUERIES: dict[str, Callable[[ps.DataFrame], object]] = {
    "filter": lambda df: df.where(col("c1") > 1).select("c0", "c2").to_arrow(),
    "filter, all columns": lambda df: df.where(col("c1") > 1).to_arrow(),
    "select": lambda df: df.select(*df.columns[::2]).to_arrow(),
    "with_column": lambda df: df.with_column("x", col("c0") + 1).to_arrow(),
    "rename": lambda df: df.rename_columns({name: f"{name}_" for name in df.columns}).to_arrow(),
    "sort": lambda df: df.sort("c0").to_arrow(),
    "join": lambda df: df.join(df.rename_columns({n: f"{n}_" for n in df.columns if n != "c0"}), on="c0").to_arrow(),
    "aggregate": lambda df: df.groupby("c0").agg(*[col(name).max() for name in df.columns[1:]]).to_arrow(),
    "drop_null": lambda df: df.drop_null().to_arrow(),
    "sql": lambda df: ps.sql("select * from df", df=df).to_arrow(),
    "explain": lambda df: df.where(col("c1") > 1).explain(),
    "to_pandas": lambda df: df.to_pandas(),
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_work_grows_with_the_columns_and_not_with_their_square(name: str, tmp_path: Path) -> None:
    def calls(num_columns: int) -> int:
        path = wide_file(tmp_path, num_columns)
        return num_calls(lambda: QUERIES[name](ps.read_parquet(path)))

    calls(NARROW)  # loads what is loaded once
    assert calls(WIDE) < 2 * WIDE / NARROW * calls(NARROW)


def test_a_filter_of_more_parts_than_a_scan_takes(tmp_path: Path) -> None:
    df = ps.read_parquet(wide_file(tmp_path, WIDE))
    assert df.drop_null().select("c0").to_pydict() == {"c0": [1, 2]}


def test_a_request_reads_the_columns_of_its_predicate_alone(tmp_path: Path) -> None:
    df = ps.read_parquet(wide_file(tmp_path, NARROW)).where((col("c5") > 1) & (col("c7") < 3)).select("c0")
    stage = lower(optimize(df._plan), is_ordered=True)[0]
    assert isinstance(stage.work, Read)
    (task,) = stage.work.source.read_tasks(stage.work.request)
    assert task.file_schema.names == ["c0", "c5", "c7"]  # type: ignore[attr-defined]

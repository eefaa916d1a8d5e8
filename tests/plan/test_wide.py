"""Plans and reads of many columns: what is done for each column does not depend on the number of the others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col
from penstock.io.batch_sizes import BATCH_NBYTES
from penstock.io.data_file import DataFile, Storage
from penstock.io.formats.parquet_sql import sql_table
from penstock.plan.lower import lower
from penstock.plan.optimizer import optimize
from penstock.plan.stages import Read

NARROW, WIDE = 100, 800


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


def large_file(folder: Path, num_columns: int) -> str:
    """Write one row group that is too large to be read in one piece, as a small file is."""
    path, rng = folder / "large.parquet", np.random.default_rng(0)
    pq.write_table(pa.table({f"c{place}": rng.random(3000) for place in range(num_columns)}), path)
    return str(path)


def test_queries_over_a_local_file_parse_its_footer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened, num_parsed = large_file(tmp_path, NARROW), pq.ParquetFile.__init__, 0

    def counted(file: pq.ParquetFile, *given: Any, **options: Any) -> None:
        nonlocal num_parsed
        num_parsed += options.get("metadata") is None
        opened(file, *given, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counted)
    df = ps.read_parquet(path)
    assert df.to_arrow().num_columns == NARROW
    assert df.where(col("c1") > 0.5).select("c0").to_arrow().num_columns == 1
    assert df.groupby("c0").agg(col("c1").max()).to_arrow().num_rows == 3000
    assert df.select().count_rows() == 3000
    assert num_parsed == 1


def test_the_rows_of_a_wide_row_group_come_in_one_batch(tmp_path: Path) -> None:
    """Text too, whose size in memory the footer does not tell: each column costs as much again in each batch."""
    rows = np.arange(2000)
    table = pa.table({f"c{place}": pa.array(place * rows).cast(pa.string()) for place in range(1000)})
    pq.write_table(table, tmp_path / "text.parquet", use_dictionary=False)
    assert table.nbytes > BATCH_NBYTES
    read = ps.read_parquet(tmp_path / "text.parquet").to_arrow()
    assert read.equals(table)
    assert read.column("c0").num_chunks == 1


def test_duckdb_is_asked_about_each_column_once() -> None:
    """Time, because an attribute of Arrow is no call; the square would take a hundred times as long."""

    def seconds(num_columns: int) -> float:
        schema = pa.schema({f"c{place}": pa.int64() for place in range(num_columns)})
        start = time.thread_time()
        assert sql_table([DataFile(Storage(), "large.parquet", 2**24)], schema, lambda file: schema) is not None
        return time.thread_time() - start

    fewest = [min(seconds(num_columns) for _ in range(5)) for num_columns in (500, 5000)]
    assert fewest[1] < 40 * fewest[0]

"""A failed row has one number everywhere: its place in the input, counted from 0, in its file if there are files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UdfError

BAD = (17, 42, 117, 142)
INPUT = "the input"

Rows = Callable[[ps.DataFrame], ps.DataFrame]


def check(number: int) -> int:
    if number in BAD:
        raise ValueError(f"{number} is bad")
    return number


async def check_async(number: int) -> int:
    return check(number)


def table(first: int, last: int) -> pa.Table:
    numbers = list(range(first, last))
    return pa.table({"id": numbers, "fifth": [number % 5 for number in numbers]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two Parquet files of 100 rows in groups of 20, and the same as CSV."""
    for name, first in (("a", 0), ("b", 100)):
        pq.write_table(table(first, first + 100), tmp_path / f"{name}.parquet", row_group_size=20)
        pyarrow.csv.write_csv(table(first, first + 100), tmp_path / f"{name}.csv")
    return tmp_path


def recorded(df: ps.DataFrame) -> dict[str, tuple[str, int]]:
    """Return the file, or the name of the input, and the number of each failed row, by its message."""
    rows = df.errors().to_pylist()
    return {row["message"]: (row["source"].rsplit("/")[-1], row["row"]) for row in rows}


def places(*, suffix: str = "parquet", numbers: tuple[int, ...] = BAD) -> dict[str, tuple[str, int]]:
    return {f"{n} is bad": (f"{'a' if n < 100 else 'b'}.{suffix}", n % 100) for n in numbers}


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        (lambda df: df, BAD),
        (lambda df: df.where(col("fifth") == 2), BAD),  # in the read, by the row
        (lambda df: df.where(col("id") > 110), (117, 142)),  # skips row groups
        (lambda df: df.where((col("id") < 20) | (col("id") >= 140)), (17, 142)),
        (lambda df: df.where(col("id") * 2 > 60).select("id"), (42, 117, 142)),
        (lambda df: df.select((col("id") + 0).alias("id")), BAD),
        (lambda df: df.offset(30).limit(100), (42, 117)),
        (lambda df: df.where(col("fifth") == 2).into_batches(3), BAD),
        (lambda df: df.with_column("ids", ps.functions.to_list(col("id"), 0)).explode("ids"), BAD),
    ],
    ids=["plain", "where", "skipped groups", "two runs", "later where", "select", "limit", "batches", "explode"],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_rows_of_files(folder: Path, rows: Rows, numbers: tuple[int, ...], is_async: bool) -> None:
    function = ps.func(on_error="ignore", return_dtype=ps.DataType.int64())(check_async if is_async else check)
    df = rows(ps.read_parquet(str(folder / "*.parquet"))).with_column("x", function(col("id"))).collect()
    assert recorded(df) == places(numbers=numbers)
    assert all("penstock" not in name for name in df.columns)


@pytest.mark.parametrize(
    "call",
    [
        lambda df: df.map(lambda row: {"x": check(row["id"])}, on_error="ignore"),
        lambda df: df.flat_map(lambda row: [{"x": check(row["id"])}], on_error="ignore"),
        lambda df: df.filter(lambda row: check(row["id"]) >= 0, on_error="ignore"),
        lambda df: df.map_batches(lambda b: {"x": [check(int(n)) for n in b["id"]]}, on_error="ignore", batch_size=7),
        lambda df: df.select(
            ps.func.batch(on_error="ignore", use_process=True, return_dtype=ps.DataType.int64())(
                lambda ids: [check(n) for n in ids.to_pylist()]
            )(col("id"))
        ),
    ],
    ids=["map", "flat_map", "filter", "map_batches", "batch in a process"],
)
def test_every_kind_of_function(folder: Path, call: Rows) -> None:
    df = call(ps.read_parquet(str(folder / "*.parquet")).where(col("fifth") == 2)).collect()
    assert recorded(df) == places()
    assert all("penstock" not in name for name in df.columns)


def test_a_function_that_takes_whole_batches_does_not_see_the_numbers(folder: Path) -> None:
    df = ps.read_parquet(str(folder / "a.parquet")).map_batches(lambda batch: {"names": [",".join(batch)]})
    assert set(df.to_pydict()["names"]) == {"id,fifth"}


def test_several_functions_and_filters_in_a_row(folder: Path) -> None:
    first = ps.func(on_error="ignore")(check)
    second = ps.func(lambda number: check(number - 5), on_error="ignore", return_dtype=ps.DataType.int64())
    df = ps.read_parquet(str(folder / "*.parquet")).where(col("fifth") == 2).with_column("x", first(col("id")))
    df = df.where(col("x") > 20).select(second(col("x"))).collect()
    expected = [(17, "a"), (22, "a"), (42, "a"), (47, "a"), (17, "b"), (22, "b"), (42, "b"), (47, "b")]
    found = [(row["row"], Path(row["source"]).stem) for row in df.errors().to_pylist()]
    assert sorted(found, key=expected.index) == expected


def test_text_files_and_tables_in_memory(folder: Path) -> None:
    function = ps.func(on_error="ignore")(check)
    df = ps.read_csv(str(folder / "*.csv")).where(col("fifth") == 2).select(function(col("id"))).collect()
    assert recorded(df) == places(suffix="csv")
    df = ps.from_pydict({"id": list(range(30, 60))}).where(col("id") > 40).select(function(col("id"))).collect()
    assert recorded(df) == {"42 is bad": (INPUT, 12)}
    df = ps.range(30, 60).where(col("id") > 40).select(function(col("id"))).collect()
    assert recorded(df) == {"42 is bad": (INPUT, 12)}
    one, two = (ps.read_parquet(str(folder / f"{name}.parquet")) for name in "ab")
    assert recorded(two.concat(one).select(function(col("id"))).collect()) == places()


def test_behind_a_sort_the_function_counts_its_own_input(folder: Path) -> None:
    function = ps.func(on_error="ignore")(check)
    df = ps.read_parquet(str(folder / "a.parquet")).sort("id", desc=True).select(function(col("id"))).collect()
    assert recorded(df) == {"17 is bad": ("the input of check", 82), "42 is bad": ("the input of check", 57)}


def test_only_rows_whose_condition_holds_are_called(folder: Path) -> None:
    function = ps.func(on_error="ignore")(check)
    chosen = ps.functions.when(col("fifth") == 2, function(col("id"))).otherwise(0)
    df = ps.read_parquet(str(folder / "*.parquet")).with_column("x", chosen).collect()
    assert recorded(df) == places()
    df = ps.read_parquet(str(folder / "a.parquet")).sort("id", desc=True).with_column("x", chosen).collect()
    assert recorded(df) == {"17 is bad": ("the input of check", 82), "42 is bad": ("the input of check", 57)}


@pytest.mark.one_machine
def test_the_exception_the_log_and_the_record_name_the_same_row(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    df = ps.read_parquet(str(folder / "b.parquet")).where(col("id") > 130)
    with pytest.raises(UdfError, match=rf"'check' failed on row 42 of {re.escape(str(folder))}/b.parquet \(id=142\): "):
        df.select(ps.func(check)(col("id"))).collect()
    with caplog.at_level(logging.WARNING, logger="penstock"):
        logged = df.select(ps.func(on_error="log")(check)(col("id"))).collect()
    assert caplog.messages[0].startswith(f"udf check: row 42 of {folder}/b.parquet failed with ValueError: 142 is bad")
    assert recorded(logged) == places(numbers=(142,))


@pytest.mark.one_machine
def test_a_job_that_repeats_its_failed_rows_keeps_their_numbers(folder: Path, tmp_path: Path) -> None:
    out, well = str(tmp_path / "out"), tmp_path / "well"

    @ps.func(on_error="ignore", version="1")
    def later(number: int) -> int:
        return number if well.exists() and number != 142 else check(number)

    def write(resume: Any) -> dict[str, tuple[str, int]]:
        df = ps.read_parquet(str(folder / "*.parquet")).where(col("fifth") > 0)
        df = df.with_column("x", ps.functions.when(col("fifth") == 2, later(col("id"))).otherwise(0))
        df.write_parquet(out, resume=resume)
        rows = ps.read_parquet(out + "/_errors").to_pylist()
        return {row["message"]: (row["source"].rsplit("/")[-1], row["row"]) for row in rows}

    assert write(True) == places()
    well.touch()
    assert write("errors") == places(numbers=(142,))
    rows = ps.read_parquet(out).where(col("fifth") == 2).to_pydict()
    assert [id for id, x in zip(rows["id"], rows["x"], strict=True) if id != x] == [142]

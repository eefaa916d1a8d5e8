"""Row groups are skipped by their statistics, and no matching row is lost."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import penstock as ps
from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetFormat
from penstock.plan.lower import lower
from penstock.plan.optimizer import optimize
from penstock.plan.stages import Read
from tests.io.helpers import read_rows

EPOCH = datetime.datetime(2020, 1, 1)
UTC = EPOCH.replace(tzinfo=datetime.UTC)
NAN = float("nan")
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "i": (pa.int32(), st.integers(-3, 3)),
    "u": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "f": (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 1.5, NAN])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "é"])),
    "d": (pa.date32(), st.sampled_from([datetime.date(1969, 1, 1), datetime.date(2020, 2, 2)])),
    "t": (pa.timestamp("ms"), st.integers(-2, 2).map(lambda days: EPOCH + datetime.timedelta(days))),
    "z": (pa.timestamp("us", "UTC"), st.integers(-2, 2).map(lambda days: UTC + datetime.timedelta(days))),
}
COMPARISONS = {
    "==": lambda column, value: column == value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "in": lambda column, value: column.is_in([value, value]),
    "null": lambda column, _: column.is_null(),
    "not null": lambda column, _: column.not_null(),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, str, str, Any]:
    name = draw(st.sampled_from(sorted(VALUES)))
    dtype, values = VALUES[name]
    rows = draw(st.lists(st.none() | values, max_size=8))
    return pa.table({name: pa.array(rows, dtype)}), name, draw(st.sampled_from(sorted(COMPARISONS))), draw(values)


@settings(deadline=None)
@given(cases(), st.integers(1, 3), st.booleans())
def test_a_filter_gives_the_rows_that_it_gives_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[pa.Table, str, str, Any],
    group_rows: int,
    has_bounds: bool,
) -> None:
    table, name, comparison, value = case
    folder = tmp_path_factory.mktemp("groups")
    for number, rows in enumerate((table, table.slice(len(table) // 2), table.slice(0, 0))):
        pq.write_table(
            rows, folder / f"{number}.parquet", row_group_size=group_rows + number, write_statistics=has_bounds
        )
    predicate = COMPARISONS[comparison](ps.col(name), value)
    whole = pa.concat_tables([table, table.slice(len(table) // 2)])
    expected = ps.from_arrow(whole).where(predicate).to_arrow()
    assert str(ps.read_parquet(folder).where(predicate).to_arrow()[name].to_pylist()) == str(expected[name].to_pylist())


@pytest.mark.parametrize(
    ("predicate", "num_read"),
    [
        (ps.col("a") >= 42, 60),
        ((ps.col("a") >= 42) & (ps.col("a") < 44), 10),
        (ps.col("a").is_in([5, 95]), 20),
        (ps.col("s") == "r07", 10),
        (ps.col("d") < datetime.date(1970, 1, 11), 10),
        (ps.col("t") > EPOCH + datetime.timedelta(days=89.5), 10),
        (ps.col("a").is_null(), 0),
        ((ps.col("a") == 5) | (ps.col("a") == 95), 20),
    ],
)
def test_groups_without_a_matching_row_are_not_read(predicate: ps.Expression, num_read: int, tmp_path: Path) -> None:
    numbers = range(100)
    columns = {
        "a": pa.array(numbers, pa.int64()),
        "s": [f"r{number:02}" for number in numbers],
        "d": pa.array(numbers, pa.int32()).cast(pa.date32()),
        "t": pa.array([EPOCH + datetime.timedelta(days=number) for number in numbers], pa.timestamp("us")),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=10)
    plan = optimize(ps.read_parquet(tmp_path / "x.parquet").where(predicate)._plan)
    (stage,) = lower(plan, is_ordered=True)
    assert isinstance(stage.work, Read)
    tasks = stage.work.source.read_tasks(stage.work.request)
    assert sum(task.num_rows or 0 for task in tasks) == num_read


def test_a_column_with_another_type_in_the_file_is_not_judged_by_its_statistics(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["9", "10"]}), tmp_path / "x.parquet")
    source = FileSource(ParquetFormat(), tmp_path, schema={"a": "int64"})
    assert read_rows(source) == [{"a": 9}, {"a": 10}]
    df = ps.read_parquet(tmp_path, schema={"a": "int64"})
    assert df.where(ps.col("a") > 9).to_pydict() == {"a": [10]}

"""An aggregate that DuckDB computes straight from files gives the rows of the ordinary way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import penstock as ps
from penstock.errors import CorruptFileError
from penstock.io.formats import parquet_sql
from penstock.plan.nodes import Plan
from penstock.plan.optimizer import LOCAL_RULES, RULES, Rule, optimize
from penstock.plan.relations import FileAggregate
from penstock.runners import read_rows
from penstock.runners.reading import Reading

SCHEMA = pa.schema({"i": pa.int64(), "s": pa.int32(), "v": pa.float64(), "t": pa.string(), "b": pa.bool_()})


@pytest.fixture(autouse=True, scope="module")
def small_files_count() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_sql, "LEAST_NBYTES", 0)
        yield


def is_direct(df: ps.DataFrame) -> bool:
    """Return True if DuckDB reads the files of an aggregate."""
    optimized = optimize(df._plan, LOCAL_RULES)
    pending: list[Plan] = [optimized]
    while pending:
        plan = pending.pop()
        if isinstance(getattr(plan, "relation", None), FileAggregate):
            return True
        pending += plan.children
    return False


def rows(df: ps.DataFrame, rules: tuple[Rule, ...]) -> list[str]:
    """Return the rows as sorted text, so that NaN equals NaN, with the columns. The least of -0.0 and 0.0 is either."""
    batches = list(read_rows(df._plan, Reading(rules=rules)))
    types = {str(batch.schema) for batch in batches}
    return [*types, *sorted(repr(row).replace("-0.0", "0.0") for batch in batches for row in batch.to_pylist())]


numbers = st.sampled_from([-(2**63), -7, -1, 0, 1, 5, 2**53 + 1, 2**63 - 1]) | st.integers(-50, 50)
tables = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | numbers,
            "s": st.none() | st.integers(-3, 3),
            # Sums of these are exact in any order.
            "v": st.none() | st.sampled_from([0.0, -0.0, 0.5, -2.25, 1024.0, float("nan"), float("inf")]),
            "t": st.none() | st.sampled_from(["", "a", "A", "ä", "'quoted\"", "zz"]),
            "b": st.none() | st.booleans(),
        }
    ),
    max_size=30,
)
i, s, v, t, b = map(ps.col, "isvtb")
keys: Any = st.sampled_from([i % 7, i % 2**15, i % (2**15 + 1), i % 2**62, s, t, b, v, v * 2.0, (i % 5) % 3])
values: Any = st.sampled_from([v + 0.5, v * v, v, s, i % 100])
filters: Any = st.sampled_from(
    [None, i > 3, i <= -1, t == "a", t > "a", s != 2, v.is_null(), (s > 0) & (t < "z"), v > 0.0]
)


@pytest.mark.one_machine  # rules of the local runner
@given(st.lists(tables, min_size=1, max_size=3), keys, values, filters)
@settings(max_examples=30, deadline=None)
def test_both_ways_give_the_same_rows(files: list[list[dict[str, Any]]], key: Any, value: Any, predicate: Any) -> None:
    with TemporaryDirectory() as folder:
        for number, content in enumerate(files):
            pq.write_table(pa.Table.from_pylist(content, SCHEMA), f"{folder}/{number}.parquet", row_group_size=7)
        df = ps.read_parquet(folder)
        df = df if predicate is None else df.where(predicate)
        x = ps.col("x")
        grouped = df.select(key.alias("k"), value.alias("x"), b, t).groupby("k")
        df = grouped.agg(
            x.sum().alias("sum"), x.mean().alias("mean"), x.min().alias("min"), x.max().alias("max"),
            x.count().alias("n"), t.max().alias("last"), b.min().alias("all"),
        )  # fmt: skip
        assert rows(df, LOCAL_RULES) == rows(df, RULES)


def written(folder: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / "0.parquet")
    return str(folder)


def total(path: str, **options: Any) -> ps.DataFrame:
    df = ps.read_parquet(path, **options).with_column("k", ps.col("a") % 3)
    return df.groupby("k").agg(ps.col("a").sum().alias("n"))


def test_plain_columns_are_read_by_duckdb(tmp_path: Path) -> None:
    df = total(written(tmp_path, a=[-1, 0, 1, None, 5]))
    assert is_direct(df)
    assert is_direct(ps.read_parquet(str(tmp_path)).agg(ps.col("a").max()))
    assert sorted(df.to_pydict()["n"], key=str) == [0, 1, 4, None]


def test_other_plans_take_the_ordinary_way(tmp_path: Path) -> None:
    path = written(tmp_path, a=[1, 2], v=[0.5, float("nan")])
    df = ps.read_parquet(path)
    assert not is_direct(total(path, schema={"a": "int32"}))  # DuckDB would have the type in the file
    assert not is_direct(df.where(ps.col("v") > 0.1).agg(ps.col("a").max()))  # NaN is larger to DuckDB
    assert not is_direct(df.groupby((ps.col("a") + 1).alias("k")).agg(ps.col("v").max()))  # overflow
    assert not is_direct(df.limit(1).agg(ps.col("a").max()))
    assert not is_direct(df.agg(ps.col("a").median()))
    pq.write_table(pa.table({"a": [1.5], "v": [1.0]}), tmp_path / "1.parquet")
    assert not is_direct(total(path))  # the types differ


@pytest.mark.parametrize("name", ["a*", "[x]", "what?"])
def test_a_path_that_looks_like_a_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    df = total(written(tmp_path / name, a=[1]))
    assert not is_direct(df)
    assert df.to_pydict() == {"k": [1], "n": [1]}


def test_names_that_differ_by_case_only(tmp_path: Path) -> None:
    assert not is_direct(total(written(tmp_path, a=[1], A=[2])))


def test_odd_paths_and_names(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "here"'
    folder.mkdir()
    path = written(folder, **{'a"b': [1, 2], "it's": ["x", "x"]})
    df = ps.read_parquet(path).groupby("it's").agg(ps.col('a"b').sum().alias("n"))
    assert is_direct(df)
    assert df.to_pydict() == {"it's": ["x"], "n": [3]}


def test_a_broken_page_is_a_corrupt_file(tmp_path: Path) -> None:
    path = written(tmp_path, a=list(range(10_000)))
    file = tmp_path / "0.parquet"
    content = bytearray(file.read_bytes())
    content[4:400] = b"\xff" * 396
    file.write_bytes(content)
    df = total(path)
    assert is_direct(df)
    with pytest.raises(CorruptFileError, match=r"0\.parquet"):
        df.to_pydict()

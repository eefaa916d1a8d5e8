"""Random tables with nulls, NaN, duplicates, nested values and vectors: the results of DuckDB's SQL and pandas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import penstock as ps
from penstock import Window, col
from penstock.functions import dense_rank, rank, row_number

# A query takes some tens of milliseconds: connecting DuckDB alone takes twenty.
settings.register_profile(
    "relations", max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
quickly = settings.get_profile("relations")

SCHEMA = pa.schema(
    {
        "k": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "n": pa.list_(pa.struct({"a": pa.int64()})),
        "e": pa.list_(pa.float32(), 2),
    }
)
VALUES = {
    "k": st.none() | st.integers(-2, 2),
    "f": st.none() | st.sampled_from([math.nan, -1.5, 0.0, 2.0, math.inf]),
    "s": st.none() | st.sampled_from(["", "a", "b", "ß"]),
    "n": st.none() | st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 1)}), max_size=2),
    "e": st.none() | st.sampled_from([[0.0, 1.0], [2.0, 3.0]]),
}
tables = st.lists(st.fixed_dictionaries(VALUES), max_size=12).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def frame(table: pa.Table) -> ps.DataFrame:
    """Return the rows in two batches, with ``e`` as embeddings."""
    df = ps.from_arrow(table.slice(0, 5)).concat(ps.from_arrow(table.slice(5)))
    return df.with_column("e", col("e").cast(ps.DataType.embedding("float32", 2)))


def plain(value: Any) -> Any:
    """Return a value that equals others by Python's rules, with floats rounded."""
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(map(plain, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else round(value, 9) if math.isfinite(value) else value
    return value


def rows(result: ps.DataFrame | pa.Table) -> list[Any]:
    return [plain(tuple(row.values())) for row in result.to_pylist()]


def answer(database: duckdb.DuckDBPyConnection, sql: str, **given_tables: pa.Table) -> list[Any]:
    for name, table in given_tables.items():
        # DuckDB itself fails to join null vectors of a fixed size.
        lists = table.set_column(table.schema.get_field_index("e"), "e", table["e"].cast(pa.list_(pa.float32())))
        database.register(name, lists)
    return rows(database.sql(sql).to_arrow_table())


@quickly
@given(tables, st.booleans(), st.booleans(), st.booleans())
def test_sort(database: Any, table: pa.Table, is_desc: bool, is_desc_too: bool, is_nulls_first: bool) -> None:
    keys = ["f", "s", "k", "n"]
    result = frame(table).sort(keys, desc=[is_desc, is_desc_too, False, False], nulls_first=is_nulls_first)
    nulls = "nulls first" if is_nulls_first else "nulls last"
    directions = ["desc" if each else "asc" for each in (is_desc, is_desc_too, False, False)]
    order = ", ".join(f"{key} {way} {nulls}" for key, way in zip(keys, directions, strict=True))
    expected = answer(database, f"select * exclude e from t order by {order}", t=table)
    assert rows(result.select(*[col(name) for name in ("k", "f", "s", "n")])) == expected


@quickly
@given(tables, tables)
def test_set_verbs_and_distinct(database: Any, left: pa.Table, right: pa.Table) -> None:
    a, b = frame(left), frame(right)
    for result, sql in (
        (a.distinct(), "select distinct * from a"),
        (a.union(b), "from a union from b"),
        (a.intersect_all(b), "from a intersect all from b"),
        (a.except_distinct(b), "from a except from b"),
    ):
        assert Counter(rows(result)) == Counter(answer(database, sql, a=left, b=right))
    subset = a.distinct("k", "f")
    expected = left.select(["k", "f"]).to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)
    assert subset.count_rows() == len({plain(tuple(row.values())) for row in left.select(["k", "f"]).to_pylist()})
    if not left["f"].null_count:  # pandas has one value for null and NaN
        assert subset.count_rows() == len(expected.drop_duplicates())


AGGREGATES = {
    "sum": (col("k").sum(), "sum(k)::bigint"),
    "product": (col("k").product(), "product(k)::bigint"),
    "mean": (col("k").mean(), "avg(k)"),
    "median": (col("k").median(), "median(k)"),
    "min": (col("f").min(), "min(f)"),
    "max": (col("f").max(), "max(f)"),
    "count": (col("n").count(), "count(n)"),
    "count_all": (col("n").count("all"), "count(*)"),
    "count_distinct": (col("f").count_distinct(), "count(distinct f)"),
    "stddev": (col("k").stddev(), "stddev_samp(k)"),
    "var": (col("k").var(ddof=0), "var_pop(k)"),
    "percentile": (col("k").percentile(0.25), "quantile_cont(k::double, 0.25)"),
    "bool_and": ((col("k") > 0).bool_and(), "bool_and(k > 0)"),
    "bool_or": ((col("k") > 0).bool_or(), "bool_or(k > 0)"),
    "list_agg": (col("s").list_agg().list_sort(), "coalesce(list(s order by s nulls last), [])"),
    "distinct": (
        col("s").list_agg_distinct().list_sort(),
        "coalesce(list(distinct s order by s) filter (s is not null), [])",
    ),
    "num_characters": (col("s").string_agg("+").length(), "length(string_agg(s, '+'))"),
    "counts": (col("s").value_counts().map_get("a"), "nullif(count(*) filter (s = 'a'), 0)"),
    "approx": (col("k").approx_count_distinct(), "count(distinct k)"),  # exact for a few values
    "vectors": (col("e").count(), "count(e)"),
}


@quickly
@given(tables, st.sampled_from([("s",), ("f",), ("n",), ("k", "s"), ()]))
def test_aggregates(database: Any, table: pa.Table, keys: tuple[str, ...]) -> None:
    computed = [expr.alias(name) for name, (expr, _) in AGGREGATES.items()]
    df = frame(table)
    result = df.groupby(*keys).agg(*computed) if keys else df.agg(*computed)
    columns = ", ".join([*keys, *(f"{sql} as {name}" for name, (_, sql) in AGGREGATES.items())])
    grouping = f" group by {', '.join(keys)}" if keys else ""
    assert Counter(rows(result)) == Counter(answer(database, f"select {columns} from t{grouping}", t=table))


@quickly
@given(tables)
def test_aggregates_agree_with_pandas(table: pa.Table) -> None:
    """Groups by ``k`` of sums, counts, skew, and any value."""
    df = (
        frame(table)
        .groupby("k")
        .agg(
            col("f").sum().alias("sum"),
            col("k").count("all").alias("n"),
            col("f").skew().alias("skew"),
            col("s").any_value().alias("any"),
        )
    )
    found = {row["k"]: row for row in df.to_pylist()}
    source = table.drop_columns(["n", "e"]).to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)
    groups = {None if pd.isna(key) else key: group for key, group in source.groupby("k", dropna=False)}
    assert found.keys() == groups.keys()
    for key, group in groups.items():
        assert found[key]["n"] == len(group)
        assert found[key]["any"] in [None if pd.isna(each) else each for each in group["s"]]
        values = [row["f"] for row in table.to_pylist() if row["k"] == key and row["f"] is not None]
        expected = pd.Series(values, dtype=float).sum(skipna=False) if values else None
        assert plain(found[key]["sum"]) == plain(expected)
        skew = pd.Series(values, dtype=float).skew(skipna=False) if values and np.isfinite(values).all() else None
        if (
            skew is not None and len(values) > 2 and len(set(values)) > 1
        ):  # docs/guides/relational.md has the rules for the rest
            biased = skew * (len(values) - 2) / math.sqrt(len(values) * (len(values) - 1))
            assert found[key]["skew"] == pytest.approx(biased, abs=1e-9)


HOW = {"inner": "join", "left": "left join", "right": "right join", "outer": "full join", "semi": "semi join",
       "anti": "anti join"}  # fmt: skip


@quickly
@given(tables, tables, st.sampled_from(["k", "f", "s", "n"]), st.sampled_from(list(HOW)))
def test_joins(database: Any, left: pa.Table, right: pa.Table, key: str, how: Any) -> None:
    a, b = frame(left).select("k", "f", "s", "n"), frame(right).select(x=key, y="e")
    is_nan = "and not isnan(l.f)" if key == "f" else ""
    selected = "l.k, l.f, l.s, l.n" if how in ("semi", "anti") else "l.k, l.f, l.s, l.n, r.x, r.e"
    text = f"select {selected} from a l {HOW[how]} (select {key} as x, e from b) r on l.{key} = r.x {is_nan}"
    joined = a.join(b, left_on=key, right_on="x", how=how)
    assert Counter(rows(joined)) == Counter(answer(database, text, a=left, b=right))


@quickly
@given(tables)
def test_windows(database: Any, table: pa.Table) -> None:
    window = Window().partition_by("s").order_by("f", "k", "n")
    result = frame(table).select(
        "s", "f", "k", "n",
        rank().over(window).alias("rank"), dense_rank().over(window).alias("dense"),
        col("k").sum().over(Window().partition_by("s")).alias("sum"),
        col("f").max().over(window.rows_between(-1, 0)).alias("recent"),
        col("k").lag(1).over(window).alias("before"),
    )  # fmt: skip
    over = "over (partition by s order by f nulls last, k nulls last, n nulls last"
    text = f"""select s, f, k, n, rank() {over}), dense_rank() {over}), (sum(k) over (partition by s))::bigint,
        max(f) {over} rows between 1 preceding and current row), lag(k) {over}) from t"""
    assert Counter(rows(result)) == Counter(answer(database, text, t=table))
    numbered = frame(table).with_column("number", row_number().over(window)).select("number").to_pydict()["number"]
    assert Counter(numbered) == Counter(number for group in Counter(table["s"].to_pylist()).values()
                                        for number in range(1, group + 1))  # fmt: skip

"""Rules around relations: filters, select lists and limits move below them, and the rows stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import penstock as ps
from penstock.plan import nodes
from penstock.plan.explain import explain
from penstock.plan.optimizer import REQUIRED, RULES, Rule, optimize
from penstock.runners import read_rows
from penstock.runners.reading import Reading
from tests.plan.strategies import conditions, scans

LEFT = {"a": [1, 2, 3], "b": [1, 1, 2], "s": ["x", "y", "z"]}
RIGHT = {"a": [2, 3, 4], "c": [7, 8, 9]}


def double(value: int) -> int:
    return value * 2


twice = ps.func(double, return_dtype="int64")


def optimized(df: ps.DataFrame) -> str:
    return explain(optimize(df._plan))


def frames() -> tuple[ps.DataFrame, ps.DataFrame]:
    return ps.from_pydict(LEFT), ps.from_pydict(RIGHT)


@pytest.mark.parametrize(
    "build",
    [
        lambda x, y: x.join(y, on="a").where(ps.col("b") > 1),
        lambda x, y: x.join(y, on="a").where(ps.col("c") > 7),
        lambda x, y: x.join(y, on="a", how="left").where(ps.col("b") > 1),
        lambda x, y: x.groupby("b").agg(ps.col("a").sum()).where(ps.col("b") > 1),
        lambda x, y: x.sort("a").where(ps.col("b") > 1),
        lambda x, y: x.distinct().where(ps.col("b") > 1),
        lambda x, y: x.select("a").union(y.select("a")).where(ps.col("a") > 1),
    ],
)
def test_filters_move_below(build: Callable[..., ps.DataFrame]) -> None:
    assert not _is_filter_above(build(*frames()))


@pytest.mark.parametrize(
    "build",
    [
        lambda x, y: x.join(y, on="a", how="left").where(ps.col("c") > 7),
        lambda x, y: x.join(y, on="a", how="outer").where(ps.col("b") > 1),
        lambda x, y: x.join(y, on="a").where(ps.col("b") // 2 > 1),
        lambda x, y: x.groupby("b").agg(ps.col("a").sum()).where(ps.col("a") > 1),
        lambda x, y: x.sort("a").limit(2).where(ps.col("b") > 1),
        lambda x, y: x.distinct("a").where(ps.col("b") > 1),
    ],
)
def test_filters_stay_above(build: Callable[..., ps.DataFrame]) -> None:
    assert _is_filter_above(build(*frames()))


def _is_filter_above(df: ps.DataFrame) -> bool:
    """Check whether the optimized plan has a filter above its relation."""
    plan = optimize(df._plan)
    while not isinstance(plan, nodes.Relate):
        if isinstance(plan, nodes.Filter):
            return True
        (plan,) = plan.children
    return False


def test_only_needed_columns_are_read() -> None:
    left, right = frames()
    text = optimized(left.join(right, on="a").select("c"))
    assert "columns a" in text
    assert "Scan from_pydict: columns a\n" in text + "\n"
    assert "columns b" in optimized(left.groupby("b").agg(ps.col("a").sum(), ps.col("s").max()).select("b"))


def test_a_limit_after_a_sort_finds_the_first_rows() -> None:
    left, _ = frames()
    assert optimized(left.sort("a").limit(2)).startswith("Sort a; first 2")
    assert "first 3" in optimized(left.sort("a").offset(1).limit(2))


@pytest.mark.parametrize(
    "verb",
    [
        lambda df: df.sort("a", desc=True).limit(1),
        lambda df: df.distinct("b"),
        lambda df: df.join(ps.from_pydict(RIGHT), on="a", how="semi"),
        lambda df: df.join(ps.from_pydict(RIGHT), on="a", how="anti").select("n", "b"),
    ],
)
def test_functions_are_called_for_the_chosen_rows_only(verb: Callable[[ps.DataFrame], ps.DataFrame]) -> None:
    seen: list[int] = []
    note = ps.func(lambda value: seen.append(value) or value, return_dtype="int64", use_process=False)
    df = verb(ps.from_pydict(LEFT).with_column("n", note(ps.col("a"))))
    assert len(df.to_pylist()) == len(seen) < 3


# --- random plans ---


@st.composite
def queries(draw: st.DrawFn) -> ps.DataFrame:
    df = ps.DataFrame(draw(scans())).with_column("u", twice(ps.col("a").fill_null(0)))
    for _ in range(draw(st.integers(1, 3))):
        df = draw(st.sampled_from(_VERBS))(draw, df)
    return df


def _filter(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    return df.where(draw(conditions(df.schema, depth=1)))


def _select(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    kept = draw(st.lists(st.sampled_from(["b", "s", "u"]), unique=True))
    return df.select("a", *[name for name in kept if name in df.columns])


def _sort(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    df = df.sort("a", desc=draw(st.booleans()), nulls_first=draw(st.booleans()))
    return df.select("a").limit(draw(st.integers(0, 9))) if draw(st.booleans()) else df


def _distinct(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    return df.select("a", *[n for n in ("s", "f") if n in df.columns]).distinct()


def _group(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    return df.groupby(ps.col("a")).agg(ps.col("a").count("all").cast("int64").alias("b"), ps.col("a").max().alias("c"))


def _join(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    other = ps.DataFrame(draw(scans())).where(ps.col("b") > -1).select("a", d="b")
    how: Any = draw(st.sampled_from(["inner", "left", "right", "outer", "semi", "anti"]))
    return df.join(other, on="a", how=how, suffix="_r")


def _window(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    return df.with_column("w", ps.col("a").sum().over(ps.Window().partition_by("a")))


def _union(draw: st.DrawFn, df: ps.DataFrame) -> ps.DataFrame:
    part = df.select("a")
    return (
        part.union(part.where(ps.col("a") > 0)) if draw(st.booleans()) else part.except_all(part.where(ps.col("a") > 1))
    )


_VERBS = [_filter, _filter, _select, _sort, _distinct, _group, _join, _join, _window, _union]


def rows(df: ps.DataFrame, rules: tuple[Rule, ...]) -> list[str]:
    assert df.schema is not None
    batches = list(read_rows(df._plan, Reading(rules=rules)))
    table = pa.Table.from_batches(batches, df.schema.to_arrow())
    return sorted(map(repr, table.to_pylist()))


@given(queries(), st.sampled_from([RULES, *((*REQUIRED, rule) for rule in RULES)]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_all_rules_and_each_rule_alone_give_the_same_rows(df: ps.DataFrame, rules: tuple[Rule, ...]) -> None:
    assert optimize(df._plan, rules).schema == df.schema
    assert rows(df, REQUIRED) == rows(df, rules)

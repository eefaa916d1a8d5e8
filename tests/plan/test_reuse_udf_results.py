from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock.expr.column import Expression, col
from penstock.expr.nodes import UdfCall
from penstock.plan.nodes import Concat, Filter, IntoBatches, Limit, MonotonicId, Plan, Sample, UdfProject
from penstock.plan.optimizer import optimize
from penstock.plan.rules.reuse_udf_results import reuse_udf_results
from tests.plan.sources import a, b, count_to, double, node, scan, select, unknown

c, d = col("c"), col("d")


def added(child: Plan, value: Expression, column: str, *keep: str) -> UdfProject:
    udf_call = node(value)
    assert isinstance(udf_call, UdfCall)
    return UdfProject(child, udf_call, column, keep or None)


LOWER = added(scan("a", "b"), double(a), "c")


def test_the_same_call_right_below() -> None:
    assert reuse_udf_results(added(LOWER, double(a), "d")) == select(LOWER, a, b, c, c.alias("d"))


def test_a_result_that_a_select_leaves_out_is_carried_on() -> None:
    plan = added(select(Filter(LOWER, node(c > 2)), a), double(a), "d")
    assert reuse_udf_results(plan) == select(select(Filter(LOWER, node(c > 2)), a, c), a, c.alias("d"))


def test_renamed_columns_are_followed() -> None:
    plan = added(select(LOWER, a.alias("x"), c.alias("y")), double(col("x")), "d")
    below = select(LOWER, a.alias("x"), c.alias("y"))
    assert reuse_udf_results(plan) == select(below, "x", "y", col("y").alias("d"))


def test_a_result_whose_name_is_taken_gets_another() -> None:
    plan = added(select(LOWER, a, b.alias("c")), double(a), "d")
    below = select(LOWER, a, b.alias("c"), c.alias("__udf_0"))
    assert reuse_udf_results(plan) == select(below, a, c, col("__udf_0").alias("d"))


def test_a_call_between_that_replaces_the_result() -> None:
    plan = added(added(LOWER, double(b), "c", "a", "b"), double(a), "d")
    renamed = select(LOWER, a, b, c, c.alias("__udf_0"))
    below = added(renamed, double(b), "c", "a", "b", "__udf_0")
    assert reuse_udf_results(plan) == select(below, a, b, c, col("__udf_0").alias("d"))


@pytest.mark.parametrize(
    "between",
    [
        lambda plan: Limit(plan, 3),
        lambda plan: Sample(plan, 0.5),
        lambda plan: IntoBatches(plan, 2),
        lambda plan: MonotonicId(plan, "n"),
    ],
)
def test_what_keeps_rows_whole(between: Callable[[Plan], Plan]) -> None:
    plan = reuse_udf_results(added(between(LOWER), double(a), "d"))
    assert plan == select(between(LOWER), *(n for n in plan.schema.names if n != "d"), c.alias("d"))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "child",
    [
        scan(),
        select(LOWER, (a + 1).alias("a"), c),
        select(LOWER, b.alias("a"), c),
        added(scan("a"), double(a), "a"),
        added(added(scan("a", "b"), double(a), "c"), double(b), "a"),
        added(LOWER, count_to(b), "n"),
        Concat((LOWER, LOWER)),
        unknown(LOWER),
        added(scan("a", "b"), double(b), "c"),
    ],
)
def test_what_must_be_computed_again(child: Plan) -> None:
    plan = added(child, double(a), "d")
    assert reuse_udf_results(plan) is plan


def test_a_generator_runs_again() -> None:
    plan = added(added(scan("a"), count_to(a), "c"), count_to(a), "d")
    assert reuse_udf_results(plan) is plan


def test_a_dropped_call_is_not_kept_alive() -> None:
    sampled = select(Sample(select(LOWER, a, b, c), 0.1), a)
    plan = optimize(added(sampled, double(a), "d"))
    assert isinstance(plan, UdfProject)


@pytest.mark.parametrize(
    ("query", "num_calls"),
    [
        (lambda df, f: df.with_column("a", f).with_column("b", f + 1), 5),
        (lambda df, f: df.with_column("a", f).where(f > 2), 5),
        (lambda df, f: df.where(f > 2).with_column("b", f), 5),
        (lambda df, f: df.where(f > 2).where(f < 7).with_column("b", f), 5),
        (lambda df, f: df.with_column("a", f).with_column("id", col("id") + 1).with_column("b", f), 10),
    ],
)
def test_number_of_calls(query: Callable[[ps.DataFrame, Expression], ps.DataFrame], num_calls: int) -> None:
    calls = []

    @ps.func(use_process=False)
    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    query(ps.range(5), double(col("id"))).to_arrow()
    assert len(calls) == num_calls

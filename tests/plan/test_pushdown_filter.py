from __future__ import annotations

import pytest

from penstock.expr.column import Expression, col
from penstock.expr.nodes import Star, UdfCall
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MonotonicId,
    Plan,
    Repartition,
    Sample,
    Scan,
    UdfProject,
    Unpivot,
)
from penstock.plan.rules.pushdown_filter import pushdown_filter
from tests.plan.sources import (
    UNFILTERED,
    a,
    b,
    count_to,
    double,
    is_odd,
    l,
    node,
    s,
    scan,
    select,
    unknown,
    with_columns,
)

c = col("c")
KEEP = ("a", "b", "s")


def added(child: Plan, value: Expression, column: str = "c") -> UdfProject:
    udf_call = node(value)
    assert isinstance(udf_call, UdfCall)
    return UdfProject(child, udf_call, column, KEEP)


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        Filter(Scan(UNFILTERED), node(a > 1)),
        Filter(scan(), node(a + 1 > 1)),  # the source could not do it
        Filter(scan(), node(is_odd(a))),
        Filter(scan(limit=3), node(a > 1)),
        Filter(Limit(scan(), 3), node(a > 1)),
        Filter(Sample(scan(), 0.5, seed=1), node(a > 1)),
        Filter(MonotonicId(scan(), "id"), node(a > 1)),
        Filter(unknown(scan()), node(a > 1)),
        Filter(select(scan(), s.cast("int64").alias("c")), node(c > 1)),  # not cheap: computed twice
        Filter(select(scan(), double(a).alias("c"), b), node(b > 1)),  # split first
        Filter(Explode(scan(), ("l",)), node(l > 1)),
        Filter(Unpivot(scan(), ("a",), ("b",)), node(col("value") > 1)),
        Filter(select(unknown(scan()), Star(exclude=("c",)), s.cast("int64").alias("c")), node(c > 1)),
    ],
)
def test_a_filter_that_stays(plan: Plan) -> None:
    assert pushdown_filter(plan) is plan


def test_into_the_scan() -> None:
    assert pushdown_filter(Filter(scan(), node(a > 1))) == scan(predicate=a > 1)
    assert pushdown_filter(Filter(scan(predicate=a > 1), node(b > 1))) == scan(predicate=(a > 1) & (b > 1))


def test_the_part_that_the_source_can_do() -> None:
    plan = Filter(scan(), node((a > 1) & (a + b > 2) & s.not_null()))
    assert pushdown_filter(plan) == Filter(scan(predicate=(a > 1) & s.not_null()), node(a + b > 2))


def test_below_a_select_list() -> None:
    plan = Filter(select(scan(), a.alias("b"), (a + b).alias("c")), node((b > 1) & (c > 2)))
    assert pushdown_filter(plan) == select(
        Filter(scan(), node((a > 1) & (a + b > 2))), a.alias("b"), (a + b).alias("c")
    )


def test_the_part_that_reads_cheap_columns() -> None:
    plan = Filter(with_columns(scan("a", "s"), c=s.cast("int64")), node((c > 1) & (a > 2)))
    moved = with_columns(Filter(scan("a", "s"), node(a > 2)), c=s.cast("int64"))
    assert pushdown_filter(plan) == Filter(moved, node(c > 1))


def test_below_a_star() -> None:
    plan = Filter(select(unknown(scan()), Star(exclude=("b",)), a.alias("b")), node((a > 1) & (b > 2)))
    assert pushdown_filter(plan) == select(
        Filter(unknown(scan()), node((a > 1) & (a > 2))), Star(exclude=("b",)), a.alias("b")
    )


def test_into_each_input_of_a_concat() -> None:
    plan = Filter(Concat((scan(), Limit(scan(), 1))), node(a > 1))
    assert pushdown_filter(plan) == Concat((Filter(scan(), node(a > 1)), Filter(Limit(scan(), 1), node(a > 1))))


def test_below_rows_that_are_repeated() -> None:
    assert pushdown_filter(Filter(Explode(scan(), ("l",)), node((a > 1) & (l > 2)))) == Filter(
        Explode(Filter(scan(), node(a > 1)), ("l",)), node(l > 2)
    )
    assert pushdown_filter(Filter(Unpivot(scan(), ("a",), ("b",)), node(a > 1))) == Unpivot(
        Filter(scan(), node(a > 1)), ("a",), ("b",)
    )


def test_below_layout() -> None:
    assert pushdown_filter(Filter(IntoBatches(scan(), 2), node(a > 1))) == IntoBatches(Filter(scan(), node(a > 1)), 2)
    assert pushdown_filter(Filter(Repartition(scan(), 2), node(a > 1))) == Repartition(Filter(scan(), node(a > 1)), 2)


@pytest.mark.parametrize(
    "plan",
    [
        Filter(added(scan(), double(a)), node(c > 1)),
        Filter(added(scan(), double(a)), node((c > 1) | (b > 1))),
        Filter(added(scan(), double(a), "a"), node(a > 1)),  # the new a
        Filter(added(scan(), double(a)), node(is_odd(b))),
        Filter(added(scan(), count_to(a)), node(s.cast("int64") > 1)),  # may fail on a row the generator drops
    ],
)
def test_a_filter_that_stays_above_a_udf(plan: Plan) -> None:
    assert pushdown_filter(plan) is plan


def test_a_filter_on_other_columns_moves() -> None:
    plan = Filter(added(scan(), double(a)), node(s.cast("int64") > 1))
    assert pushdown_filter(plan) == added(Filter(scan(), node(s.cast("int64") > 1)), double(a))


def test_the_part_on_other_columns_moves() -> None:
    plan = Filter(added(scan(), double(a)), node((a > 1) & (c > 2) & (b > 3)))
    assert pushdown_filter(plan) == Filter(added(Filter(scan(), node((a > 1) & (b > 3))), double(a)), node(c > 2))


def test_a_filter_on_repeated_columns_moves_below_a_generator() -> None:
    plan = Filter(added(scan(), count_to(a)), node(b > 1))
    assert pushdown_filter(plan) == added(Filter(scan(), node(b > 1)), count_to(a))

from __future__ import annotations

import pytest

from penstock.expr.column import Expression, col
from penstock.expr.nodes import UdfCall
from penstock.plan.nodes import Filter, Plan, UdfProject
from penstock.plan.rules.move_filter_below_udf import move_filter_below_udf
from tests.plan.sources import a, b, count_to, double, is_odd, node, s, scan

c = col("c")
KEEP = ("a", "b", "s")


def added(child: Plan, value: Expression, column: str = "c") -> UdfProject:
    udf_call = node(value)
    assert isinstance(udf_call, UdfCall)
    return UdfProject(child, udf_call, column, KEEP)


@pytest.mark.parametrize(
    "plan",
    [
        Filter(scan(), node(a > 1)),
        Filter(added(scan(), double(a)), node(c > 1)),
        Filter(added(scan(), double(a)), node((c > 1) | (b > 1))),
        Filter(added(scan(), double(a), "a"), node(a > 1)),  # the new a
        Filter(added(scan(), double(a)), node(is_odd(b))),
        Filter(added(scan(), count_to(a)), node(s.cast("int64") > 1)),  # may fail on a row the generator drops
    ],
)
def test_a_filter_that_stays(plan: Plan) -> None:
    assert move_filter_below_udf(plan) is plan


def test_a_filter_on_other_columns_moves() -> None:
    plan = Filter(added(scan(), double(a)), node(s.cast("int64") > 1))
    assert move_filter_below_udf(plan) == added(Filter(scan(), node(s.cast("int64") > 1)), double(a))


def test_the_part_on_other_columns_moves() -> None:
    plan = Filter(added(scan(), double(a)), node((a > 1) & (c > 2) & (b > 3)))
    assert move_filter_below_udf(plan) == Filter(added(Filter(scan(), node((a > 1) & (b > 3))), double(a)), node(c > 2))


def test_a_filter_on_repeated_columns_moves_below_a_generator() -> None:
    plan = Filter(added(scan(), count_to(a)), node(b > 1))
    assert move_filter_below_udf(plan) == added(Filter(scan(), node(b > 1)), count_to(a))

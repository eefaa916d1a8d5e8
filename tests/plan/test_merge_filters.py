from __future__ import annotations

import pytest

from penstock.plan.nodes import Filter, Limit, Plan
from penstock.plan.rules.merge_filters import merge_filters
from tests.plan.sources import a, b, is_odd, node, s, scan


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        Filter(scan(), node(a > 1)),
        Filter(Limit(Filter(scan(), node(a > 1)), 2), node(b > 1)),
        Filter(Filter(scan(), node(s != "x")), node(s.cast("int64") > 1)),  # the inner one guards the outer one
        Filter(Filter(scan(), node(is_odd(a))), node(b > 1)),
    ],
)
def test_nothing_to_merge(plan: Plan) -> None:
    assert merge_filters(plan) is plan


def test_one_filter_of_two() -> None:
    plan = Filter(Filter(scan(), node(s.cast("int64") > 1)), node(b > 1))
    assert merge_filters(plan) == Filter(scan(), node((s.cast("int64") > 1) & (b > 1)))

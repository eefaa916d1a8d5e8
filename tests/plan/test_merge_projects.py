from __future__ import annotations

import pytest

from penstock.expr.column import col, lit
from penstock.expr.nodes import Star
from penstock.plan.expression_cost import MAX_SIZE
from penstock.plan.nodes import Filter, Plan
from penstock.plan.rules.merge_projects import merge_projects
from tests.plan.sources import a, b, double, l, node, s, scan, select, unknown

c = col("c")
LARGE = sum([a] * MAX_SIZE, a)


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        select(scan(), a),
        select(scan("a", "b"), b, a),
        select(scan("a", "b"), a, b.alias("c")),
        select(select(scan(), LARGE.alias("c")), c, (c * 2).alias("d")),
        select(select(scan(), double(a).alias("c")), c + 1),
        select(Filter(select(scan(), a), node(a > 1)), a + 1),
        select(unknown(scan()), Star(exclude=("a",))),
        select(select(unknown(scan()), Star(), (a + 1).alias("c")), c),
    ],
)
def test_nothing_to_merge(plan: Plan) -> None:
    assert merge_projects(plan) is plan


def test_definitions_move_into_the_outer_list() -> None:
    plan = select(select(scan(), (a + 1).alias("c"), b), (c * b).alias("d"), (b + 1))
    assert merge_projects(plan) == select(scan(), ((a + 1) * b).alias("d"), b + 1)


def test_parts_used_twice_are_shared() -> None:
    """The compiled list computes ``a + 1`` once."""
    plan = select(select(scan(), (a + 1).alias("c"), LARGE.alias("l")), c, (c * 2).alias("d"), l)
    assert merge_projects(plan) == select(scan(), (a + 1).alias("c"), ((a + 1) * 2).alias("d"), LARGE.alias("l"))


def test_columns_and_constants_may_be_used_often() -> None:
    plan = select(select(scan(), a.alias("c"), lit(2).alias("k")), c, (c * c + col("k")).alias("d"))
    assert merge_projects(plan) == select(scan(), a.alias("c"), (a * a + lit(2)).alias("d"))


def test_swapped_names() -> None:
    plan = select(select(scan(), a.alias("b"), b.alias("a")), a, (b + 1))
    assert merge_projects(plan) == select(scan(), b.alias("a"), (a + 1).alias("b"))


def test_what_is_not_read_disappears() -> None:
    assert merge_projects(select(select(scan(), a, (b + 1).alias("c")), a)) == select(scan(), a)


def test_the_identity_disappears() -> None:
    assert merge_projects(select(scan(), a, b, s, l)) == scan()
    child = unknown(scan())
    assert merge_projects(select(child, Star())) is child

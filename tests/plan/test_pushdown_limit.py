from __future__ import annotations

import pytest

from penstock.expr.nodes import UdfCall
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
    UdfProject,
    Unpivot,
)
from penstock.plan.optimizer import apply_rule
from penstock.plan.rules.pushdown_limit import pushdown_limit
from tests.plan.sources import a, count_to, double, node, scan, select, unknown


def added(child: Plan, value: object) -> UdfProject:
    assert isinstance(value, UdfCall)
    return UdfProject(child, value, "c", ("a",))


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        Limit(Filter(scan(), node(a > 1)), 5),
        Limit(Sample(scan(), 0.5), 5),
        Limit(unknown(scan()), 5),
        Limit(added(scan(), node(count_to(a))), 5),
        Limit(select(scan(), count_to(a).alias("c")), 5),
        Limit(scan(limit=7), 5, 2),
        Limit(scan(), None, 2),
        Limit(MonotonicId(scan(), "id"), None, 2),
        Limit(Concat((scan(limit=5), Limit(Filter(scan(), node(a > 1)), 3))), 5),
        Limit(Concat((scan(), scan())), None, 3),
        Limit(Explode(scan(limit=5), ("l",)), 5),
    ],
)
def test_a_limit_that_stays(plan: Plan) -> None:
    assert pushdown_limit(plan) is plan


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Limit(scan(), 5), scan(limit=5)),
        (Limit(scan(limit=3), 5), scan(limit=3)),
        (Limit(scan(), 5, 2), Limit(scan(limit=7), 5, 2)),
        (Limit(scan(), None, 0), scan()),
        (Limit(Limit(scan(), 9), 5, 2), Limit(scan(), 5, 2)),
        (Limit(Limit(scan(), 5, 1), 9, 2), Limit(scan(), 3, 3)),
        (Limit(Limit(scan(), 1), 9, 2), Limit(scan(), 0, 2)),
        (Limit(Limit(scan(), None, 1), None, 2), Limit(scan(), None, 3)),
        (Limit(select(scan(), a), 5, 2), select(Limit(scan(), 5, 2), a)),
        (Limit(added(scan(), node(double(a))), 5), added(Limit(scan(), 5), node(double(a)))),
        (Limit(IntoBatches(scan(), 2), 5), IntoBatches(Limit(scan(), 5), 2)),
        (Limit(Repartition(scan(), 2), 5), Repartition(Limit(scan(), 5), 2)),
        (Limit(MonotonicId(scan(), "id"), 5), MonotonicId(Limit(scan(), 5), "id")),
        (Limit(MonotonicId(scan(), "id"), 5, 2), Limit(MonotonicId(Limit(scan(), 7), "id"), 5, 2)),
        (Limit(Concat((scan(), scan(limit=4))), 5), Limit(Concat((Limit(scan(), 5), scan(limit=4))), 5)),
        (Limit(Explode(scan(), ("l",)), 5, 1), Limit(Explode(Limit(scan(), 6), ("l",)), 5, 1)),
        (Limit(Unpivot(scan(), ("a",), ("b",)), 5), Limit(Unpivot(Limit(scan(), 5), ("a",), ("b",)), 5)),
    ],
)
def test_a_limit_moves(plan: Plan, expected: Plan) -> None:
    assert pushdown_limit(plan) == expected


def test_it_comes_to_rest() -> None:
    plan = Limit(Concat((select(Explode(scan(), ("l",)), a), select(scan(), a))), 5)
    moved = apply_rule(apply_rule(plan, pushdown_limit), pushdown_limit)
    expected = Concat((select(Limit(Explode(scan(limit=5), ("l",)), 5), a), select(scan(limit=5), a)))
    assert moved == Limit(expected, 5)
    assert apply_rule(moved, pushdown_limit) is moved

from __future__ import annotations

import pytest

from penstock.expr.column import lit
from penstock.plan.nodes import Filter, Plan
from penstock.plan.rules.fold_constants import fold_constants
from tests.plan.sources import a, double, node, scan, select


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        select(scan(), a + 1),
        Filter(scan(), node(a > 1)),
        Filter(scan(), node(lit(False))),
        Filter(scan(), node(lit(None))),
        select(scan(), double(lit(1) + 2).alias("c")),
        select(scan(), lit("x").cast("int64").alias("c")),  # fails when it runs, as it would have
    ],
)
def test_nothing_to_fold(plan: Plan) -> None:
    assert fold_constants(plan) is plan


def test_operators_on_constants() -> None:
    assert fold_constants(Filter(scan(), node(a > lit(1) + 2))) == Filter(scan(), node(a > 3))
    assert fold_constants(select(scan(), a, (lit("3").cast("int64") + 1).alias("c"))) == select(
        scan(), a, lit(4).alias("c")
    )


def test_a_filter_that_is_always_true_disappears() -> None:
    assert fold_constants(Filter(scan(), node(lit(True)))) == scan()

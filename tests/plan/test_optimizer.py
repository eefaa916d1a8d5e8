from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.expr.column import col
from penstock.expr.nodes import UdfCall
from penstock.plan.lower import lower
from penstock.plan.nodes import Concat, Filter, Limit, Plan, UdfProject
from penstock.plan.optimizer import MAX_PASSES, REQUIRED, RULES, apply_rule, optimize
from tests.plan.sources import a, b, double, is_odd, node, s, scan, select, tell, with_columns

c = col("c")


def test_a_plan_with_nothing_to_do_is_returned_as_it_is() -> None:
    plan = select(Filter(scan("a", "b"), node(a + b > 1)), (a + b).alias("c"))
    assert optimize(plan) is plan


def test_rules_work_together() -> None:
    """A filter reaches the scan from above a UDF, its column is not read, and the UDF sees few rows and columns."""
    plan = with_columns(scan(), c=double(a), d=tell(a, b))
    plan = Limit(select(Filter(plan, node((s == "x") & (b + 1 > 2))), c), 5)
    call = node(double(a))
    assert isinstance(call, UdfCall)
    below = Limit(Filter(scan("a", "b", predicate=s == "x"), node(b + 1 > 2)), 5)
    assert optimize(plan) == UdfProject(below, call, "c", ())


def test_a_udf_in_a_filter_runs_after_the_cheap_part() -> None:
    plan = select(Filter(scan(), node(is_odd(a) & (b > 1))), s)
    call = node(is_odd(a))
    assert isinstance(call, UdfCall)
    udf = UdfProject(scan("a", "s", predicate=b > 1), call, "__udf_0", ("s",))
    assert optimize(plan) == select(Filter(udf, node(col("__udf_0"))), s)


def test_without_required_rules_a_plan_cannot_be_lowered() -> None:
    assert set(REQUIRED) <= set(RULES)
    assert optimize(select(scan(), double(a).alias("c")), ()).has_udf  # type: ignore[attr-defined]


def test_the_loop_is_bounded() -> None:
    """A rule that never rests ends after all."""
    calls = 0

    def toggle(plan: Plan) -> Plan:
        nonlocal calls
        calls += 1
        return Limit(plan.child, 2 if plan.num_rows == 1 else 1) if isinstance(plan, Limit) else plan

    assert isinstance(optimize(Limit(scan(), 1), (toggle,)), Limit)
    assert calls <= 2 * MAX_PASSES**2


def test_a_rule_sees_every_node() -> None:
    seen: list[str] = []

    def look(plan: Plan) -> Plan:
        seen.append(type(plan).__name__)
        return plan

    plan = Concat((Limit(scan("a"), 1), select(scan(), a)))
    assert apply_rule(plan, look) is plan
    assert seen == ["Concat", "Limit", "Scan", "Project", "Scan"]


@pytest.mark.parametrize(
    "verb",
    [
        lambda plan: select(plan, a + 1),
        lambda plan: with_columns(plan, a=a + 1, b=a),
        lambda plan: Filter(plan, node(a + 1 > 0)),
        lambda plan: Filter(select(plan, a + 1), node(a > 0)),
    ],
    ids=["select", "with_columns", "filter", "select and filter"],
)
def test_more_than_a_hundred_verbs(verb: Callable[[Plan], Plan]) -> None:
    plan: Plan = scan("a")
    for _ in range(120):
        plan = verb(plan)
    optimized = optimize(plan)
    assert optimized.schema == plan.schema
    assert lower(optimized, is_ordered=True)

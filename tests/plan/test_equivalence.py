"""Whatever the optimizer does to a plan, its rows stay the same; and the engine gives the rows the plan means."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.plan.nodes import Plan
from penstock.plan.optimizer import REQUIRED, RULES, Rule, optimize
from penstock.runners import read_rows
from penstock.runners.reading import Reading
from tests.plan.reference import reference
from tests.plan.strategies import plans, plans_of_unknown_schema

thorough = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows(data: pa.RecordBatch | pa.Table) -> list[str]:
    """Return rows as text, so that NaN equals NaN; with the names and types of the columns."""
    schema = ", ".join(f"{field.name}: {field.type}" for field in data.schema)
    return [schema, *map(repr, data.to_pylist())]


def executed(plan: Plan, rules: tuple[Rule, ...], is_ordered: bool = True) -> pa.Table:
    batches = list(read_rows(plan, Reading(is_ordered, rules=rules)))
    return pa.Table.from_batches(batches, None if batches else reference(plan).schema)


@given(plans())
@thorough
def test_optimized_plans_mean_the_same(plan: Plan) -> None:
    optimized = optimize(plan)
    assert optimized.schema == plan.schema
    assert rows(reference(optimized)) == rows(reference(plan))
    assert optimize(optimized) is optimized


@given(st.sampled_from(RULES), plans())
@thorough
def test_each_rule_alone_means_the_same(rule: Rule, plan: Plan) -> None:
    optimized = optimize(plan, (*REQUIRED, rule))
    assert optimized.schema == plan.schema
    assert rows(reference(optimized)) == rows(reference(plan))


@pytest.mark.parametrize("rules", [REQUIRED, RULES], ids=["required", "all"])
@given(plans())
@quick
def test_the_engine_gives_the_rows_the_plan_means(rules: tuple[Rule, ...], plan: Plan) -> None:
    assert rows(executed(plan, rules)) == rows(reference(plan))


@given(plans())
@quick
def test_without_order_the_rows_are_the_same(plan: Plan) -> None:
    assert sorted(rows(executed(plan, RULES, is_ordered=False))) == sorted(rows(reference(plan)))


@given(plans_of_unknown_schema())
@quick
def test_unknown_schemas(plan: Plan) -> None:
    expected = rows(reference(plan))
    assert rows(reference(optimize(plan))) == expected
    assert rows(executed(plan, REQUIRED)) == rows(executed(plan, RULES)) == expected

"""Merge two filters."""

from __future__ import annotations

from penstock.expr.nodes import has_udf
from penstock.plan.expression_cost import cannot_fail
from penstock.plan.nodes import Filter, Plan
from penstock.plan.substitution import all_of


def merge_filters(plan: Plan) -> Plan:
    """Check both predicates at once, if the outer one cannot fail on rows that the inner one drops.

    Filter(Filter(x, p), q)  ->  Filter(x, p & q)
    """
    match plan:
        case Filter(Filter(child, inner), outer) if cannot_fail(outer) and not has_udf(inner):
            return Filter(child, all_of([inner, outer]))
        case _:
            return plan

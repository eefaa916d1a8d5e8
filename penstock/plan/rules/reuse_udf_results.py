"""Make a UDF call once if several verbs contain it."""

from __future__ import annotations

from penstock.expr.nodes import UdfCall
from penstock.plan.earlier_calls import FEWER_ROWS, SAME_ROWS, Found, from_earlier_call
from penstock.plan.nodes import Plan, UdfProject


def reuse_udf_results(plan: Plan) -> Plan:
    """Read the result of an equal call further down, if the rows are still the same.

    UdfProject(UdfProject(x, f(a) as b), f(a) as c)  ->  Project(UdfProject(x, f(a) as b), [a, b, b as c])
    UdfProject(Project(Filter(UdfProject(x, f(a) as t), t > 2), [a]), f(a) as c)
        ->  Project(Project(Filter(UdfProject(x, f(a) as t), t > 2), [a, t]), [a, t as c])

    The search stops at nodes that make rows, at unknown columns, and where an input of the call is computed.
    """
    return from_earlier_call(plan, _equal, SAME_ROWS + FEWER_ROWS)


def _equal(earlier: UdfProject, call: UdfCall) -> Found:
    return (earlier, earlier.column) if earlier.call == call else None

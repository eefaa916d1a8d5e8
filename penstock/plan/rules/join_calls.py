"""Make one UDF call for several with the same arguments, if the function can answer for all of them."""

from __future__ import annotations

from dataclasses import replace

from penstock.expr.nodes import Call, ColumnRef, UdfCall
from penstock.plan.earlier_calls import SAME_ROWS, Found, from_earlier_call
from penstock.plan.nodes import Plan, Project, UdfProject
from penstock.plan.substitution import named, new_column


def join_calls(plan: Plan) -> Plan:
    """Answer a call by an earlier one, whose lists then have the items of both.

    UdfProject(UdfProject(x, f(a) as b), g(a) as c)
        ->  Project(Project(UdfProject(x, fg(a) as b), [a, b, list_items(b) as t]), [a, b, t as c])

    Where rows are dropped in between, the later call is made for the others alone.
    """
    return from_earlier_call(plan, _joined, SAME_ROWS)


def _joined(earlier: UdfProject, call: UdfCall) -> Found:
    """Return the plan of the earlier call with the results of both."""
    first, joins = earlier.call, earlier.call.udf.builtin.joins
    if joins is None or (first.children, first.kwargs) != (call.children, call.kwargs) or earlier.schema is None:
        return None
    found = joins.joined(first.udf, call.udf)
    if found is None:
        return None
    result = new_column(set(earlier.schema.names))
    items = Call("list_items", (ColumnRef(earlier.column),), (("positions", found.positions),))
    below = replace(earlier, call=replace(first, udf=found.udf))
    return Project(below, (*map(ColumnRef, earlier.schema.names), named(items, result))), result

"""Make one UDF call for several with the same arguments, if the function can answer for all of them."""

from __future__ import annotations

from dataclasses import replace

from penstock.expr.nodes import Call, ColumnRef, Expr, UdfCall
from penstock.plan.earlier_calls import Found, from_earlier_call
from penstock.plan.nodes import Plan, Project, UdfProject
from penstock.plan.substitution import named, new_column


def join_calls(plan: Plan) -> Plan:
    """Answer a call by an earlier one that then gives both results.

    UdfProject(UdfProject(x, f(a) as b), g(a) as c)
        ->  Project(Project(UdfProject(x, fg(a) as t), [a, t.f as b, t.g as d]), [a, b, d as c])
    """
    return from_earlier_call(plan, _joined)


def _joined(earlier: UdfProject, call: UdfCall) -> Found:
    """Return the plan of the earlier call with the results of both."""
    first, joins = earlier.call, earlier.call.udf.builtin.joins
    if joins is None or (first.children, first.kwargs) != (call.children, call.kwargs) or earlier.schema is None:
        return None
    found = joins.joined(first.udf, call.udf)
    if found is None:
        return None
    assert earlier.child.schema is not None
    names = {*earlier.schema.names, *earlier.child.schema.names}
    column = earlier.column if found.first is None else new_column(names)
    result = new_column({*names, column})
    below = replace(earlier, call=replace(first, udf=found.udf), column=column)
    own = ColumnRef(column) if found.first is None else _field(column, found.first)
    exprs = [named(own, name) if name == earlier.column else ColumnRef(name) for name in earlier.schema.names]
    return Project(below, (*exprs, named(_field(column, found.second), result))), result


def _field(column: str, name: str) -> Expr:
    return Call("struct_get", (ColumnRef(column),), (("name", name),))

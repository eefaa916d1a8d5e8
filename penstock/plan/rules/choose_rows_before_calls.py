"""Move a choice of rows below function calls, so that the functions see only chosen rows."""

from __future__ import annotations

from dataclasses import replace

from penstock.expr.nodes import Alias, ColumnRef
from penstock.plan import nodes
from penstock.plan.relations import Distinct, Join, Sort


def choose_rows_before_calls(plan: nodes.Plan) -> nodes.Plan:
    """Take the first rows of an order, distinct rows, or rows with a match before a function is called.

    Sort(UdfProject(x, f(a) as b), [a], first 5)  ->  UdfProject(Sort(x, [a], first 5), f(a) as b)
    Distinct(UdfProject(x, f(a) as b), [a])       ->  UdfProject(Distinct(x, [a]), f(a) as b)
    SemiJoin(UdfProject(x, f(a) as b), y, [a])    ->  UdfProject(SemiJoin(x, y, [a]), f(a) as b), or AntiJoin

    It does not apply if the result of the function is a key.
    """
    match plan:
        case nodes.Relate((nodes.UdfProject() as call, *_), Sort(keys, int())):
            names = {key.column for key in keys}
        case nodes.Relate((nodes.UdfProject() as call, *_), Distinct(columns)):
            names = set(columns)
        case nodes.Relate((nodes.UdfProject() as call, *_), Join("semi" | "anti", left_on)):
            names = set(left_on)
        case _:
            return plan
    available = call.child.schema
    if not call.is_row_preserving or call.column in names or available is None:
        return plan
    inputs = (call.child, *plan.inputs[1:])
    if not isinstance(plan.relation, Join):
        return call.with_child(replace(plan, inputs=inputs))
    # All columns pass the join; the project after the call selects its output.
    join = replace(plan.relation, columns=tuple((0, name, name) for name in available.names))
    outputs = tuple(Alias(ColumnRef(column), name) for _, column, name in plan.relation.columns)
    return nodes.Project(call.with_child(nodes.Relate(inputs, join)), outputs)

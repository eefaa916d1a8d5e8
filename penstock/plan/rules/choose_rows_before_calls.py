"""Choose rows before functions are called on them."""

from __future__ import annotations

from penstock.plan import nodes
from penstock.plan.relations import Distinct, Sort


def choose_rows_before_calls(plan: nodes.Plan) -> nodes.Plan:
    """Find the first rows of an order, or distinct rows, before a function is called, unless its result is a key.

    Sort(UdfProject(x, f(a) as b), [a], first 5)  ->  UdfProject(Sort(x, [a], first 5), f(a) as b)
    Distinct(UdfProject(x, f(a) as b), [a])       ->  UdfProject(Distinct(x, [a]), f(a) as b)
    """
    match plan:
        case nodes.Relate((nodes.UdfProject() as call,), Sort(keys, int()) as relation):
            names = {key.column for key in keys}
        case nodes.Relate((nodes.UdfProject() as call,), Distinct(columns) as relation):
            names = set(columns)
        case _:
            return plan
    available = call.child.schema
    if not call.is_row_preserving or call.column in names or available is None:
        return plan
    return call.with_child(nodes.Relate((call.child,), relation))

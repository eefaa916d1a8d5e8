"""Move a choice of rows below function calls, so that the functions see only chosen rows."""

from __future__ import annotations

from dataclasses import replace

from penstock.expr.nodes import Alias, ColumnRef
from penstock.plan import nodes
from penstock.plan.relations import Distinct, Join, Sort
from penstock.plan.substitution import definition


def choose_rows_before_calls(plan: nodes.Plan) -> nodes.Plan:
    """Take the first rows of an order, distinct rows, or rows with a match before a function is called.

    Sort(UdfProject(x, f(a) as b), [a], first 5)  ->  UdfProject(Sort(x, [a], first 5), f(a) as b)
    Distinct(UdfProject(x, f(a) as b), [a])       ->  UdfProject(Distinct(x, [a]), f(a) as b)
    SemiJoin(UdfProject(x, f(a) as b), y, [a])    ->  UdfProject(SemiJoin(x, y, [a]), f(a) as b), or AntiJoin

    SemiJoin(Filter(UdfProject(x, f(a) as b), b > 1), y, [a])
        ->  Filter(UdfProject(SemiJoin(x, y, [a]), f(a) as b), b > 1)

    It does not apply if the result of the function is a key.
    """
    match plan:
        case nodes.Relate((nodes.UdfProject() as call,), Sort(keys, int())) if _can_come_first(call):
            names = {key.column for key in keys}
        case nodes.Relate((nodes.UdfProject() as call,), Distinct(columns)) if _can_come_first(call):
            names = set(columns)
        case nodes.Relate((left, right), Join("semi" | "anti") as join):
            return _joined_first(left, right, join) or plan
        case _:
            return plan
    return plan if call.column in names else call.with_child(replace(plan, inputs=(call.child,)))


def _can_come_first(call: nodes.UdfProject) -> bool:
    return call.is_row_preserving and call.child.schema is not None


def _joined_first(left: nodes.Plan, right: nodes.Plan, join: Join) -> nodes.Plan | None:
    """Return the join below the call in its left input, and below the filters on its result. None: no call can wait."""
    above, keys = list[nodes.Filter | nodes.Project](), list(join.left_on)
    while isinstance(left, nodes.Filter) or (isinstance(left, nodes.Project) and not left.has_udf):
        above.append(left)
        if isinstance(left, nodes.Project):
            found = [definition(left, key) for key in keys]
            keys = [each.column for each in found if isinstance(each, ColumnRef)]
        left = left.child
    if not isinstance(left, nodes.UdfProject) or not _can_come_first(left) or len(keys) < len(join.left_on):
        return None
    if left.column in keys:
        return None
    # All columns pass the join; the project after the call selects its output.
    assert left.child.schema is not None
    whole = replace(join, left_on=tuple(keys), columns=tuple((0, name, name) for name in left.child.schema.names))
    rows: nodes.Plan = left.with_child(nodes.Relate((left.child, right), whole))
    for each in reversed(above):
        rows = each.with_child(rows)
    return nodes.Project(rows, tuple(Alias(ColumnRef(column), name) for _, column, name in join.columns))

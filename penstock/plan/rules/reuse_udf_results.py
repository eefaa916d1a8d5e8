"""Make a UDF call once if several verbs contain it."""

from __future__ import annotations

from dataclasses import replace

from penstock.expr.nodes import ColumnRef, UdfCall, columns_of
from penstock.plan.nodes import Filter, IntoBatches, Limit, MonotonicId, Plan, Project, Repartition, Sample, UdfProject
from penstock.plan.substitution import definition, named, new_column, replace_columns

Found = tuple[Plan, str] | None
"""A plan with a result, and the name of its column."""


def reuse_udf_results(plan: Plan) -> Plan:
    """Read the result of an equal call further down, if the rows are still the same.

    UdfProject(UdfProject(x, f(a) as b), f(a) as c)  ->  Project(UdfProject(x, f(a) as b), [a, b, b as c])
    UdfProject(Project(Filter(UdfProject(x, f(a) as t), t > 2), [a]), f(a) as c)
        ->  Project(Project(Filter(UdfProject(x, f(a) as t), t > 2), [a, t]), [a, t as c])

    The search stops at nodes that make rows, at unknown columns, and where an input of the call is computed.
    """
    match plan:
        case UdfProject(child, call, column) if plan.schema is not None and plan.is_row_preserving:
            found = _with_result(child, call)
            if found is None:
                return plan
            below, result = found
            others = (ColumnRef(name) for name in plan.schema.names if name != column)
            return Project(below, (*others, named(ColumnRef(result), column)))
        case _:
            return plan


def _with_result(plan: Plan, call: UdfCall) -> Found:
    """Return this plan with the result of ``call`` added, and the name of that column, if an equal call is below."""
    if plan.schema is None:
        return None
    match plan:
        case UdfProject(child, _, column, keep) if plan.is_row_preserving and column not in columns_of(call):
            found = _without_clash(_with_result(child, call), column)  # the first of several such calls
            if found is None:
                return (plan, column) if plan.call == call else None
            below, result = found
            kept = keep if keep is None or result in keep else (*keep, result)
            return replace(plan, child=below, keep=kept), result
        case MonotonicId(child, column) if column not in columns_of(call):
            found = _without_clash(_with_result(child, call), column)
        case Project() if plan.is_row_preserving:
            return _through_project(plan, call)
        case Plan(children=(child,)) if isinstance(plan, IntoBatches | Repartition | Filter | Limit | Sample):
            found = _with_result(child, call)
        case _:
            return None
    return None if found is None else (plan.with_children((found[0],)), found[1])


def _through_project(plan: Project, call: UdfCall) -> Found:
    definitions = {name: definition(plan, name) for name in columns_of(call)}
    sources = {name: expr for name, expr in definitions.items() if isinstance(expr, ColumnRef)}
    if len(sources) < len(definitions):
        return None
    # Without aliases, which would make it a different call.
    found = _with_result(plan.child, replace_columns(call, sources))
    if found is None:
        return None
    below, result = found
    names = {expr.name for expr in plan.exprs}
    for name in names:
        if definition(plan, name) == ColumnRef(result):
            return plan.with_child(below), name
    name = new_column(names) if result in names else result
    return Project(below, (*plan.exprs, named(ColumnRef(result), name))), name


def _without_clash(found: Found, column: str) -> Found:
    """Rename the result if ``column``, which is about to be added, has its name."""
    if found is None or found[1] != column:
        return found
    plan, result = found
    assert plan.schema is not None
    name = new_column({*plan.schema.names, column})
    columns = (ColumnRef(other) for other in plan.schema.names)
    return Project(plan, (*columns, named(ColumnRef(result), name))), name

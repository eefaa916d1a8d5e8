"""Find the result of a UDF call further down in a plan, where the rows are still the same, and carry it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.expr.nodes import ColumnRef, UdfCall, columns_of
from penstock.plan.nodes import Filter, IntoBatches, Limit, MonotonicId, Plan, Project, Repartition, Sample, UdfProject
from penstock.plan.substitution import definition, named, new_column, replace_columns

Found = tuple[Plan, str] | None
"""A plan with a result, and the name of its column."""
SAME_ROWS = (IntoBatches, Repartition)
"""Nodes that pass on all rows."""
FEWER_ROWS = (Filter, Limit, Sample)
"""Nodes that drop rows: an earlier call has seen more rows than a later one."""

Find = Callable[[UdfProject, UdfCall], Found]
"""Return the plan of an earlier call with the result of a later one, None if the earlier one does not give it."""


def from_earlier_call(plan: Plan, find: Find, through: tuple[type[Plan], ...]) -> Plan:
    """Read the result of a call from an earlier one that ``find`` accepts, or return the plan unchanged.

    Calls and projections may stand between the two calls, and nodes of the types ``through``.
    """
    match plan:
        case UdfProject(child, call, column) if plan.schema is not None and plan.is_row_preserving:
            found = _with_result(child, call, find, through)
            if found is None:
                return plan
            below, result = found
            others = (ColumnRef(name) for name in plan.schema.names if name != column)
            return Project(below, (*others, named(ColumnRef(result), column)))
        case _:
            return plan


def _with_result(plan: Plan, call: UdfCall, find: Find, through: tuple[type[Plan], ...]) -> Found:
    """Return this plan with the result of ``call`` added, and the name of that column, if ``find`` accepts one."""
    if plan.schema is None:
        return None
    match plan:
        case UdfProject(child, _, column, keep) if plan.is_row_preserving and column not in columns_of(call):
            found = _without_clash(_with_result(child, call, find, through), column)  # the first of several such calls
            if found is None:
                return find(plan, call)
            below, result = found
            kept = keep if keep is None or result in keep else (*keep, result)
            return replace(plan, child=below, keep=kept), result
        case MonotonicId(child, column) if column not in columns_of(call):
            found = _without_clash(_with_result(child, call, find, through), column)
        case Project() if plan.is_row_preserving:
            return _through_project(plan, call, find, through)
        case Plan(children=(child,)) if isinstance(plan, through):
            found = _with_result(child, call, find, through)
        case _:
            return None
    return None if found is None else (plan.with_children((found[0],)), found[1])


def _through_project(plan: Project, call: UdfCall, find: Find, through: tuple[type[Plan], ...]) -> Found:
    definitions = {name: definition(plan, name) for name in columns_of(call)}
    sources = {name: expr for name, expr in definitions.items() if isinstance(expr, ColumnRef)}
    if len(sources) < len(definitions):
        return None
    # Without aliases, which would make it a different call.
    found = _with_result(plan.child, replace_columns(call, sources), find, through)
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

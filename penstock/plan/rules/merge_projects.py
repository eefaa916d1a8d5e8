"""Merge two select lists, and drop one that changes nothing."""

from __future__ import annotations

from penstock.expr.nodes import ColumnRef, Star
from penstock.plan.nodes import Plan, Project
from penstock.plan.substitution import merged


def merge_projects(plan: Plan) -> Plan:
    """Substitute the inner select list into the outer one.

    Project(Project(x, [a + 1 as b]), [b * 2 as c])  ->  Project(x, [(a + 1) * 2 as c])
    Project(x, [every column of x, in order])        ->  x
    """
    match plan:
        case Project() if is_identity(plan):
            return plan.child
        case Project():
            return merged(plan)
        case _:
            return plan


def is_identity(project: Project) -> bool:
    """Return True if the output equals the input. With an unknown schema only ``*`` does."""
    if project.child.schema is None:
        return project.exprs == (Star(),)
    names = [expr.column for expr in project.exprs if isinstance(expr, ColumnRef)]
    return len(names) == len(project.exprs) and names == list(project.child.schema.names)

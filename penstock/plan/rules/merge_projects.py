"""Merge two select lists, and drop one that changes nothing."""

from __future__ import annotations

from collections import Counter

from penstock.expr.nodes import ColumnRef, Star, Unnest, unalias, walk
from penstock.plan.expression_cost import is_small, is_trivial
from penstock.plan.nodes import Plan, Project
from penstock.plan.substitution import substitute


def merge_projects(plan: Plan) -> Plan:
    """Substitute the inner select list into the outer one, unless something would be computed twice.

    Project(Project(x, [a + 1 as b]), [b * 2 as c])  ->  Project(x, [(a + 1) * 2 as c])
    Project(x, [every column of x, in order])        ->  x
    """
    match plan:
        case Project() if is_identity(plan):
            return plan.child
        case Project(Project() as inner, exprs) if _can_merge(plan, inner):
            definitions = {expr.name: unalias(expr) for expr in inner.exprs}
            return Project(inner.child, tuple(substitute(expr, definitions) for expr in exprs))
        case _:
            return plan


def is_identity(project: Project) -> bool:
    """Return True if the output equals the input. With an unknown schema only ``*`` does."""
    if project.child.schema is None:
        return project.exprs == (Star(),)
    names = [expr.column for expr in project.exprs if isinstance(expr, ColumnRef)]
    return len(names) == len(project.exprs) and names == list(project.child.schema.names)


def _can_merge(outer: Project, inner: Project) -> bool:
    if outer.has_udf or inner.has_udf:
        return False
    if any(isinstance(expr, (Star, Unnest)) for expr in (*outer.exprs, *inner.exprs)):
        return False
    computed = [expr for expr in outer.exprs if not isinstance(expr, ColumnRef)]
    read = [*outer.exprs, *(child for expr in computed for node in walk(expr) for child in node.children)]
    uses = Counter(node.column for node in read if isinstance(node, ColumnRef))
    return all(is_trivial(expr) or (uses[expr.name] <= 1 and is_small(expr)) for expr in inner.exprs)

"""Projections of any plan: window functions, row numbers and exploded lists are computed before the select list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.expr.column import Expression, col
from penstock.expr.nodes import Alias, Call, ColumnRef, Expr, Star, Unnest, WindowCall, rewrite, unalias, walk
from penstock.expr.resolve import expand
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.plan.relations import AddWindows, SortKey, WindowColumn
from penstock.plan.substitution import merged, named

_ROW = "__row"
_ROW_NUMBER = Call("monotonically_increasing_id", ())


def projected(plan: Plan, exprs: Iterable[Expr]) -> Plan:
    """Return the plan of a select list."""
    exprs = list(exprs)
    computed = [expr for expr in exprs if not isinstance(expr, ColumnRef)]
    if any(isinstance(part, WindowCall) for expr in computed for part in walk(expr)):
        return projected(*_with_windows(plan, exprs))
    if any(part == _ROW_NUMBER for expr in computed for part in walk(expr)):
        return projected(nodes.MonotonicId(plan, _ROW), map(_with_row_numbers, exprs))
    exploded: dict[str, Expr] = {}
    filled: list[Expression] = []
    for expr in computed:
        match unalias(expr):
            case Call("explode", (lists,), options):
                exploded[expr.name] = Alias(lists, expr.name)
                filled += [col(expr.name).list_length() > 0] if options else []
    listed = [exploded.get(expr.name, expr) for expr in exprs] if exploded else exprs
    project = nodes.Project(plan, tuple(listed))
    # With unknown columns each list stays a node, which has the user's line.
    plan = project if project.schema is None else merged(project)
    for condition in filled:
        plan = nodes.Filter(plan, condition._node)
    return nodes.Explode(plan, tuple(exploded)) if exploded else plan


def with_added(plan: Plan, columns: Sequence[Expr]) -> Plan:
    """Return the plan with more columns; one that exists is replaced in its place."""
    schema = plan.schema
    parts = expand(columns, schema)
    added = {part.name: part for part in parts if not isinstance(part, Unnest)}
    if schema is None:  # a worker orders the columns once they are known
        unnested = [part for part in parts if isinstance(part, Unnest)]
        return projected(plan, [Star(tuple(added)), *added.values(), *unnested])
    kept = [added.pop(name) if name in added else ColumnRef(name) for name in schema.names]
    return projected(plan, [*kept, *added.values()])


def _with_row_numbers(expr: Expr) -> Expr:
    """Return an expression over a plan that has the numbers of its rows as a column."""
    if isinstance(expr, Star):
        return replace(expr, exclude=(*expr.exclude, _ROW))
    return named(rewrite(expr, lambda part: ColumnRef(_ROW) if part == _ROW_NUMBER else part), expr.name)


def _with_windows(plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
    """Return a plan with a column for every window function, and the expressions over these columns."""
    inputs: dict[Expr, str] = {}
    columns: dict[Expr, WindowColumn] = {}

    def name_of(expr: Expr) -> str:
        return expr.column if isinstance(expr, ColumnRef) else inputs.setdefault(expr, f"__input_{len(inputs)}")

    def column_of(node: Expr) -> Expr:
        if not isinstance(node, WindowCall):
            return node
        if node not in columns:
            order = tuple(SortKey(name_of(key), *way) for key, way in zip(node.order_by, node.directions, strict=True))
            arguments, partition = tuple(map(name_of, node.args)), tuple(map(name_of, node.partition_by))
            columns[node] = WindowColumn(
                f"__window_{len(columns)}", node.function, arguments, node.options, partition, order, node.frame,
                node.min_periods,
            )  # fmt: skip
        return ColumnRef(columns[node].name)

    changed = [e if isinstance(e, Star) else named(rewrite(e, column_of), e.name) for e in exprs]
    added = (*inputs.values(), *(column.name for column in columns.values()))
    source = nodes.Project(plan, (Star(), *(Alias(expr, name) for expr, name in inputs.items()))) if inputs else plan
    stars = [replace(e, exclude=(*e.exclude, *added)) if isinstance(e, Star) else e for e in changed]
    return nodes.Relate((source,), AddWindows(tuple(columns.values()))), stars

"""Window functions of a projection become columns of a plan before the projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.expr.nodes import Alias, ColumnRef, Expr, Star, WindowCall, rewrite
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.plan.relations import AddWindows, SortKey, WindowColumn
from penstock.plan.substitution import named


def with_windows(plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
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

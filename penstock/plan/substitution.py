"""Helpers of rules: substitute columns by their definitions, keep names, split conjunctions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.expr.nodes import Alias, Call, ColumnRef, Expr, Star, Unnest, rewrite, unalias
from penstock.plan.nodes import Project


def named(expr: Expr, name: str) -> Expr:
    """Return the expression under ``name``, with an alias if needed."""
    return expr if expr.name == name else Alias(unalias(expr), name)


def substitute(expr: Expr, definitions: Mapping[str, Expr]) -> Expr:
    """Return the expression with columns replaced by their definitions; it keeps its name."""
    if isinstance(expr, ColumnRef):
        return named(definitions.get(expr.column, expr), expr.column)

    def change(node: Expr) -> Expr:
        return definitions.get(node.column, node) if isinstance(node, ColumnRef) else node

    replaced = rewrite(expr, change)
    return replaced if isinstance(expr, (Star, Unnest)) else named(replaced, expr.name)


def definition(project: Project, name: str) -> Expr | None:
    """Return the definition of the output column ``name`` over the columns of the child; None if unknown."""
    for expr in project.exprs:
        if isinstance(expr, Star):
            if name not in expr.exclude and not _is_listed(project, name):
                return ColumnRef(name)
        elif not isinstance(expr, Unnest) and expr.name == name:
            return unalias(expr)
    return None


def _is_listed(project: Project, name: str) -> bool:
    return any(isinstance(expr, Unnest) or (not isinstance(expr, Star) and expr.name == name) for expr in project.exprs)


def conjuncts(predicate: Expr) -> list[Expr]:
    """Return the parts of a conjunction. A filter may apply them one by one."""
    pending, seen, parts = [predicate], set[int](), list[Expr]()
    while pending:
        expr = unalias(pending.pop())
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        match expr:
            case Call("and", (left, right)):
                pending += [right, left]
            case _:
                parts.append(expr)
    return parts


def all_of(predicates: Iterable[Expr]) -> Expr:
    """Return the conjunction of one or more predicates."""
    first, *rest = predicates
    for predicate in rest:
        first = Call("and", (first, predicate))
    return first

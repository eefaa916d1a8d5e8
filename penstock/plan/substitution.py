"""Helpers of rules: substitute columns by their definitions, keep names, split conjunctions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import count
from typing import TypeVar, cast

from penstock.expr.nodes import Alias, Call, ColumnRef, Expr, Star, Unnest, columns_of, rewrite, unalias
from penstock.plan.expression_cost import is_small, is_trivial
from penstock.plan.nodes import Project

_NEW_COLUMN = "__udf_"
AnyExpr = TypeVar("AnyExpr", bound=Expr)


def named(expr: Expr, name: str) -> Expr:
    """Return the expression under ``name``, with an alias if needed."""
    return expr if expr.name == name else Alias(unalias(expr), name)


def substitute(expr: Expr, definitions: Mapping[str, Expr]) -> Expr:
    """Return the expression with columns replaced by their definitions; it keeps its name."""
    replaced = replace_columns(expr, definitions)
    return replaced if isinstance(expr, (Star, Unnest)) else named(replaced, expr.name)


def replace_columns(expr: AnyExpr, definitions: Mapping[str, Expr]) -> AnyExpr:
    """Return the expression with columns replaced by their definitions, even if this changes its name."""

    def change(node: Expr) -> Expr:
        return definitions.get(node.column, node) if isinstance(node, ColumnRef) else node

    return cast(AnyExpr, rewrite(expr, change))


def without_needless_alias(expr: Expr) -> Expr:
    """Return ``a as a`` as ``a``, and any other expression unchanged."""
    return unalias(expr) if unalias(expr) == ColumnRef(expr.name) else expr


def new_column(taken: Set[str]) -> str:
    """Return a name for the result of a call that is not ``taken``."""
    return next(name for number in count() if (name := f"{_NEW_COLUMN}{number}") not in taken)


def is_new_column(name: str) -> bool:
    """Return True for a name that ``new_column`` made, which users do not know."""
    return name.startswith(_NEW_COLUMN)


def merged(project: Project) -> Project:
    """Merge two select lists into one, unless the inner one has a large part that the outer one computes with.

    A part that both use is one step of the compiled list, so nothing is computed twice.
    """
    inner = project.child
    if not isinstance(inner, Project) or project.has_udf or inner.has_udf:
        return project
    if any(isinstance(expr, (Star, Unnest)) for expr in (*project.exprs, *inner.exprs)):
        return project
    below = {expr.name: expr for expr in inner.exprs}
    computed = [expr for expr in project.exprs if not isinstance(expr, ColumnRef)]
    read = {name for expr in computed if not is_trivial(expr) for name in columns_of(expr)}
    if not all(is_small(below[name]) for name in read):
        return project
    definitions = {name: unalias(below[name]) for expr in computed for name in columns_of(expr)}
    exprs = [below[e.column] if isinstance(e, ColumnRef) else substitute(e, definitions) for e in project.exprs]
    return project.over(inner.child, tuple(exprs))


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

"""Conditions of UDF calls: a call in a branch is made only for the rows that use its value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from penstock.expr.nodes import Call, Expr, Literal, UdfCall, has_udf, rewrite, walk
from penstock.types.plain import arrow_numbers

_FALSE = Literal(arrow_numbers(np.zeros(1, bool))[0])  # pa.scalar would import pandas


def with_conditions(exprs: Sequence[Expr]) -> list[Expr]:
    """Return the expressions; each call in a branch gets the condition under which its value is used.

    if_else(a > 1, f(a), g(a))  ->  if_else(a > 1, f(a) if a > 1, g(a) if not a > 1)
    coalesce(a, f(b))           ->  coalesce(a, f(b) if a is null)

    A call that is made for all rows anyway gets no condition.
    """
    conditional = [_conditional(expr, None, {}) for expr in exprs]
    calls = {node for expr in conditional for node in walk(expr) if isinstance(node, UdfCall)}

    def change(node: Expr) -> Expr:
        if isinstance(node, UdfCall) and node.condition is not None:
            whole = replace(node, condition=None)
            return whole if whole in calls else node
        return node

    return [rewrite(expr, change) for expr in conditional]


def _conditional(expr: Expr, condition: Expr | None, known: dict[tuple[Expr, Expr | None], Expr]) -> Expr:
    if not has_udf(expr):
        return expr
    key = (expr, condition)
    if key not in known:
        known[key] = _branches(expr, condition, known)
    return known[key]


def _branches(expr: Expr, condition: Expr | None, known: dict[tuple[Expr, Expr | None], Expr]) -> Expr:
    match expr:
        case Call("if_else", (test, if_true, if_false)):
            asked = _conditional(test, condition, known)
            is_true = Call("coalesce", (asked, _FALSE))  # null counts as false
            yes = _conditional(if_true, _both(condition, is_true), known)
            no = _conditional(if_false, _both(condition, Call("not", (is_true,))), known)
            return replace(expr, args=(asked, yes, no))
        case Call("coalesce", args):
            given: list[Expr] = []
            for arg in args:
                given.append(_conditional(arg, condition, known))
                condition = _both(condition, Call("is_null", (given[-1],)))
            return replace(expr, args=tuple(given))
    children = tuple(_conditional(child, condition, known) for child in expr.children)
    changed = expr.with_children(children)
    if isinstance(changed, UdfCall) and not changed.udf.target.is_generator:
        return replace(changed, condition=condition)
    return changed


def _both(condition: Expr | None, other: Expr) -> Expr:
    return other if condition is None else Call("and", (condition, other))

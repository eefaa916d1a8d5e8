"""Filter rows as early as possible, at best in the scan."""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.expr.nodes import ColumnRef, Expr, columns_of, has_udf, unalias
from penstock.plan import nodes
from penstock.plan.expression_cost import cannot_fail, is_cheap, is_small
from penstock.plan.filters import MAX_CONDITIONS, to_condition
from penstock.plan.relation_columns import filtered_sides
from penstock.plan.substitution import all_of, conjuncts, definition, substitute


def pushdown_filter(plan: nodes.Plan) -> nodes.Plan:
    """Move the parts of a filter that can move towards the scan, and into it.

    Filter(Project(x, [a as b]), b > 1)     ->  Project(Filter(x, a > 1), [a as b])
    Filter(Concat(x, y), p)                 ->  Concat(Filter(x, p), Filter(y, p))
    Filter(Explode(x, [l]), a > 1 & l > 2)  ->  Filter(Explode(Filter(x, a > 1), [l]), l > 2)
    Filter(UdfProject(x, f(a) as b), c > 1 & b > 2)  ->  Filter(UdfProject(Filter(x, c > 1), f(a) as b), b > 2)
    Filter(Join(x, y), a > 1)               ->  Join(Filter(x, a > 1), y), if a is a column of x
    Filter(Scan(s), a > 1)                  ->  Scan(s, predicate=a > 1)

    It stays above nodes that depend on the set of rows: Limit, Sample, MonotonicId and MapBatches.
    """
    if not isinstance(plan, nodes.Filter) or has_udf(plan.predicate):
        return plan
    if isinstance(plan.child, nodes.Relate):
        return _below_relation(plan, plan.child)
    moved: list[Expr] = []
    left: list[Expr] = []
    room = _room(plan.child)
    for part in conjuncts(plan.predicate):
        below = _below(plan.child, part)
        if below is None or len(moved) >= room:
            left.append(part)
        else:
            moved.append(below)
    if not moved:
        return plan
    filtered = _filtered(plan.child, all_of(moved))
    return nodes.Filter(filtered, all_of(left)) if left else filtered


def _room(node: nodes.Plan) -> float:
    """Return how many parts of filters can move below ``node``: a scan takes a limited number."""
    if not isinstance(node, nodes.Scan):
        return math.inf
    return MAX_CONDITIONS - (0 if node.predicate is None else len(conjuncts(node.predicate)))


def _below(node: nodes.Plan, part: Expr) -> Expr | None:
    """Return the predicate over the columns below ``node``, or None if it must stay above."""
    match node:
        case nodes.Scan(source, limit=None) if source.can_filter:
            return part if to_condition(part, source.schema()) is not None else None
        case nodes.Project() if not node.has_udf:
            definitions = {name: definition(node, name) for name in columns_of(part)}
            known = {name: expr for name, expr in definitions.items() if expr is not None and is_cheap(expr)}
            return unalias(substitute(part, known)) if len(known) == len(definitions) and is_small(part) else None
        case nodes.UdfProject(column=column):
            # A filter on repeated columns commutes with a generator, except that a generator without output for a row
            # hides the row from a filter that may fail.
            can_move = column not in columns_of(part) and (node.is_row_preserving or cannot_fail(part))
            return part if can_move else None
        case nodes.Explode(columns=columns):
            return None if columns_of(part) & set(columns) else part
        case nodes.Unpivot(ids=ids):
            return part if columns_of(part) <= set(ids) else None
        case nodes.IntoBatches() | nodes.Repartition() | nodes.Concat():
            return part
        case _:
            return None


def _below_relation(plan: nodes.Filter, relate: nodes.Relate) -> nodes.Plan:
    """Return the filter with its parts moved to the inputs of a relation that may be filtered first."""
    left: list[Expr] = []
    inputs: list[list[Expr]] = [[] for _ in relate.inputs]
    for part in conjuncts(plan.predicate):
        sides = filtered_sides(relate.relation, columns_of(part)) if cannot_fail(part) else {}
        for side, names in sides.items():
            inputs[side].append(substitute(part, {name: ColumnRef(column) for name, column in names.items()}))
        if not sides:
            left.append(part)
    if not any(inputs):
        return plan
    children = (nodes.Filter(c, all_of(parts)) if parts else c for c, parts in zip(relate.inputs, inputs, strict=True))
    filtered = relate.with_children(tuple(children))
    return nodes.Filter(filtered, all_of(left)) if left else filtered


def _filtered(node: nodes.Plan, predicate: Expr) -> nodes.Plan:
    """Return the node with only the rows of its input for which ``predicate`` is true."""
    if isinstance(node, nodes.Scan):
        return replace(node, predicate=all_of([node.predicate, predicate] if node.predicate else [predicate]))
    return node.with_children(tuple(nodes.Filter(child, predicate) for child in node.children))

"""Read and compute only the columns that are used."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

import pyarrow.types as pt

from penstock.expr.nodes import ColumnRef, Expr, Star, UdfCall, Unnest, columns_of, walk
from penstock.plan import nodes
from penstock.plan.expression_cost import is_trivial
from penstock.plan.relation_columns import narrowed
from penstock.protocols import CountableSource
from penstock.types import Schema


def pushdown_projection(plan: nodes.Plan) -> nodes.Plan:
    """Let the nodes below a select list read and compute only the columns of the list.

    Project(Filter(Scan(s), b > 1), [a])  ->  Project(Filter(Scan(s, columns=[a, b]), b > 1), [a])
    Project(UdfProject(x, f(b) as c), [a])  ->  Project(x, [a])
    Project(Project(MapBatches(x), [*, b + 1 as c]), [a])  ->  Project(Project(MapBatches(x), [a]), [a])

    Project(Scan(s, columns=[a]), [])  ->  Project(Scan(s, columns=[]), []), where the source can count its rows

    The rule stops at MapBatches, whose function sees every column.
    """
    match plan:
        case nodes.Project(nodes.Scan(source=CountableSource()) as scan, ()):
            return plan if scan.columns == () else plan.with_child(replace(scan, columns=()))
        case nodes.Project(child, exprs) if not any(isinstance(expr, Star) for expr in exprs):
            return plan.with_child(narrow(child, set().union(*map(columns_of, exprs))))
        case nodes.UdfProject(child, call, column, keep) if keep is not None:
            return plan.with_child(narrow(child, (set(keep) - {column}) | columns_of(call)))
        case nodes.Unpivot(child, ids, values):
            return plan.with_child(narrow(child, {*ids, *values}))
        case _:
            return plan


def narrow(plan: nodes.Plan, needed: Set[str]) -> nodes.Plan:
    """Return a plan with at least the ``needed`` columns of this one, and few others.

    The row count stays, so one column is kept even if none is needed.
    """
    while isinstance(plan, nodes.Project) and _is_unused(plan, needed):
        plan = plan.child
    match plan:
        case nodes.Scan():
            return _narrow_scan(plan, needed)
        case nodes.Project():
            return _narrow_project(plan, needed)
        case nodes.UdfProject():
            return _narrow_udf(plan, needed)
        case nodes.Concat():
            return _narrow_concat(plan, needed)
        case nodes.Relate():
            return _narrow_relate(plan, needed)
        case nodes.Filter(child, predicate):
            return plan.with_child(narrow(child, needed | columns_of(predicate)))
        case nodes.Explode(child, columns):
            return plan.with_child(narrow(child, needed | set(columns)))
        case nodes.MonotonicId(child, column):
            return plan.with_child(narrow(child, needed - {column})) if column in needed else narrow(child, needed)
        case nodes.Unpivot(ids=ids):
            kept = tuple(name for name in ids if name in needed)
            return plan if kept == ids else replace(plan, ids=kept)
        case nodes.Limit(child) | nodes.Sample(child) | nodes.IntoBatches(child) | nodes.Repartition(child):
            return plan.with_child(narrow(child, needed))
        case _:
            return plan


def _narrow_scan(scan: nodes.Scan, needed: Set[str]) -> nodes.Plan:
    assert scan.schema is not None
    columns = _wanted(scan.schema, needed)
    return scan if len(columns) == len(scan.schema) else replace(scan, columns=columns)


def _narrow_project(project: nodes.Project, needed: Set[str]) -> nodes.Plan:
    exprs = _needed_exprs(project, needed)
    if not exprs:
        exprs = (next(filter(is_trivial, project.exprs), project.exprs[0]),) if project.exprs else ()
    return project if exprs == project.exprs else replace(project, exprs=exprs)


def _needed_exprs(project: nodes.Project, needed: Set[str]) -> tuple[Expr, ...]:
    return tuple(expr for expr in _with_names(project.exprs, needed) if _must_stay(expr) or expr.name in needed)


def _is_unused(project: nodes.Project, needed: Set[str]) -> bool:
    """Return True if only the number of rows is needed, and the input has the same number. Its columns may be
    unknown."""
    return any(isinstance(expr, Star) for expr in project.exprs) and not _needed_exprs(project, needed)


def _with_names(exprs: Sequence[Expr], needed: Set[str]) -> Sequence[Expr]:
    """Return the select list with the needed columns in place of a star, unless an unnest may give some of them."""
    if any(isinstance(expr, Unnest) for expr in exprs):
        return exprs
    given = {expr.name for expr in exprs}
    return [
        part
        for expr in exprs
        for part in (map(ColumnRef, sorted(needed - given - {*expr.exclude})) if isinstance(expr, Star) else [expr])
    ]


def _must_stay(expr: Expr) -> bool:
    """Return True if the expression gives columns with unknown names, or decides the number of rows."""
    return any(
        isinstance(node, (Star, Unnest)) or (isinstance(node, UdfCall) and node.udf.target.is_generator)
        for node in walk(expr)
    )


def _narrow_udf(plan: nodes.UdfProject, needed: Set[str]) -> nodes.Plan:
    others = needed - {plan.column}
    if plan.column not in needed and plan.is_row_preserving:
        return narrow(plan.child, needed)
    if plan.child.schema is None:
        return plan.with_child(narrow(plan.child, others | columns_of(plan.call)))
    kept = plan.child.schema.names if plan.keep is None else plan.keep
    keep = tuple(name for name in kept if name in others)
    narrowed = plan if keep == plan.keep else replace(plan, keep=keep)
    return pushdown_projection(narrowed)


def _narrow_concat(plan: nodes.Concat, needed: Set[str]) -> nodes.Plan:
    if plan.schema is None:
        return plan
    columns = _wanted(plan.schema, needed)
    if len(columns) == len(plan.schema):
        return plan
    return nodes.Concat(tuple(_exactly(narrow(child, set(columns)), columns) for child in plan.inputs))


def _narrow_relate(plan: nodes.Relate, needed: Set[str]) -> nodes.Plan:
    if plan.schema is None:
        return plan
    relation, inputs = narrowed(plan.relation, _wanted(plan.schema, needed), [c.schema for c in plan.inputs])
    children = tuple(narrow(child, names) for child, names in zip(plan.inputs, inputs, strict=True))
    is_same = relation == plan.relation and all(a is b for a, b in zip(children, plan.inputs, strict=True))
    return plan if is_same else nodes.Relate(children, relation)


def _exactly(plan: nodes.Plan, columns: tuple[str, ...]) -> nodes.Plan:
    """Return the plan with these columns in this order, on which the inputs of a concat must agree."""
    if plan.schema is not None and tuple(plan.schema.names) == columns:
        return plan
    return nodes.Project(plan, tuple(ColumnRef(name) for name in columns))


def _wanted(schema: Schema, needed: Set[str]) -> tuple[str, ...]:
    """Return the needed columns in order, or the cheapest column to read if none is needed."""
    columns = tuple(name for name in schema.names if name in needed)
    return columns or tuple(sorted(schema.names, key=lambda name: _width(schema, name))[:1])


def _width(schema: Schema, name: str) -> int:
    """Return the bits of a fixed-size value; variable sizes count as larger."""
    arrow = schema[name].dtype.arrow
    if pt.is_primitive(arrow):
        return int(arrow.bit_width)
    return 2**10 if pt.is_string(arrow) or pt.is_binary(arrow) else 2**20

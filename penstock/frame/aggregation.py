"""The plan of aggregates, with the columns to compute before them and after them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from penstock.errors import InvalidArgumentError
from penstock.expr.aggregate_functions import AGGREGATES
from penstock.expr.expression_text import describe
from penstock.expr.nodes import Aggregation, ColumnRef, Expr, Star, columns_of, rewrite, unalias, walk
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.plan.relations import Aggregate, AggregateColumn
from penstock.plan.substitution import named, without_needless_alias


def has_aggregates(expr: Expr) -> bool:
    """Return True if the expression combines rows."""
    return any(isinstance(node, Aggregation) for node in walk(expr))


def aggregated(plan: Plan, keys: Sequence[Expr], exprs: Sequence[Expr], verb: str) -> Plan:
    """Return a plan that aggregates columns computed below it, and computes ``exprs`` of the results above it."""
    if not exprs:
        raise InvalidArgumentError(f"{verb} needs at least one aggregate, such as ps.col('x').sum()")
    inputs: dict[Expr, str] = {}
    columns: dict[Expr, AggregateColumn] = {}
    outputs = [key.name for key in keys] + [expr.name for expr in exprs]
    wanted = {unalias(expr): expr.name for expr in exprs} if len(set(outputs)) == len(outputs) else {}
    spare = (name for number in itertools.count() if (name := f"__aggregate_{number}") not in outputs)

    def input_name(arg: Expr) -> str:
        is_plain = isinstance(arg, ColumnRef) and all(key.name != arg.column or key == arg for key in keys)
        return arg.name if is_plain else f"__input_{len(inputs)}"

    def column_of(node: Expr) -> Expr:
        if not isinstance(node, Aggregation):
            return node
        if node.function not in AGGREGATES:
            raise InvalidArgumentError(f"{describe(node)} is a window function; use it with .over(...) in a select")
        if node not in columns:
            names = tuple(inputs.setdefault(arg, input_name(arg)) for arg in node.args)
            name = wanted.get(node) or next(spare)
            columns[node] = AggregateColumn(name, node.function, names, node.options)
        return ColumnRef(columns[node].name)

    for expr in exprs:
        _check_not_nested(expr)
    results = [without_needless_alias(named(rewrite(expr, column_of), expr.name)) for expr in exprs]
    known = {key.name for key in keys} | {column.name for column in columns.values()}
    for expr, result in zip(exprs, results, strict=True):
        outside = {"*"} if isinstance(unalias(expr), Star) else columns_of(result) - known
        if outside:
            raise InvalidArgumentError(
                f"{describe(expr)}: {', '.join(sorted(outside))} is neither a key nor inside an aggregate; "
                "add it to groupby, or choose a value with .any_value()"
            )
    computed = {name: expr for expr, name in inputs.items()} | {key.name: key for key in keys}
    source = nodes.Project(plan, tuple(named(expr, name) for name, expr in computed.items()))
    relation = Aggregate(tuple(key.name for key in keys), tuple(columns.values()))
    found = nodes.Relate((source,), relation)
    if results == [ColumnRef(column.name) for column in columns.values()]:
        return found
    return nodes.Project(found, (*(ColumnRef(key.name) for key in keys), *results))


def _check_not_nested(expr: Expr) -> None:
    for node in walk(expr):
        if isinstance(node, Aggregation) and any(
            isinstance(part, Aggregation) for arg in node.args for part in walk(arg)
        ):
            raise InvalidArgumentError(f"{describe(node)}: an aggregate cannot contain another one")

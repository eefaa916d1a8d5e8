"""Compute constant expressions once."""

from __future__ import annotations

import operator
from dataclasses import replace

import pyarrow as pa

from penstock.expr.evaluate import Program
from penstock.expr.nodes import Call, Cast, Expr, Literal, has_udf, rewrite
from penstock.expr.resolve import dtype_of
from penstock.plan.expression_cost import CHEAP
from penstock.plan.nodes import Filter, Plan, Project
from penstock.types import Schema

_NO_ROWS = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
_NO_COLUMNS = Schema([])


def fold_constants(plan: Plan) -> Plan:
    """Replace operators on constants by their results, and drop a filter that is always true.

    Filter(x, a > 1 + 2)  ->  Filter(x, a > 3)
    Filter(x, true)       ->  x

    UDF arguments are not folded: a batch function gets a column for ``lit(1) + 2``, but a number for ``3``.
    """
    match plan:
        case Filter(child, Literal(scalar)) if scalar.as_py() is True:
            return child
        case Filter(predicate=predicate) if not has_udf(predicate):
            folded = rewrite(predicate, _fold)
            return plan if folded is predicate else replace(plan, predicate=folded)
        case Project(exprs=exprs) if not plan.has_udf:
            list_folded = tuple(rewrite(expr, _fold) for expr in exprs)
            return plan if all(map(operator.is_, list_folded, exprs)) else replace(plan, exprs=list_folded)
        case _:
            return plan


def _fold(expr: Expr) -> Expr:
    is_pure = isinstance(expr, Cast) or (isinstance(expr, Call) and expr.function in CHEAP)
    if not is_pure or not expr.children or not all(isinstance(child, Literal) for child in expr.children):
        return expr
    try:
        (value,) = Program([expr], _NO_COLUMNS).values(_NO_ROWS)
    except Exception:  # reported when the query runs
        return expr
    is_constant = isinstance(value, pa.Scalar) and value.type == dtype_of(expr, _NO_COLUMNS).arrow
    return Literal(value) if is_constant else expr

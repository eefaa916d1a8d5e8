"""Filter rows before a UDF."""

from __future__ import annotations

from penstock.expr.nodes import Expr, columns_of, has_udf
from penstock.plan.expression_cost import cannot_fail
from penstock.plan.nodes import Filter, Plan, UdfProject
from penstock.plan.substitution import all_of, conjuncts


def move_filter_below_udf(plan: Plan) -> Plan:
    """Apply the parts of a filter that do not read the UDF's column before the UDF, which may cost money per row.

    Filter(UdfProject(x, f(a) as b), c > 1 & b > 2)  ->  Filter(UdfProject(Filter(x, c > 1), f(a) as b), b > 2)
    """
    match plan:
        case Filter(UdfProject() as udf, predicate):
            parts = conjuncts(predicate)
            early = [part for part in parts if _is_movable(part, udf)]
            late = [part for part in parts if not _is_movable(part, udf)]
            if not early:
                return plan
            moved = udf.with_child(Filter(udf.child, all_of(early)))
            return Filter(moved, all_of(late)) if late else moved
        case _:
            return plan


def _is_movable(part: Expr, udf: UdfProject) -> bool:
    # A filter on repeated columns commutes with a generator, except that a generator without output for a row hides
    # the row from a filter that may fail.
    return udf.column not in columns_of(part) and not has_udf(part) and (udf.is_row_preserving or cannot_fail(part))

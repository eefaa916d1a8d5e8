"""What rules ask of an expression before they move it: what it costs, and whether it can fail."""

from __future__ import annotations

from itertools import islice

from penstock.expr.nodes import Alias, Call, ColumnRef, Expr, Literal, unalias, walk

COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
SAFE = COMPARISONS | {"and", "or", "xor", "not", "is_null", "not_null", "is_in", "equal_null_safe"}
CHEAP = SAFE | {"add", "subtract", "multiply", "divide", "negate", "coalesce", "if_else", "struct_get"}

MAX_SIZE = 32  # nodes of an expression


def is_trivial(expr: Expr) -> bool:
    """Say whether it is a column or a constant, under any name: nothing is computed."""
    return isinstance(unalias(expr), (ColumnRef, Literal))


def is_small(expr: Expr) -> bool:
    """Say whether it may be put into another one: a chain of a thousand selects must not become one deep expression."""
    return next(islice(walk(expr), MAX_SIZE, None), None) is None


def is_cheap(expr: Expr) -> bool:
    """Say whether computing it twice costs less than carrying rows along that a filter would drop."""
    return _consists_of(expr, CHEAP)


def cannot_fail(expr: Expr) -> bool:
    """Say whether it gives an answer for every row, so that it may be computed for rows it would not have met.

    ``where(b != 0).where(a // b > 1)`` is how people guard an expression that can fail.
    """
    return _consists_of(expr, SAFE)


def _consists_of(expr: Expr, functions: frozenset[str]) -> bool:
    return all(
        isinstance(node, (ColumnRef, Literal, Alias)) or (isinstance(node, Call) and node.function in functions)
        for node in walk(expr)
    )

"""Properties of an expression that decide whether a rule may move it: its cost, and whether it can fail."""

from __future__ import annotations

from itertools import islice

from penstock.expr.nodes import COMPARISONS, Alias, Call, ColumnRef, Expr, Literal, unalias, walk

SAFE = frozenset(COMPARISONS) | {"and", "or", "xor", "not", "is_null", "not_null", "is_in", "equal_null_safe"}
CHEAP = SAFE | {"add", "subtract", "multiply", "divide", "negate", "coalesce", "if_else", "struct_get"}
PARTS = frozenset({"get_item", "struct_get", "to_struct", "list_items", "decisions"})

MAX_SIZE = 32  # nodes of an expression


def is_trivial(expr: Expr) -> bool:
    """Return True for a column or a constant under any name, which costs nothing."""
    return isinstance(unalias(expr), (ColumnRef, Literal))


def picks_parts(expr: Expr) -> bool:
    """Return True if it only picks and names parts of values, as ``col("d")["topic"]["value"]`` does."""
    return _consists_of(expr, PARTS)


def is_small(expr: Expr) -> bool:
    """Return True if it may be merged into another: a thousand selects must not become one deep expression."""
    return next(islice(walk(expr), MAX_SIZE, None), None) is None


def is_cheap(expr: Expr) -> bool:
    """Return True if computing it twice costs less than keeping rows that a filter would drop."""
    return _consists_of(expr, CHEAP)


def cannot_fail(expr: Expr) -> bool:
    """Return True if it cannot raise for any row, so that it may see rows that another filter would have dropped.

    Users guard expressions that can fail with ``where(b != 0).where(a // b > 1)``.
    """
    return _consists_of(expr, SAFE)


def _consists_of(expr: Expr, functions: frozenset[str]) -> bool:
    return all(
        isinstance(node, (ColumnRef, Literal, Alias)) or (isinstance(node, Call) and node.function in functions)
        for node in walk(expr)
    )

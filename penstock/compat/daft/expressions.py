"""Methods of expressions that only Daft has; importing the adapter adds them to ``Expression``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, element, lit, method
from penstock.expr.nodes import ColumnRef, Literal
from penstock.functions import coalesce as _coalesce
from penstock.types import DataType
from penstock.udf.decorators import func

__all__ = ["Expression", "coalesce", "col", "element", "lit"]


@method
def apply(expr: Expression, func_: Callable[[Any], Any], return_dtype: Any) -> Expression:
    """Run a Python function on each value; ``penstock.func`` is the general form."""
    applied: Expression = func(func_, return_dtype=return_dtype)(expr)
    return applied


@method
def coalesce(expr: Expression, *others: Any) -> Expression:
    """Return the first value that is not null."""
    return _coalesce(expr, *others)


@method
def is_column(expr: Expression) -> bool:
    """Return True if the expression is a column as it is."""
    return isinstance(expr._node, ColumnRef)


@method
def column_name(expr: Expression) -> str | None:
    """Return the name of a column as it is, or None."""
    return expr._node.column if isinstance(expr._node, ColumnRef) else None


@method
def is_literal(expr: Expression) -> bool:
    """Return True if the expression is a constant."""
    return isinstance(expr._node, Literal)


@method
def as_py(expr: Expression) -> Any:
    """Return the value of a constant."""
    if not isinstance(expr._node, Literal):
        raise InvalidArgumentError(f"{expr!r} is not a constant, so it has no Python value before the query runs")
    return expr._node.scalar.as_py()


def _conversion(name: str) -> Callable[..., Expression]:
    def convert(expr: Expression, *args: Any, **kwargs: Any) -> Expression:
        return expr.cast(getattr(DataType, name)(*args, **kwargs))

    convert.__name__ = f"as_{name}"
    convert.__doc__ = f"Convert to ``DataType.{name}(...)``."
    return convert


for _name in (
    *("decimal128", "duration", "embedding", "fixed_size_list", "image", "list", "map", "struct", "tensor"),
    *("time", "timestamp"),
):
    method(_conversion(_name))

"""Conversions, nulls and conditions as functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, call, lit, method
from penstock.expr.kinds import ANY, BOOLEAN
from penstock.functions.table import FunctionTable
from penstock.types import DataType
from penstock.udf import decorators


def coalesce(*args: Any) -> Expression:
    """Return the first value that is not null.

    >>> ps.from_pydict({"a": [None, 1], "b": [2, 3]}).select(coalesce(ps.col("a"), ps.col("b"))).to_pydict()
    {'a': [2, 1]}
    """
    if not args:
        raise InvalidArgumentError("coalesce needs at least one value")
    return call("coalesce", *args)


@method
def apply(expr: Expression, func: Callable[[Any], Any], return_dtype: DataType | str | type) -> Expression:
    """Run a Python function on each value, also on null; ``ps.func`` is the general form.

    >>> ps.from_pydict({"a": [1, 2]}).select(apply(ps.col("a"), lambda x: x * 10, "int64")).to_pydict()
    {'a': [10, 20]}
    """
    applied: Expression = decorators.func(func, return_dtype=return_dtype)(expr)
    return applied


def is_in(expr: Expression, other: Iterable[Any]) -> Expression:
    """Check whether each value is one of ``other``; null for null, as in SQL.

    >>> ps.from_pydict({"a": [1, 2]}).select(is_in(ps.col("a"), [2, 3])).to_pydict()
    {'a': [False, True]}
    """
    return lit(expr).is_in(other)


# --- methods of ``Expression`` as functions ---------------------------------------------------------------------------

_function = functools.partial(FunctionTable(__name__).build, is_method=False)
_VALUE = {"expr": ANY}
_CAST = {"expr": ANY, "dtype": DataType | str | type}

cast = _function(
    "cast", _CAST, Expression.cast, "Convert to another type; a value that does not fit is an error.", ("1", "int64"), 1
)
try_cast = _function(
    "try_cast", _CAST, Expression.try_cast, "Convert to another type; a value that does not fit becomes null.",
    ("x", "int64"), None,
)  # fmt: skip
is_null = _function("is_null", _VALUE, Expression.is_null, "Check whether each value is null.", (1,), False)
not_null = _function("not_null", _VALUE, Expression.not_null, "Check whether each value is not null.", (1,), True)
fill_null = _function(
    "fill_null", {"expr": ANY, "fill_value": ANY}, Expression.fill_null, "Replace null by ``fill_value``.", (None, 0), 0
)
between = _function(
    "between", {"expr": ANY, "lower": ANY, "upper": ANY}, Expression.between,
    "Check whether each value lies from ``lower`` to ``upper``, both included.", (5, 1, 3), False,
)  # fmt: skip
eq_null_safe = _function(
    "eq_null_safe", {"left": ANY, "right": ANY}, Expression.eq_null_safe,
    "Compare like ``==``, but with null equal to null only.", (1, None), False,
)  # fmt: skip
if_else = _function(
    "if_else", {"condition": BOOLEAN, "if_true": ANY, "if_false": ANY}, Expression.if_else,
    "Choose between two values by a condition; null counts as false.", (True, "big", "small"), "big",
)  # fmt: skip

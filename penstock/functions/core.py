"""Conversions, nulls and conditions as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, call, lit, method
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


def cast(expr: Expression, dtype: DataType | str | type) -> Expression:
    """Convert to another type; a value that does not fit is an error.

    >>> ps.from_pydict({"a": ["1"]}).select(cast(ps.col("a"), "int64")).to_pydict()
    {'a': [1]}
    """
    return lit(expr).cast(dtype)


def try_cast(expr: Expression, dtype: DataType | str | type) -> Expression:
    """Convert to another type; a value that does not fit becomes null.

    >>> ps.from_pydict({"a": ["1", "x"]}).select(try_cast(ps.col("a"), "int64")).to_pydict()
    {'a': [1, None]}
    """
    return lit(expr).try_cast(dtype)


def is_null(expr: Expression) -> Expression:
    """Check whether each value is null.

    >>> ps.from_pydict({"a": [1, None]}).select(is_null(ps.col("a"))).to_pydict()
    {'a': [False, True]}
    """
    return lit(expr).is_null()


def not_null(expr: Expression) -> Expression:
    """Check whether each value is not null.

    >>> ps.from_pydict({"a": [1, None]}).select(not_null(ps.col("a"))).to_pydict()
    {'a': [True, False]}
    """
    return lit(expr).not_null()


def fill_null(expr: Expression, fill_value: Any) -> Expression:
    """Replace null by ``fill_value``.

    >>> ps.from_pydict({"a": [1, None]}).select(fill_null(ps.col("a"), 0)).to_pydict()
    {'a': [1, 0]}
    """
    return lit(expr).fill_null(fill_value)


def is_in(expr: Expression, other: Iterable[Any]) -> Expression:
    """Check whether each value is one of ``other``; null for null, as in SQL.

    >>> ps.from_pydict({"a": [1, 2]}).select(is_in(ps.col("a"), [2, 3])).to_pydict()
    {'a': [False, True]}
    """
    return lit(expr).is_in(other)


def between(expr: Expression, lower: Any, upper: Any) -> Expression:
    """Check whether each value lies from ``lower`` to ``upper``, both included.

    >>> ps.from_pydict({"a": [1, 5]}).select(between(ps.col("a"), 1, 3)).to_pydict()
    {'a': [True, False]}
    """
    return lit(expr).between(lower, upper)


def eq_null_safe(left: Expression, right: Any) -> Expression:
    """Compare like ``==``, but with null equal to null only.

    >>> ps.from_pydict({"a": [1, None]}).select(eq_null_safe(ps.col("a"), None)).to_pydict()
    {'a': [False, True]}
    """
    return lit(left).eq_null_safe(right)


def if_else(condition: Expression, if_true: Any, if_false: Any) -> Expression:
    """Choose between two values by a condition; null counts as false.

    >>> ps.from_pydict({"a": [1, 5]}).select(if_else(ps.col("a") > 2, "big", "small")).to_pydict()
    {'a': ['small', 'big']}
    """
    return lit(condition).if_else(if_true, if_false)

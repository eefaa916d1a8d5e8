"""Window functions: values of other rows of the window, and positions in it. Use them with ``over``."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, aggregate, method


def row_number() -> Expression:
    """Number the rows of a partition from 1.

    >>> window = ps.Window().order_by("x", desc=True)
    >>> ps.from_pydict({"x": [5, 7]}).select("x", row_number().over(window)).sort("x").to_pydict()
    {'x': [5, 7], 'row_number': [2, 1]}
    """
    return aggregate("row_number")


def rank() -> Expression:
    """Rank the rows of a partition from 1; equal rows share a rank, and the next ranks are left out.

    >>> ps.from_pydict({"x": [5, 5, 7]}).select(rank().over(ps.Window().order_by("x"))).sort("rank").to_pydict()
    {'rank': [1, 1, 3]}
    """
    return aggregate("rank")


def dense_rank() -> Expression:
    """Rank the rows of a partition from 1; equal rows share a rank, and no rank is left out.

    >>> df = ps.from_pydict({"x": [5, 5, 7]})
    >>> df.select(dense_rank().over(ps.Window().order_by("x"))).sort("dense_rank").to_pydict()
    {'dense_rank': [1, 1, 2]}
    """
    return aggregate("dense_rank")


@method
def lag(expr: Expression, offset: int = 1, default: Any = None) -> Expression:
    """Return the value some rows before, or ``default`` if there is no such row.

    >>> df = ps.from_pydict({"x": [1, 2]})
    >>> df.select("x", lag(ps.col("x"), default=0).over(ps.Window().order_by("x")).alias("y")).sort("x").to_pydict()
    {'x': [1, 2], 'y': [0, 1]}
    """
    return _at_row("lag", expr, offset, default)


@method
def lead(expr: Expression, offset: int = 1, default: Any = None) -> Expression:
    """Return the value some rows after, or ``default`` if there is no such row.

    >>> df = ps.from_pydict({"x": [1, 2]})
    >>> df.select("x", lead(ps.col("x")).over(ps.Window().order_by("x")).alias("y")).sort("x").to_pydict()
    {'x': [1, 2], 'y': [2, None]}
    """
    return _at_row("lead", expr, offset, default)


@method
def first_value(expr: Expression, ignore_nulls: bool = False) -> Expression:
    """Return the first value of the window.

    >>> df = ps.from_pydict({"x": [2, 1]})
    >>> df.select(first_value(ps.col("x")).over(ps.Window().order_by("x"))).to_pydict()
    {'x': [1, 1]}
    """
    return aggregate("first_value", expr, ignore_nulls=ignore_nulls)


@method
def last_value(expr: Expression, ignore_nulls: bool = False) -> Expression:
    """Return the last value of the window.

    >>> df = ps.from_pydict({"x": [2, 1]})
    >>> df.select(last_value(ps.col("x")).over(ps.Window().order_by("x"))).to_pydict()
    {'x': [2, 2]}
    """
    return aggregate("last_value", expr, ignore_nulls=ignore_nulls)


def _at_row(function: str, expr: Expression, offset: Any, default: Any) -> Expression:
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise InvalidArgumentError(f"{function} takes a whole number of rows; got {offset!r}")
    return aggregate(function, expr, *([] if default is None else [default]), offset=offset)

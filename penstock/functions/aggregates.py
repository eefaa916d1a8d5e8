"""Aggregate functions: they combine the rows of a group. Use them in ``agg``, or with ``over`` as window functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.column import Expression, aggregate, method
from penstock.functions.table import Builder, generated

CountMode = Literal["valid", "all", "null"]


def _simple(name: str, doc: str, given: Any, result: Any, computes: str | None = None) -> Builder:
    """Return an aggregate function of one argument without options; it is a method of ``Expression`` too."""

    def function(expr: Expression) -> Expression:
        return aggregate(computes or name, expr)

    function.__name__ = function.__qualname__ = name
    example = f'>>> ps.from_pydict({{"x": {given!r}}}).agg({name}(ps.col("x"))).to_pydict()'
    function.__doc__ = f"{doc}\n\n    {example}\n    {{'x': [{result!r}]}}\n    "
    generated[name] = method(function)
    return function


sum = _simple("sum", "Add the values; null without any.", [1, 2, None], 3)
product = _simple("product", "Multiply the values; null without any.", [2, 3, None], 6)
mean = _simple("mean", "Return the arithmetic mean of the values; null without any.", [1, 2, None], 1.5)
avg = _simple("avg", "Return the arithmetic mean of the values; the same as ``mean``.", [1, 2, None], 1.5, "mean")
median = _simple("median", "Return the median, between the two middle values if their number is even.", [1, 2], 1.5)
min = _simple("min", "Return the smallest value; NaN is the largest number.", [2, 1, None], 1)
max = _simple("max", "Return the largest value; NaN is the largest number.", [2, 1, None], 2)
count_distinct = _simple("count_distinct", "Count the different values, without null.", [1, 1, None], 1)
approx_count_distinct = _simple(
    "approx_count_distinct", "Estimate the number of different values in little memory.", [1, 1, None], 1
)
skew = _simple("skew", "Return the skewness of the values, as of a whole population.", [1, 2, 3], 0.0)
bool_and = _simple("bool_and", "Check whether all values are true; null without any.", [True, False], False)
bool_or = _simple("bool_or", "Check whether a value is true; null without any.", [True, False], True)
list_agg = _simple("list_agg", "Collect the values in a list, nulls included, in no particular order.", [5, 5], [5, 5])
list_agg_distinct = _simple("list_agg_distinct", "Collect the different values in a list, without null.", [5, 5], [5])
value_counts = _simple("value_counts", "Count how often each value occurs, as a map.", ["a", "a"], {"a": 2})


@method
def count(expr: Expression, mode: CountMode = "valid") -> Expression:
    """Count the values that are not null; with ``mode`` of ``all`` all rows, of ``null`` the nulls.

    >>> ps.from_pydict({"x": [1, None]}).agg(count(ps.col("x")), count(ps.col("x"), "all").alias("n")).to_pydict()
    {'x': [1], 'n': [2]}
    """
    check_choice("count: mode", mode, get_args(CountMode))
    return aggregate("count", expr, mode=mode)


@method
def any_value(expr: Expression, ignore_nulls: bool = False) -> Expression:
    """Return one of the values, which may be null unless ``ignore_nulls``.

    >>> ps.from_pydict({"x": [None, 7]}).agg(any_value(ps.col("x"), ignore_nulls=True)).to_pydict()
    {'x': [7]}
    """
    return aggregate("any_value", expr, ignore_nulls=ignore_nulls)


@method
def stddev(expr: Expression, ddof: int = 1) -> Expression:
    """Return the standard deviation; null with ``ddof`` values or fewer.

    >>> ps.from_pydict({"x": [1, 3]}).agg(stddev(ps.col("x"), ddof=0)).to_pydict()
    {'x': [1.0]}
    """
    return aggregate("stddev", expr, ddof=_checked_ddof(ddof))


@method
def var(expr: Expression, ddof: int = 1) -> Expression:
    """Return the variance; null with ``ddof`` values or fewer.

    >>> ps.from_pydict({"x": [1, 3]}).agg(var(ps.col("x"))).to_pydict()
    {'x': [2.0]}
    """
    return aggregate("var", expr, ddof=_checked_ddof(ddof))


@method
def string_agg(expr: Expression, delimiter: str = "") -> Expression:
    """Join texts, or lists, to one; null is left out, and the order is not defined.

    >>> ps.from_pydict({"x": ["a", "a", None]}).agg(string_agg(ps.col("x"), "-")).to_pydict()
    {'x': ['a-a']}
    """
    if not isinstance(delimiter, str):
        raise InvalidArgumentError(f"string_agg takes a delimiter of text; got {delimiter!r}")
    return aggregate("string_agg", expr, delimiter=delimiter)


@method
def percentile(expr: Expression, percentiles: float | Sequence[float]) -> Expression:
    """Return the value below which a share of the values lies, interpolated; for several shares a list.

    >>> ps.from_pydict({"x": [1, 2, 3]}).agg(percentile(ps.col("x"), [0.5, 1.0])).to_pydict()
    {'x': [[2.0, 3.0]]}
    """
    return aggregate("percentile", expr, percentiles=_checked_shares("percentile", percentiles))


@method
def approx_percentiles(expr: Expression, percentiles: float | Sequence[float]) -> Expression:
    """Estimate percentiles in little memory; for several shares a list.

    >>> ps.from_pydict({"x": [1, 2, 3]}).agg(approx_percentiles(ps.col("x"), 0.5)).to_pydict()
    {'x': [2.0]}
    """
    return aggregate("approx_percentiles", expr, percentiles=_checked_shares("approx_percentiles", percentiles))


def _checked_ddof(ddof: Any) -> int:
    if isinstance(ddof, bool) or not isinstance(ddof, int) or ddof < 0:
        raise InvalidArgumentError(f"ddof is a whole number, 0 or more; got {ddof!r}")
    return ddof


def _checked_shares(function: str, given: Any) -> float | list[float]:
    shares = [given] if isinstance(given, int | float) else list(given)
    if not shares or not all(isinstance(share, int | float) and 0 <= share <= 1 for share in shares):
        raise InvalidArgumentError(f"{function} takes shares from 0 to 1, such as 0.5; got {given!r}")
    return float(given) if isinstance(given, int | float) else [float(share) for share in shares]


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

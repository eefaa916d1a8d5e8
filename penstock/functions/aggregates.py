"""Aggregate functions: they combine the rows of a group. Use them in ``agg``, or with ``over`` as window functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.column import Expression, aggregate, col
from penstock.expr.expression_text import describe
from penstock.expr.nodes import Aggregation, Expr, WindowCall
from penstock.expr.public_functions import function, method
from penstock.functions.table import Builder
from penstock.types.frozen import frozen

CountMode = Literal["valid", "all", "null"]


def _simple(name: str, doc: str, given: Any, result: Any, computes: str | None = None) -> Builder:
    """Return an aggregate function of one argument without options; it is a method of ``Expression`` too."""

    def build(expr: Expression) -> Expression:
        return aggregate(computes or name, expr)

    build.__name__ = build.__qualname__ = name
    example = f'>>> ps.from_pydict({{"x": {given!r}}}).agg({name}(ps.col("x"))).to_pydict()'
    build.__doc__ = f"{doc}\n\n    {example}\n    {{'x': [{result!r}]}}\n    "
    return method(build)


sum = _simple("sum", "Add the values; null if no value is left.", [1, 2, None], 3)
product = _simple("product", "Multiply the values; null if no value is left.", [2, 3, None], 6)
mean = _simple("mean", "Return the arithmetic mean of the values; null if no value is left.", [1, 2, None], 1.5)
avg = _simple("avg", "Return the arithmetic mean of the values; the same as ``mean``.", [1, 2, None], 1.5, "mean")
median = _simple("median", "Return the median, between the two middle values if their number is even.", [1, 2], 1.5)
min = _simple("min", "Return the smallest value; NaN is the largest number.", [2, 1, None], 1)
max = _simple("max", "Return the largest value; NaN is the largest number.", [2, 1, None], 2)
count_distinct = _simple("count_distinct", "Count the different values, without null.", [1, 1, None], 1)
approx_count_distinct = _simple(
    "approx_count_distinct", "Estimate the number of different values in little memory.", [1, 1, None], 1
)
skew = _simple("skew", "Return the skewness of the values, as of a whole population.", [1, 2, 3], 0.0)
bool_and = _simple("bool_and", "Check whether all values are true; null if no value is left.", [True, False], False)
bool_or = _simple("bool_or", "Check whether a value is true; null if no value is left.", [True, False], True)
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


@function
def row_number() -> Expression:
    """Number the rows of a partition from 1.

    >>> window = ps.Window().order_by("x", desc=True)
    >>> ps.from_pydict({"x": [5, 7]}).select("x", row_number().over(window)).sort("x").to_pydict()
    {'x': [5, 7], 'row_number': [2, 1]}
    """
    return aggregate("row_number")


@function
def rank() -> Expression:
    """Rank the rows of a partition from 1; equal rows share a rank, and the next ranks are left out.

    >>> ps.from_pydict({"x": [5, 5, 7]}).select(rank().over(ps.Window().order_by("x"))).sort("rank").to_pydict()
    {'rank': [1, 1, 3]}
    """
    return aggregate("rank")


@function
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


# --- windows ----------------------------------------------------------------------------------------------------------

ColumnInput: TypeAlias = str | Expression


@frozen
class Window:
    """The partition of each row, the order in it, and the rows around each row that a function combines.

    >>> df = ps.from_pydict({"k": ["x", "x", "y"], "v": [3, 1, 2]})
    >>> window = ps.Window().partition_by("k").order_by("v")
    >>> df.with_column("rank", ps.functions.rank().over(window)).sort("v").to_pydict()
    {'k': ['x', 'y', 'x'], 'v': [1, 2, 3], 'rank': [1, 1, 2]}
    """

    unbounded_preceding: ClassVar[float] = float("-inf")
    unbounded_following: ClassVar[float] = float("inf")
    current_row: ClassVar[int] = 0

    _partition: tuple[Expr, ...] = ()
    _order: tuple[Expr, ...] = ()
    _directions: tuple[tuple[bool, bool], ...] = ()
    _frame: str | None = None
    _min_periods: int = 1

    def partition_by(self, *columns: ColumnInput | Sequence[ColumnInput]) -> Window:
        """Combine only rows with equal values in these columns."""
        return replace(self, _partition=(*self._partition, *_flat(columns)))

    def order_by(
        self,
        *columns: ColumnInput | Sequence[ColumnInput],
        desc: bool | list[bool] = False,
        nulls_first: bool | list[bool] | None = None,
    ) -> Window:
        """Order the rows of a partition; null counts as larger than any value unless ``nulls_first`` says otherwise."""
        keys = _flat(columns)
        descending = desc if isinstance(desc, list) else [desc] * len(keys)
        first = descending if nulls_first is None else nulls_first
        first = first if isinstance(first, list) else [first] * len(keys)
        if len(descending) != len(keys) or len(first) != len(keys):
            raise InvalidArgumentError(
                f"order_by takes desc and nulls_first for each of the {len(keys)} keys, or for all"
            )
        directions = tuple(zip(descending, first, strict=True))
        return replace(self, _order=(*self._order, *keys), _directions=(*self._directions, *directions))

    def rows_between(self, start: float = float("-inf"), end: float = float("inf"), min_periods: int = 1) -> Window:
        """Combine the rows from ``start`` to ``end``, counted from the current row; null if there are few."""
        return replace(self, _frame=f"rows between {_bound(start)} and {_bound(end)}", _min_periods=min_periods)


@method
def over(expr: Expression, window: Window) -> Expression:
    """Compute an aggregate or window function for each row, over the rows of its window.

    >>> df = ps.from_pydict({"k": [1, 1, 2], "v": [2, 4, 6]})
    >>> df.select("v", ps.col("v").sum().over(ps.Window().partition_by("k")).alias("total")).sort("v").to_pydict()
    {'v': [2, 4, 6], 'total': [6, 6, 6]}
    """
    node = expr._node
    if not isinstance(node, Aggregation):
        raise InvalidArgumentError(
            f"{describe(node)}: over takes one aggregate or window function, such as col(x).sum()"
        )
    if not isinstance(window, Window):
        raise InvalidArgumentError(f"over takes a ps.Window; got {window!r}")
    if node.function in ("row_number", "rank", "dense_rank", "lag", "lead") and not window._order:
        raise InvalidArgumentError(f"{node.function} needs an order: Window().order_by(...)")
    spec = (window._partition, window._order, window._directions, window._frame, window._min_periods)
    return Expression(WindowCall(node.function, node.args, node.options, *spec))


def _flat(columns: Sequence[ColumnInput | Sequence[ColumnInput]]) -> tuple[Expr, ...]:
    given = [c for column in columns for c in ([column] if isinstance(column, str | Expression) else column)]
    return tuple(column._node if isinstance(column, Expression) else col(column)._node for column in given)


def _bound(distance: Any) -> str:
    if isinstance(distance, bool) or not isinstance(distance, int | float):
        raise InvalidArgumentError(
            f"A bound of a window is a number of rows, or Window.unbounded_preceding; got {distance!r}"
        )
    if distance in (float("-inf"), float("inf")):
        return f"unbounded {'preceding' if distance < 0 else 'following'}"
    return "current row" if not distance else f"{abs(distance)} {'preceding' if distance < 0 else 'following'}"

"""``Window``: the rows that a window function combines for each row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, method
from penstock.expr.nodes import Aggregation, Alias, ColumnRef, Expr, Star, WindowCall, rewrite
from penstock.expr.text import describe
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.plan.relations import AddWindows, SortKey, WindowColumn
from penstock.plan.substitution import named
from penstock.types.frozen import frozen

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
        """Combine the rows from ``start`` to ``end``, counted from the present row; null if there are few."""
        return replace(self, _frame=f"rows between {_bound(start)} and {_bound(end)}", _min_periods=min_periods)

    def range_between(
        self,
        start: float | dt.timedelta = float("-inf"),
        end: float | dt.timedelta = float("inf"),
        min_periods: int = 1,
    ) -> Window:
        """Combine the rows whose key lies from ``start`` to ``end``, counted from that of the present row."""
        return replace(self, _frame=f"range between {_bound(start)} and {_bound(end)}", _min_periods=min_periods)


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


def with_windows(plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
    """Return a plan that has every window function as a column, and the expressions with these columns."""
    inputs: dict[Expr, str] = {}
    columns: dict[Expr, WindowColumn] = {}

    def name_of(expr: Expr) -> str:
        return expr.column if isinstance(expr, ColumnRef) else inputs.setdefault(expr, f"__input_{len(inputs)}")

    def column_of(node: Expr) -> Expr:
        if not isinstance(node, WindowCall):
            return node
        if node not in columns:
            order = tuple(SortKey(name_of(key), *way) for key, way in zip(node.order_by, node.directions, strict=True))
            arguments, partition = tuple(map(name_of, node.args)), tuple(map(name_of, node.partition_by))
            columns[node] = WindowColumn(
                f"__window_{len(columns)}", node.function, arguments, node.options, partition, order, node.frame,
                node.min_periods,
            )  # fmt: skip
        return ColumnRef(columns[node].name)

    changed = [e if isinstance(e, Star) else named(rewrite(e, column_of), e.name) for e in exprs]
    added = (*inputs.values(), *(column.name for column in columns.values()))
    source = nodes.Project(plan, (Star(), *(Alias(expr, name) for expr, name in inputs.items()))) if inputs else plan
    stars = [replace(e, exclude=(*e.exclude, *added)) if isinstance(e, Star) else e for e in changed]
    return nodes.Relate((source,), AddWindows(tuple(columns.values()))), stars


def _flat(columns: Sequence[ColumnInput | Sequence[ColumnInput]]) -> tuple[Expr, ...]:
    given = [c for column in columns for c in ([column] if isinstance(column, str | Expression) else column)]
    return tuple(column._node if isinstance(column, Expression) else col(column)._node for column in given)


def _bound(distance: Any) -> str:
    if isinstance(distance, dt.timedelta):
        microseconds = distance // dt.timedelta(microseconds=1)
        side = "preceding" if microseconds < 0 else "following"
        return f"interval '{abs(microseconds)} microseconds' {side}"
    if isinstance(distance, bool) or not isinstance(distance, int | float):
        raise InvalidArgumentError(
            f"A bound of a window is a number, a timedelta, or Window.unbounded_preceding; got {distance!r}"
        )
    if distance in (float("-inf"), float("inf")):
        return f"unbounded {'preceding' if distance < 0 else 'following'}"
    return "current row" if not distance else f"{abs(distance)} {'preceding' if distance < 0 else 'following'}"

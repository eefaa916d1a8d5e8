"""``GroupedData``: the groups of a Dataset, with results named as Ray Data names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.compat.ray.data import aggregate
from penstock.compat.ray.data.resource_options import function_options
from penstock.expr.column import Expression
from penstock.expr.nodes import Aggregation
from penstock.frame.dataframe import DataFrame
from penstock.functions.aggregates import Window, over


class GroupedData(aggregate.Shortcuts):
    """The result of ``Dataset.groupby``."""

    def __init__(self, dataset: DataFrame, keys: Sequence[str]) -> None:
        self._dataset, self._keys = dataset, list(keys)

    def aggregate(self, *aggs: aggregate.ColumnAggregate) -> Any:
        """Return a row for each group, in the order of the keys."""
        exprs = [each.expression() for each in aggs]
        if not self._keys:
            return self._dataset.agg(*exprs)
        return DataFrame.groupby(self._dataset, *self._keys).agg(*exprs).sort(self._keys)

    def _by(self, name: str, on: Any, **options: Any) -> Any:
        chosen = [on] if isinstance(on, str) else list(on or [c for c in self._dataset.columns if c not in self._keys])
        make = getattr(aggregate, name)
        return self.aggregate(*(make(column, **options) for column in chosen))

    def count(self) -> Any:
        return self.aggregate(getattr(aggregate, "Count")())  # noqa: B009  # made from a table

    def map_groups(self, fn: Callable[..., Any], **options: Any) -> Any:
        return DataFrame.groupby(self._dataset, *self._keys).map_groups(fn, **function_options(options))

    def with_column(self, column_name: str, expr: Expression, **options: Any) -> Any:
        """Add an aggregate of the group, or an expression of the row, to each row."""
        if not isinstance(expr._node, Aggregation):
            return self._dataset.with_column(column_name, expr)
        return self._dataset.with_column(column_name, over(expr, Window().partition_by(*self._keys)))

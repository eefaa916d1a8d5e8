"""Aggregates of all columns at once, as ``count(mode="all")`` and ``col("*").count()`` without a name of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.compat.daft.functions import RowCount
from penstock.expr.column import Expression, col
from penstock.expr.nodes import Aggregation, ColumnRef, Star
from penstock.frame.aggregate import GroupedDataFrame


def of_each_column(aggregates: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """Yield the aggregates; an aggregate of all columns becomes one for each of ``names``."""
    for each in aggregates:
        node = each._node if isinstance(each, Expression) else None
        if isinstance(each, RowCount):
            yield from (col(name).count("all") for name in names)
        elif isinstance(node, Aggregation) and isinstance(node.args[0], Star):
            yield from (Expression(dataclasses.replace(node, args=(ColumnRef(name),))) for name in names)
        elif isinstance(each, list | tuple):
            yield from of_each_column(each, names)
        else:
            yield each


class DaftGroups(GroupedDataFrame):
    """The groups of ``groupby``; an aggregate of all columns leaves out the keys."""

    def agg(self, *aggregates: Any) -> Any:
        keys = {key.name for key in self._keys}
        return super().agg(*of_each_column(aggregates, [name for name in self._frame.columns if name not in keys]))

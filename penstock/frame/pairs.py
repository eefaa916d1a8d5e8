"""Verbs that put rows of two DataFrames side by side: by position, or by the nearest time."""

from __future__ import annotations

from typing import Self, get_args

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.nodes import Expr
from penstock.frame.columns import ColumnInput
from penstock.frame.lazy_table import LazyTable
from penstock.frame.relational import Columns, key_pairs, plan_of, related, with_common_keys, with_computed
from penstock.plan import nodes
from penstock.plan.pair_relations import Keys
from penstock.relational.query_makers import LEFT_NUMBER, RIGHT_NUMBER, AsofMaker, Strategy, ZipMaker


class PairVerbs(LazyTable):
    def zip(self, other: LazyTable) -> Self:
        """Put the columns of another DataFrame beside these, row by row; both must have the same number of rows.

        A column of the other side whose name exists gets the suffix ``_1``, or the next number. All rows are
        held in memory or on disk.

        >>> ps.range(2).zip(ps.from_pydict({"id": [5, 6], "x": ["a", "b"]})).to_pydict()
        {'id': [0, 1], 'id_1': [5, 6], 'x': ['a', 'b']}
        """
        left, right = nodes.MonotonicId(self._plan, LEFT_NUMBER), nodes.MonotonicId(plan_of(other), RIGHT_NUMBER)
        return self._with(related(left, right, ZipMaker()))

    def join_asof(
        self,
        other: LazyTable,
        *,
        on: ColumnInput | None = None,
        left_on: ColumnInput | None = None,
        right_on: ColumnInput | None = None,
        by: Columns | None = None,
        left_by: Columns | None = None,
        right_by: Columns | None = None,
        strategy: Strategy = "backward",
        prefix: str | None = None,
        suffix: str | None = None,
    ) -> Self:
        """Join each row with the row of the other side that is nearest in ``on`` and equal in ``by``; else with null.

        ``backward`` takes the last row at or before it, ``forward`` the first at or after it, ``nearest`` the nearer of
        both, the later one if they are equally near. Null and NaN match nothing. The rows come in no particular order.

        >>> trades = ps.from_pydict({"t": [3, 9], "item": ["a", "a"]})
        >>> prices = ps.from_pydict({"t": [1, 8], "item": ["a", "a"], "price": [10, 20]})
        >>> trades.join_asof(prices, on="t", by="item").sort("t").to_pydict()
        {'t': [3, 9], 'item': ['a', 'a'], 'price': [10, 20]}
        """
        check_choice("join_asof: strategy", strategy, get_args(Strategy))
        left_keys, right_keys = list[Expr](), list[Expr]()
        if any(each is not None for each in (by, left_by, right_by)):
            left_keys, right_keys = key_pairs("join_asof", "by", by, left_by, right_by)
        left_time, right_time = key_pairs("join_asof", "on", on, left_on, right_on)
        if len(left_time) != 1:
            raise InvalidArgumentError("join_asof takes one column in on=, and the columns that must be equal in by=")
        left, left_names, left_extra = with_computed(self._plan, [*left_keys, *left_time], "join_asof")
        right, right_names, right_extra = with_computed(plan_of(other), [*right_keys, *right_time], "join_asof")
        left_on_names, right_on_names = left_names, right_names
        if left.schema is not None and right.schema is not None:
            left, left_on_names, right, right_on_names = with_common_keys(left, left_names, right, right_names)
        maker = AsofMaker(
            Keys(left_names, (*left_extra, *(name for name in left_on_names if name not in left_names))),
            Keys(right_names, (*right_extra, *(name for name in right_on_names if name not in right_names))),
            left_on_names,
            right_on_names,
            strategy,
            prefix,
            suffix,
        )
        return self._with(related(left, right, maker))

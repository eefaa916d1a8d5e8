"""The verb that puts rows of two DataFrames side by side."""

from __future__ import annotations

from typing import Self

from penstock.frame.lazy_table import LazyTable
from penstock.frame.relational import plan_of, related
from penstock.plan import nodes
from penstock.relational.query_makers import LEFT_NUMBER, RIGHT_NUMBER, ZipMaker


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

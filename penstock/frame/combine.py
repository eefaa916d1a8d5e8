"""Verbs that combine the rows of two DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from penstock.errors import InvalidArgumentError
from penstock.expr.nodes import Cast, ColumnRef
from penstock.frame.lazy_table import LazyTable
from penstock.frame.rows import RowVerbs
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.types import supertype

SIDE = "__side"  # the column with the number of the input that a row came from


class CombineVerbs(RowVerbs):
    def concat(self, other: LazyTable) -> Self:
        """Append the rows of another DataFrame with the same columns.

        >>> ps.range(2).concat(ps.range(1)).to_pydict()
        {'id': [0, 1, 0]}
        """
        left, right = self._aligned(other)
        return self._with(nodes.Concat((left, right)))

    def union_all(self, other: LazyTable) -> Self:
        """Append the rows of another DataFrame, duplicates included; the same as ``concat``."""
        return self.concat(other)

    def union(self, other: LazyTable) -> Self:
        """Return the distinct rows that are in either DataFrame, in no particular order.

        >>> sorted(ps.range(2).union(ps.range(3)).to_pydict()["id"])
        [0, 1, 2]
        """
        return self._combined("union", other)

    def intersect(self, other: LazyTable) -> Self:
        """Return the distinct rows that are in both DataFrames, in no particular order.

        >>> sorted(ps.range(2).intersect(ps.range(3)).to_pydict()["id"])
        [0, 1]
        """
        return self._combined("intersect", other)

    def except_distinct(self, other: LazyTable) -> Self:
        """Return the distinct rows that the other DataFrame does not have, in no particular order.

        >>> ps.range(3).except_distinct(ps.range(2)).to_pydict()
        {'id': [2]}
        """
        return self._combined("except", other)

    def _aligned(self, other: LazyTable) -> tuple[Plan, Plan]:
        """Return both plans with equal columns; unchanged if a schema is unknown or the names differ."""
        if not isinstance(other, LazyTable):
            raise InvalidArgumentError(f"The other side must be a DataFrame; got {type(other).__name__}")
        left, right = self._plan.schema, other._plan.schema
        if left is None or right is None or set(left.names) != set(right.names):
            return self._plan, other._plan
        common = {name: supertype(left[name].dtype, right[name].dtype) for name in left.names}
        return _cast_to(self._plan, common, left.names), _cast_to(other._plan, common, left.names)

    def _combined(self, verb: Literal["union", "intersect", "except"], other: LazyTable) -> Self:
        sides = [self._with(plan).with_column(SIDE, number) for number, plan in enumerate(self._aligned(other))]
        both = nodes.Concat(tuple(side._plan for side in sides))
        return self._with(nodes.SetOperation(both, verb, SIDE))


def _cast_to(plan: Plan, dtypes: Mapping[str, Any], names: list[str]) -> Plan:
    schema = plan.schema
    assert schema is not None
    if names == schema.names and all(dtypes[name] in (None, schema[name].dtype) for name in names):
        return plan
    exprs = [
        ColumnRef(name) if dtypes[name] in (None, schema[name].dtype) else Cast(ColumnRef(name), dtypes[name])
        for name in names
    ]
    return nodes.Project(plan, tuple(exprs))

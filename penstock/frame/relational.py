"""Verbs that need all rows: order, deduplicate, join and combine them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, get_args

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.column import Expression, lit
from penstock.expr.nodes import Alias, Cast, ColumnRef, Expr, Star
from penstock.frame.columns import ColumnInput, to_node
from penstock.frame.lazy_table import LazyTable
from penstock.plan import nodes
from penstock.plan.nodes import Plan, check_columns
from penstock.plan.pair_relations import JoinMaker, Keys
from penstock.plan.relations import (
    DeferredRelation,
    Distinct,
    JoinKind,
    RelationMaker,
    SetOperation,
    Sort,
    SortKey,
)
from penstock.relational.query_makers import LEFT_NUMBER, NUMBER, RIGHT_NUMBER, UnionMaker, ZipMaker
from penstock.types import supertype
from penstock.udf.options import refusing_unknown

Columns = ColumnInput | Sequence[ColumnInput]


class RelationalVerbs(LazyTable):
    @refusing_unknown("sort")
    def sort(self, by: Columns, desc: bool | list[bool] = False, nulls_first: bool | list[bool] | None = None) -> Self:
        """Order the rows by one or more keys. Rows with equal keys come in no particular order.

        ``desc`` and ``nulls_first`` hold for all keys, or for each if given as lists. Null counts as larger than any
        value unless ``nulls_first`` says otherwise; NaN is larger than every other number.

        >>> ps.from_pydict({"a": [2, None, 3]}).sort("a", desc=True).to_pydict()
        {'a': [None, 3, 2]}
        """
        keys = nodes_of(by)
        if not keys:
            raise InvalidArgumentError("sort needs at least one key; use shuffle() for a random order")
        descending = _for_each("desc", desc, len(keys))
        first = descending if nulls_first is None else _for_each("nulls_first", nulls_first, len(keys))
        plan, names, extra = with_computed(self._plan, keys, "sort")
        order = tuple(map(SortKey, names, descending, first))
        return self._with(without(nodes.Relate((plan,), Sort(order)), extra))

    def distinct(self, *on: ColumnInput) -> Self:
        """Keep one row for each combination of values in these columns, or in all columns; in no particular order.

        >>> sorted(ps.from_pydict({"a": [1, 1, 2]}).distinct().to_pydict()["a"])
        [1, 2]
        """
        keys = nodes_of(on) if on else [ColumnRef(name) for name in self.columns]
        plan, names, extra = with_computed(self._plan, keys, "distinct")
        return self._with(without(nodes.Relate((plan,), Distinct(tuple(names))), extra))

    def unique(self, *by: ColumnInput) -> Self:
        """Keep one row for each combination of values; the same as ``distinct``."""
        return self.distinct(*by)

    def drop_duplicates(self, *subset: ColumnInput) -> Self:
        """Keep one row for each combination of values; the same as ``distinct``."""
        return self.distinct(*subset)

    @refusing_unknown("join")
    def join(
        self,
        other: LazyTable,
        on: Columns | None = None,
        left_on: Columns | None = None,
        right_on: Columns | None = None,
        how: JoinKind = "inner",
        prefix: str | None = None,
        suffix: str | None = None,
    ) -> Self:
        """Join the rows of two DataFrames that have equal keys, in no particular order. Null and NaN equal nothing.

        ``how`` is ``inner``, ``left``, ``right``, ``outer``, ``semi`` (left rows that have a match), ``anti`` (left
        rows that have none) or ``cross`` (all pairs, without keys). A column of the right side whose name the left side
        has gets the ``prefix`` ``right.``, unless you give another one or a ``suffix``. The right side is held in
        memory or on disk while the left side streams, so put the larger DataFrame on the left.

        >>> reviews = ps.from_pydict({"id": [1, 2], "stars": [5, 3]})
        >>> reviews.join(ps.from_pydict({"id": [1], "name": ["lamp"]}), on="id").to_pydict()
        {'id': [1], 'stars': [5], 'name': ['lamp']}
        """
        check_choice("join: how", how, get_args(JoinKind))
        if how == "cross" and any(each is not None for each in (on, left_on, right_on)):
            raise InvalidArgumentError("A cross join pairs all rows and takes no keys")
        left_keys, right_keys = ([], []) if how == "cross" else _key_pairs(on, left_on, right_on)
        left, left_names, left_extra = with_computed(self._plan, left_keys, "join")
        right, right_names, right_extra = with_computed(plan_of(other), right_keys, "join")
        maker = JoinMaker(how, Keys(left_names, left_extra), Keys(right_names, right_extra), prefix, suffix)
        return self._with(related(left, right, maker))

    def zip(self, other: LazyTable) -> Self:
        """Put the columns of another DataFrame beside these, row by row; both must have the same number of rows.

        A column of the other side whose name exists gets the suffix ``_1``, or the next number. All rows are
        held in memory or on disk.

        >>> ps.range(2).zip(ps.from_pydict({"id": [5, 6], "x": ["a", "b"]})).to_pydict()
        {'id': [0, 1], 'id_1': [5, 6], 'x': ['a', 'b']}
        """
        left, right = nodes.MonotonicId(self._plan, LEFT_NUMBER), nodes.MonotonicId(plan_of(other), RIGHT_NUMBER)
        return self._with(related(left, right, ZipMaker()))

    def concat(self, other: LazyTable) -> Self:
        """Append the rows of another DataFrame with the same columns.

        >>> ps.range(2).concat(ps.range(1)).to_pydict()
        {'id': [0, 1, 0]}
        """
        return self._with(nodes.Concat(_aligned(self._plan, plan_of(other))))

    def union_all(self, other: LazyTable) -> Self:
        """Append the rows of another DataFrame, duplicates included; the same as ``concat``."""
        return self.concat(other)

    def union(self, other: LazyTable) -> Self:
        """Return the distinct rows that are in either DataFrame, in no particular order.

        >>> sorted(ps.range(2).union(ps.range(3)).to_pydict()["id"])
        [0, 1, 2]
        """
        return self._combined("union", other)

    def union_by_name(self, other: LazyTable) -> Self:
        """Return the distinct rows of both DataFrames; columns that one side lacks are null there.

        >>> ps.range(1).union_by_name(ps.from_pydict({"x": [5]})).sort("id").to_pydict()
        {'id': [0, None], 'x': [None, 5]}
        """
        left, right = self._plan, plan_of(other)
        if left.schema is None or right.schema is None:
            return self._with(_deferred_union(left, right, is_all=False))
        return self.union_all_by_name(other).distinct()

    def union_all_by_name(self, other: LazyTable) -> Self:
        """Append the rows of another DataFrame; if one side lacks a column, its rows get null there.

        >>> ps.range(1).union_all_by_name(ps.from_pydict({"x": [5]})).to_pydict()
        {'id': [0, None], 'x': [None, 5]}
        """
        left, right = self._plan, plan_of(other)
        if left.schema is None or right.schema is None:
            return self._with(_deferred_union(left, right, is_all=True))
        names = list(dict.fromkeys([*left.schema.names, *right.schema.names]))
        sides = _aligned(_widened(left, names, right), _widened(right, names, left))
        return self._with(nodes.Concat(sides))

    def intersect(self, other: LazyTable) -> Self:
        """Return the distinct rows that are in both DataFrames, in no particular order.

        >>> sorted(ps.range(2).intersect(ps.range(3)).to_pydict()["id"])
        [0, 1]
        """
        return self._combined("intersect", other)

    def intersect_all(self, other: LazyTable) -> Self:
        """Return the rows that are in both DataFrames, each as often as in the one that has it less often.

        >>> twice = ps.from_pydict({"x": [1, 1, 2]})
        >>> twice.intersect_all(twice).sort("x").to_pydict()
        {'x': [1, 1, 2]}
        """
        return self._combined("intersect", other, is_all=True)

    def except_distinct(self, other: LazyTable) -> Self:
        """Return the distinct rows that the other DataFrame does not have, in no particular order.

        >>> ps.range(3).except_distinct(ps.range(2)).to_pydict()
        {'id': [2]}
        """
        return self._combined("except", other)

    def except_all(self, other: LazyTable) -> Self:
        """Return the rows that are left if each row of the other DataFrame removes one equal row.

        >>> ps.from_pydict({"x": [1, 1, 2]}).except_all(ps.from_pydict({"x": [1, 2]})).to_pydict()
        {'x': [1]}
        """
        return self._combined("except", other, is_all=True)

    def _combined(
        self, verb: Literal["union", "intersect", "except"], other: LazyTable, *, is_all: bool = False
    ) -> Self:
        return self._with(nodes.Relate(_aligned(self._plan, plan_of(other)), SetOperation(verb, is_all)))


# --- keys and columns, shared with the aggregates ---


def nodes_of(columns: Columns) -> list[Expr]:
    """Return one column, or several, as expressions."""
    given = [columns] if isinstance(columns, str | Expression) else columns
    if not isinstance(given, Iterable):
        raise InvalidArgumentError(f"A column is a name or an expression; got {columns!r}")
    return [to_node(column) for column in given]


def with_computed(plan: Plan, keys: Sequence[Expr], verb: str) -> tuple[Plan, tuple[str, ...], tuple[str, ...]]:
    """Return the plan with every key as a column, the names of the keys, and the names of the columns added."""
    if not keys:
        return plan, (), ()
    check_columns(plan.schema, tuple(key.column for key in keys if isinstance(key, ColumnRef)), verb)
    names = tuple(key.column if isinstance(key, ColumnRef) else f"__key_{number}" for number, key in enumerate(keys))
    added = [Alias(key, name) for key, name in zip(keys, names, strict=True) if not isinstance(key, ColumnRef)]
    if added:
        plan = nodes.Project(plan, (Star(), *added))
    return plan, names, tuple(column.alias for column in added)


def without(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan without these columns."""
    return nodes.Project(plan, (Star(tuple(names)),)) if names else plan


def _for_each(option: str, given: bool | list[bool], num_keys: int) -> list[bool]:
    if isinstance(given, str | Expression):
        raise InvalidArgumentError("sort takes several keys as a list, such as sort(['a', 'b']).")
    flags = given if isinstance(given, list) else [given] * num_keys
    if len(flags) != num_keys or not all(isinstance(flag, bool) for flag in flags):
        raise InvalidArgumentError(f"sort takes {option} as a bool, or a list of one bool for each key; got {given!r}")
    return flags


def plan_of(other: LazyTable) -> Plan:
    """Return the plan of the other side of a verb."""
    if not isinstance(other, LazyTable):
        raise InvalidArgumentError(f"The other side must be a DataFrame; got {type(other).__name__}")
    return other._plan


def _key_pairs(same: Columns | None, left: Columns | None, right: Columns | None) -> tuple[list[Expr], list[Expr]]:
    """Return the keys of the left and the right side, given for both or for each side."""
    if (same is None) == (left is None and right is None) or (left is None) != (right is None):
        raise InvalidArgumentError("join takes either on=, or both left_on= and right_on=")
    keys = nodes_of(left if same is None else same), nodes_of(right if same is None else same)  # type: ignore[arg-type]
    if len(keys[0]) != len(keys[1]) or not keys[0]:
        raise InvalidArgumentError(
            f"join needs as many columns in left_on as in right_on; got {len(keys[0])} and {len(keys[1])}"
        )
    return keys


def related(left: Plan, right: Plan, maker: RelationMaker, *, needs_order: bool = False) -> Plan:
    """Return the plan of a relation; make the relation now if the columns of both sides are known."""
    if left.schema is None or right.schema is None:
        return nodes.Relate((left, right), DeferredRelation(maker, needs_order=needs_order))
    return nodes.Relate((left, right), maker.made(left.schema, right.schema))


def _aligned(left: Plan, right: Plan) -> tuple[Plan, Plan]:
    """Return both plans with equal columns; unchanged if a schema is unknown or the names differ."""
    if left.schema is None or right.schema is None or set(left.schema.names) != set(right.schema.names):
        return left, right
    names = left.schema.names
    if right.schema.names != names:
        right = nodes.Project(right, tuple(ColumnRef(name) for name in names))
    assert right.schema is not None
    common = {name: supertype(left.schema[name].dtype, right.schema[name].dtype) for name in names}
    return _cast(left, common), _cast(right, common)


def _deferred_union(left: Plan, right: Plan, *, is_all: bool) -> Plan:
    """Return the plan of a union by name whose columns are known only while the query runs."""
    inputs = nodes.MonotonicId(left, NUMBER), nodes.MonotonicId(right, NUMBER)
    return nodes.Relate(inputs, DeferredRelation(UnionMaker(is_all)))


def _cast(plan: Plan, dtypes: Mapping[str, Any]) -> Plan:
    """Return the plan with these columns cast; None keeps a type."""
    schema = plan.schema
    assert schema is not None
    if all(dtype in (None, schema[name].dtype) for name, dtype in dtypes.items()):
        return plan
    exprs = [
        Cast(ColumnRef(f.name), dtypes[f.name]) if dtypes.get(f.name) not in (None, f.dtype) else ColumnRef(f.name)
        for f in schema
    ]
    return nodes.Project(plan, tuple(exprs))


def _widened(plan: Plan, names: Sequence[str], other: Plan) -> Plan:
    """Return the plan with all columns of ``names``. Add missing columns as nulls, with the type of the other side."""
    schema, types = plan.schema, other.schema
    assert schema is not None
    assert types is not None
    return nodes.Project(
        plan,
        tuple(
            ColumnRef(name) if name in schema else Alias(Cast(lit(None)._node, types[name].dtype), name)
            for name in names
        ),
    )

"""Verbs that put rows of two DataFrames side by side: by position, or by the nearest time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, get_args

from penstock.errors import InvalidArgumentError, TypeMismatchError, check_choice
from penstock.expr.nodes import Expr
from penstock.frame.aggregate import AggregateVerbs
from penstock.frame.columns import ColumnInput
from penstock.frame.lazy_table import LazyTable
from penstock.frame.relational import (
    Columns,
    join_columns,
    names_of,
    nodes_of,
    plan_of,
    with_common_keys,
    with_computed,
)
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.plan.relations import Join, SqlQuery
from penstock.relational.sql import quoted
from penstock.types import Field, Schema

Strategy = Literal["backward", "forward", "nearest"]


class PairVerbs(AggregateVerbs):
    def zip(self, other: LazyTable) -> Self:
        """Put the columns of another DataFrame beside these, row by row; both must have the same number of rows.

        A column of the other side whose name exists gets the suffix ``_1``, or the next number. All rows are
        held in memory or on disk.

        >>> ps.range(2).zip(ps.from_pydict({"id": [5, 6], "x": ["a", "b"]})).to_pydict()
        {'id': [0, 1], 'id_1': [5, 6], 'x': ['a', 'b']}
        """
        left, right = nodes.MonotonicId(self._plan, "__left"), nodes.MonotonicId(plan_of(other), "__right")
        names, others = names_of(self._plan, "left"), names_of(plan_of(other), "right")
        taken = list(names)
        for name in others:
            candidates = [name, *(f"{name}_{number}" for number in range(1, len(taken) + 2))]
            taken.append(next(each for each in candidates if each not in taken))
        columns: list[tuple[Literal[0, 1, 2], str, str]] = [(0, name, name) for name in ("__left", *names)]
        columns += [
            (1, name, new) for name, new in zip(("__right", *others), ("__right", *taken[len(names) :]), strict=True)
        ]
        joined = nodes.Relate((left, right), Join("outer", ("__left",), ("__right",), tuple(columns)))
        text = (
            f"select {', '.join(map(quoted, taken))} from z where case when __left is null or __right is null then "
            "error('the DataFrames have different numbers of rows') else true end order by __left"
        )
        output = Schema([_schema(joined)[name] for name in taken])
        return self._with(nodes.Relate((joined,), SqlQuery(text, ("z",), output, True, "zip")))

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
        left_keys, right_keys = _key_pairs("by", by, left_by, right_by) if _any(by, left_by, right_by) else ([], [])
        left_time, right_time = _key_pairs("on", on, left_on, right_on)
        if len(left_time) != 1:
            raise InvalidArgumentError("join_asof takes one column in on=, and those that must be equal in by=")
        left, left_names, left_extra = with_computed(self._plan, [*left_keys, *left_time], "join_asof")
        right, right_names, right_extra = with_computed(plan_of(other), [*right_keys, *right_time], "join_asof")
        shown = [name for name in names_of(left, "left") if name not in left_extra]
        others = [name for name in names_of(right, "right") if name not in right_extra]
        pairs = dict(zip(right_names, left_names, strict=True))
        columns = join_columns(shown, others, pairs, "asof", prefix, suffix)
        left, left_on_names, right, right_on_names = with_common_keys(left, left_names, right, right_names)
        schemas = _schema(left), _schema(right)
        _check_asof(schemas, left_on_names, right_on_names, strategy)
        text = _asof_sql(columns, schemas[0], left_on_names, right_on_names, strategy)
        output = Schema([Field(name, schemas[side == 1][column].dtype) for side, column, name in columns])
        return self._with(
            nodes.Relate((left, right), SqlQuery(text, ("l", "r"), output, True, f"{strategy} asof join"))
        )


def _schema(plan: Plan) -> Schema:
    assert plan.schema is not None
    return plan.schema


def _any(*given: Any) -> bool:
    return any(each is not None for each in given)


def _key_pairs(option: str, same: Any, left: Any, right: Any) -> tuple[list[Expr], list[Expr]]:
    if _any(same) == _any(left, right) or _any(left) != _any(right):
        raise InvalidArgumentError(f"join_asof takes either {option}=, or both left_{option}= and right_{option}=")
    pairs = nodes_of(same if left is None else left), nodes_of(same if right is None else right)
    if len(pairs[0]) != len(pairs[1]):
        raise InvalidArgumentError(
            f"join_asof needs as many columns in left_{option} as in right_{option}; "
            f"got {len(pairs[0])} and {len(pairs[1])}"
        )
    return pairs


def _check_asof(
    schemas: tuple[Schema, Schema], left_names: Sequence[str], right_names: Sequence[str], strategy: str
) -> None:
    for name, other in zip(left_names, right_names, strict=True):
        if schemas[0][name].dtype != schemas[1][other].dtype:
            raise TypeMismatchError(
                f"join_asof: {name!r} is {schemas[0][name].dtype} on the left, but {other!r} is "
                f"{schemas[1][other].dtype} on the right; cast one of them"
            )
    dtype = schemas[0][left_names[-1]].dtype
    if not dtype.is_comparable() or (strategy == "nearest" and not (dtype.is_numeric() or dtype.is_temporal())):
        needed = "numbers or times" if strategy == "nearest" else "values that can be compared"
        raise TypeMismatchError(f"join_asof needs {needed} in on=, but {left_names[-1]!r} is {dtype}")


def _asof_sql(
    columns: Sequence[tuple[int, str, str]],
    schema: Schema,
    left_names: Sequence[str],
    right_names: Sequence[str],
    strategy: Strategy,
) -> str:
    """Return the query of an asof join. ``nearest`` joins both ways and picks a side for each row."""

    def value(table: str, name: str, key: str) -> str:
        text = f"{table}.{quoted(name)}"
        return f"nullif({text}, 'nan')" if schema[key].dtype.is_float() else text

    def matched(table: str, comparison: str) -> str:
        signs = ["="] * (len(left_names) - 1) + [comparison]
        terms = [
            f"{value('l', name, name)} {sign} {value(table, other, name)}"
            for name, other, sign in zip(left_names, right_names, signs, strict=True)
        ]
        return f"asof left join r as {table} on {' and '.join(terms)}"

    here, there = quoted(left_names[-1]), quoted(right_names[-1])
    is_before = f"f.{there} is null or l.{here} - b.{there} < f.{there} - l.{here}"

    def output(side: int, column: str, name: str) -> str:
        if side != 1:
            text = f"l.{quoted(column)}"
        elif strategy == "nearest":
            text = f"case when {is_before} then b.{quoted(column)} else f.{quoted(column)} end"
        else:
            text = f"{strategy[0]}.{quoted(column)}"
        return f"{text} as {quoted(name)}"

    joins = {"b": matched("b", ">="), "f": matched("f", "<=")}
    used = " ".join(
        join for table, join in joins.items() if strategy in ("nearest", f"{table}ackward", f"{table}orward")
    )
    return f"select {', '.join(output(*column) for column in columns)} from l {used}"

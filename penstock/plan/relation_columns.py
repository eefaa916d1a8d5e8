"""The columns that relations read and pass on, for the rules that move filters and select lists below them."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import replace

from penstock.plan.cascade_relations import (
    ANSWER,
    HIGH,
    IS_ASKED,
    IS_KNOWN,
    IS_SCORED,
    LABEL,
    LOW,
    NUMBER,
    PROBE,
    SCORE,
    VECTOR,
    Calibrate,
    DrawSample,
    Route,
    SizeSample,
)
from penstock.plan.relations import (
    AddWindows,
    Aggregate,
    DeferredRelation,
    Distinct,
    FileAggregate,
    GroupRows,
    Join,
    Relation,
    SetOperation,
    Sort,
    SqlQuery,
)
from penstock.plan.similarity import DropNear, DropSimilar, Nearest
from penstock.types import Schema


def filtered_sides(relation: Relation, columns: Set[str]) -> dict[int, dict[str, str]]:
    """Return the inputs that a filter on output ``columns`` may move to, each with the names of the columns there.

    Empty if the filter must stay above.
    """
    same = {0: {name: name for name in columns}}
    match relation:
        case Sort(num_rows=None):
            return same
        case Distinct(names) if columns <= set(names):
            return same
        case Aggregate(keys) if columns <= set(keys) and keys:
            return same
        case AddWindows(windows) if all(columns <= set(window.partition_by) for window in windows):
            return same
        case SetOperation(is_all=False):
            return {**same, 1: same[0]}
        case Join():
            return _joined_sides(relation, columns)
        case Nearest(columns=outputs):  # a query does not change the neighbours of the others
            of_queries = {name: column for side, column, name in outputs if side == 1 and name in columns}
            return {1: of_queries} if len(of_queries) == len(columns) else {}
        case _:
            return {}


def _joined_sides(join: Join, columns: Set[str]) -> dict[int, dict[str, str]]:
    """Return the sides of a join that have all ``columns`` and whose rows may be dropped before the join."""
    merged = {name for name in join.left_on if name in join.right_on}
    can_filter = {0: join.how in ("inner", "left", "semi", "anti", "cross"), 1: join.how in ("inner", "right", "cross")}
    sides = {}
    for side in (0, 1):
        names = {
            name: column
            for origin, column, name in join.columns
            if name in columns and (origin == side or (column in merged and join.how == "inner" and name == column))
        }
        if can_filter[side] and len(names) == len(columns):
            sides[side] = names
    return sides


def narrowed(
    relation: Relation, needed: Collection[str], inputs: Sequence[Schema | None]
) -> tuple[Relation, list[set[str]]]:
    """Return a relation with the ``needed`` columns and few others, and the columns that it reads from each input."""
    names = set(needed)
    match relation:
        case Sort(keys):
            return relation, [names | {key.column for key in keys}]
        case Distinct(columns):
            return relation, [names | set(columns)]
        case Aggregate(keys, columns):
            kept = tuple(c for c in columns if c.name in names) or (() if keys else columns[:1])
            return replace(relation, columns=kept), [set(keys).union(*(column.inputs for column in kept))]
        case AddWindows(columns) if windows := tuple(c for c in columns if c.name in names):
            read = [{*w.inputs, *w.partition_by, *(key.column for key in w.order_by)} for w in windows]
            return replace(relation, columns=windows), [(names - {window.name for window in columns}).union(*read)]
        case Join(columns=columns):
            outputs = tuple(column for column in columns if column[2] in names)
            left = {column for side, column, _ in outputs if side != 1} | set(relation.left_on)
            right = {column for side, column, _ in outputs if side == 1} | set(relation.right_on)
            return replace(relation, columns=outputs), [left, right]
        case Nearest(on, query_on):
            found = tuple(output for output in relation.columns if output[2] in names)
            sides = [{column for side, column, _ in found if side == number} for number in (0, 1)]
            return replace(relation, columns=found), [sides[0] | {on}, sides[1] | {query_on}]
        case DropNear(on=key) | DropSimilar(signature=key):
            return relation, [names | {key}]
        case DrawSample(columns=read):
            return relation, [(names - {NUMBER, PROBE}) | set(read)]
        case SizeSample():
            return relation, [names | {PROBE, LABEL}]
        case Calibrate(has_vector=has_vector):
            own = {NUMBER, PROBE, LABEL, SCORE} | ({VECTOR} if has_vector else set())
            return relation, [(names - {IS_KNOWN, IS_SCORED, LOW, HIGH}) | own]
        case Route():
            return relation, [(names - {IS_ASKED, ANSWER}) | {LABEL, SCORE, IS_KNOWN, IS_SCORED, LOW, HIGH}]
        case SetOperation() | SqlQuery() | FileAggregate() | AddWindows() | GroupRows() | DeferredRelation():
            return relation, [set(schema.names) if schema else set() for schema in inputs]

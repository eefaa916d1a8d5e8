"""Make the relations of two inputs from their columns: in the plan if these are known, else while the query runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from penstock.errors import ColumnNotFoundError, InvalidArgumentError, TypeMismatchError
from penstock.plan.relations import Join, JoinKind
from penstock.plan.similarity import Metric, Nearest
from penstock.types import Schema
from penstock.types.frozen import frozen

PairColumns = tuple[tuple[Literal[0, 1, 2], str, str], ...]


@frozen
class Keys:
    """The columns of an input that are compared; some were added for the comparison and are not in the result."""

    names: tuple[str, ...]
    added: tuple[str, ...]

    def shown(self, schema: Schema, verb: str) -> list[str]:
        """Return the columns of the input that are in the result."""
        for name in self.names:
            if name not in schema:
                raise ColumnNotFoundError(name, [each for each in schema.names if each not in self.added], verb)
        return [name for name in schema.names if name not in self.added]


@frozen
class JoinMaker:
    """Makes a join."""

    how: JoinKind
    left: Keys
    right: Keys
    prefix: str | None
    suffix: str | None

    def made(self, *inputs: Schema) -> Join:
        left, right = inputs
        for name, other in zip(self.left.names, self.right.names, strict=True):
            if name in left and other in right:
                _check_keys(left, name, right, other)
        return Join(self.how, self.left.names, self.right.names, self.columns(left, right))

    def columns(self, left: Schema, right: Schema) -> PairColumns:
        keys = dict(zip(self.right.names, self.left.names, strict=True))
        shown = self.left.shown(left, "join"), self.right.shown(right, "join")
        return join_columns(*shown, keys, self.how, self.prefix, self.suffix)

    def columns_read(self, side: int) -> tuple[str, ...]:
        return (self.left, self.right)[side].names

    def __str__(self) -> str:
        return str(Join(self.how, self.left.names, self.right.names, ()))


@frozen
class NearestMaker:
    """Makes a search for the nearest rows."""

    left: Keys
    queries: Keys
    k: int
    metric: Metric

    def made(self, *inputs: Schema) -> Nearest:
        left, queries = inputs
        shown = self.left.shown(left, "nearest"), self.queries.shown(queries, "nearest")
        columns = join_columns(*shown, {}, "inner", None, None)
        relation = self._of(columns)
        for name in (relation.measure, "rank"):
            if any(name == column[2] for column in columns):
                raise InvalidArgumentError(f"nearest adds the column {name!r}, which is there already; rename it first")
        return relation

    def columns_read(self, side: int) -> tuple[str, ...]:
        return (self.left, self.queries)[side].names

    def __str__(self) -> str:
        return str(self._of(()))

    def _of(self, columns: PairColumns) -> Nearest:
        return Nearest(self.left.names[0], self.queries.names[0], self.k, self.metric, columns)


def _check_keys(left: Schema, name: str, right: Schema, other: str) -> None:
    """Refuse keys of two temporal types, which DuckDB would compare wrongly.

    It has no type for times in nanoseconds, so it gets whole numbers for them.
    """
    dtypes = left[name].dtype, right[other].dtype
    if dtypes[0] != dtypes[1] and all(dtype.is_temporal() for dtype in dtypes):
        raise TypeMismatchError(
            f"join: {name!r} is {dtypes[0]} on the left, but {other!r} is {dtypes[1]} on the right; cast one of them"
        )


def join_columns(
    left: Sequence[str], right: Sequence[str], keys: Mapping[str, str], how: str, prefix: str | None, suffix: str | None
) -> PairColumns:
    """Return the output columns of a join. Keys with the same name on both sides are one column, and come first."""
    merged = {name for name, other in keys.items() if name == other}
    sides: dict[str, Literal[0, 1, 2]] = {"outer": 2, "right": 1}
    if how in ("semi", "anti"):
        return tuple((0, name, name) for name in left)
    columns: list[tuple[Literal[0, 1, 2], str, str]] = [
        (sides.get(how, 0) if name in merged else 0, name, name)
        for name in sorted(left, key=lambda name: name not in merged)
    ]
    others = [name for name in right if name not in merged]
    taken = {*left, *others}
    for name in others:
        new = name
        while new in left or (new != name and new in taken):
            new = f"{prefix or ('' if suffix else 'right.')}{new}{suffix or ''}"
        taken.add(new)
        columns.append((1, name, new))
    return tuple(columns)

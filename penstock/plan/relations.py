"""Relations: operations on whole tables, as frozen data. ``relational/`` runs them, most of them on DuckDB.

The planner computes keys and inputs as plain columns first, so a relation has column names and no expressions.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.aggregate_functions import WINDOW_FUNCTIONS
from penstock.plan.cascade_relations import CascadeRelation
from penstock.plan.similarity import DropNear, DropSimilar, Nearest
from penstock.types import DataType, Field, Schema, supertype
from penstock.types.frozen import frozen

JoinKind = Literal["inner", "left", "right", "outer", "semi", "anti", "cross"]


@frozen
class SortKey:
    """One key of an order; null counts as larger than every value unless ``is_nulls_first`` says otherwise."""

    column: str
    is_descending: bool = False
    is_nulls_first: bool = False

    def __str__(self) -> str:
        nulls = (
            "" if self.is_nulls_first == self.is_descending else f" nulls {'first' if self.is_nulls_first else 'last'}"
        )
        return f"{self.column}{' desc' if self.is_descending else ''}{nulls}"


@frozen
class Sort:
    """Rows in the order of the keys, without keys in a random order; with ``num_rows`` only the first rows."""

    keys: tuple[SortKey, ...]
    num_rows: int | None = None
    needs_order: ClassVar[bool] = False  # the result depends on the order of the input

    def schema(self, *inputs: Schema) -> Schema:
        for key in self.keys:
            dtype = inputs[0][key.column].dtype
            if dtype.is_special() or dtype.is_map():
                raise TypeMismatchError(f"sort needs keys that can be compared, but {key.column!r} is {dtype}")
        return inputs[0]

    def __str__(self) -> str:
        top = "" if self.num_rows is None else f"; first {self.num_rows}"
        return f"sort {', '.join(map(str, self.keys))}{top}" if self.keys else f"shuffle{top}"


@frozen
class Distinct:
    """One row for each combination of values of ``columns``; null equals null, and NaN equals NaN."""

    columns: tuple[str, ...]
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        return inputs[0]

    def __str__(self) -> str:
        return f"distinct {', '.join(self.columns)}"


@frozen
class AggregateColumn:
    """A column of an aggregate: the function ``function`` of AGGREGATES over input columns."""

    name: str
    function: str
    inputs: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.inputs)}) as {self.name}"


@frozen
class Aggregate:
    """A row for each combination of keys; without keys, one row."""

    keys: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        (schema,) = inputs
        return Schema([*(schema[key] for key in self.keys), *(aggregate_field(c, schema) for c in self.columns)])

    def __str__(self) -> str:
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"aggregate {', '.join(map(str, self.columns))}{keys}"


@frozen
class FileAggregate:
    """An aggregate over rows that DuckDB reads from files by itself, with the query ``rows``. Its input has no rows."""

    aggregate: Aggregate
    rows: str
    paths: tuple[str, ...]
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        return self.aggregate.schema(*inputs)

    def __str__(self) -> str:
        return str(self.aggregate)


GROUP = "rows"  # the column of GroupRows


@frozen
class GroupRows:
    """One row for each combination of keys, with the list of its rows, ordered by the column ``number``, which is
    dropped.

    A group is then one value: it is never split, and groups are cut into tasks like rows.
    """

    keys: tuple[str, ...]
    number: str
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        row = DataType.struct({field.name: field.dtype for field in inputs[0] if field.name != self.number})
        return Schema([Field(GROUP, DataType.list(row))])

    def __str__(self) -> str:
        return f"group rows by {', '.join(self.keys)}"


@frozen
class WindowColumn:
    """A column of a window: a function of WINDOW_FUNCTIONS over the rows of a partition, in an order."""

    name: str
    function: str
    inputs: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]
    partition_by: tuple[str, ...]
    order_by: tuple[SortKey, ...]
    frame: str | None
    min_periods: int

    def __str__(self) -> str:
        partition = f" partition by {', '.join(self.partition_by)}" if self.partition_by else ""
        order = f" order by {', '.join(map(str, self.order_by))}" if self.order_by else ""
        return f"{self.function}({', '.join(self.inputs)}) over ({(partition + order).strip()}) as {self.name}"


@frozen
class AddWindows:
    """The rows of the input with more columns, in no particular order."""

    columns: tuple[WindowColumn, ...]
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        (schema,) = inputs
        return Schema([*schema, *(aggregate_field(column, schema) for column in self.columns)])

    def __str__(self) -> str:
        return f"window {', '.join(map(str, self.columns))}"


@frozen
class Join:
    """Pairs of rows with equal keys. Null and NaN equal nothing.

    ``columns`` lists the output: the side (0 left, 1 right, 2 the first that is not null), the column there, its name.
    """

    how: JoinKind
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: tuple[tuple[Literal[0, 1, 2], str, str], ...]
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        left, right = inputs
        for name, other in zip(self.left_on, self.right_on, strict=True):
            if supertype(left[name].dtype, right[other].dtype) is None:
                raise TypeMismatchError(
                    f"join: {name!r} is {left[name].dtype} on the left, but {other!r} is {right[other].dtype} on the "
                    "right; cast one of them"
                )
        partners = dict(zip(self.left_on, self.right_on, strict=True))

        def dtype(side: int, column: str) -> DataType:
            own = (right if side == 1 else left)[column].dtype
            return own if side < 2 else supertype(own, right[partners[column]].dtype) or own

        return Schema([Field(name, dtype(side, column)) for side, column, name in self.columns])

    def __str__(self) -> str:
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(self.left_on, self.right_on, strict=True))
        return f"{self.how} join{on and ' on '}{on}"


@frozen
class SetOperation:
    """The rows in either input, in both, or only in the left one; distinct unless ``is_all``. Null equals null."""

    verb: Literal["union", "intersect", "except"]
    is_all: bool = False
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        left, right = inputs
        if set(left.names) != set(right.names):
            check_same_columns(self.verb, left, right)
        return Schema([_common_field(self.verb, field, right[field.name]) for field in left])

    def __str__(self) -> str:
        return f"{self.verb}{' all' if self.is_all else ''}"


@frozen
class SqlQuery:
    """A query over the tables ``names``, one for each input. Only the first input streams, if ``is_streamed``.

    ``title`` stands for the text in plans and errors. Days and hours are in ``timezone``.
    """

    text: str
    names: tuple[str, ...]
    output: Schema
    is_streamed: bool
    title: str = ""
    timezone: str | None = None
    needs_order: ClassVar[bool] = False

    def schema(self, *inputs: Schema) -> Schema:
        return self.output

    def __str__(self) -> str:
        return self.title or f"sql {self.text}"


class RelationMaker(Protocol):
    """Makes a relation of the columns of its inputs."""

    def made(self, *inputs: Schema) -> SqlQuery | Join | Nearest: ...

    def columns_read(self, side: int) -> tuple[str, ...]:
        """Return the columns of an input that the user has named."""

    def __str__(self) -> str: ...


@frozen
class DeferredRelation:
    """A relation that is made while the query runs, once the columns of its inputs are known."""

    maker: RelationMaker
    names: tuple[str, ...] = ("input0", "input1")  # of the inputs in its SQL
    is_streamed: bool = True  # the first input; see SqlQuery
    needs_order: bool = False

    def schema(self, *inputs: Schema) -> Schema:
        return self.maker.made(*inputs).schema(*inputs)

    def __str__(self) -> str:
        return str(self.maker)


# These have a form in SQL.
TableRelation = Sort | Distinct | Aggregate | FileAggregate | AddWindows | Join | SetOperation | SqlQuery
Relation = TableRelation | GroupRows | Nearest | DropNear | DropSimilar | CascadeRelation | DeferredRelation


def check_same_columns(verb: str, left: Schema, right: Schema) -> None:
    """Raise an error unless both sides of a verb have the same columns with the same types."""
    if left.names != right.names:
        raise InvalidArgumentError(
            f"{verb} needs the same columns on both sides: {', '.join(left.names)} against {', '.join(right.names)}"
        )
    for field, other in zip(left, right, strict=True):
        if field.dtype.arrow != other.dtype.arrow:
            raise TypeMismatchError(
                f"{verb}: column {field.name!r} is {field.dtype} on one side and {other.dtype} on the other; cast one"
            )


def _common_field(verb: str, field: Field, other: Field) -> Field:
    common = supertype(field.dtype, other.dtype)
    if common is None:
        raise TypeMismatchError(
            f"{verb}: column {field.name!r} is {field.dtype} on one side and {other.dtype} on the other; cast one"
        )
    return Field(field.name, common)


def aggregate_field(column: AggregateColumn | WindowColumn, schema: Schema) -> Field:
    """Return the name and the type of a column of an aggregate or a window."""
    dtypes: list[DataType] = [schema[name].dtype for name in column.inputs]
    try:
        return Field(column.name, WINDOW_FUNCTIONS[column.function].resolve(*dtypes, **dict(column.options)))
    except TypeMismatchError as exc:
        raise TypeMismatchError(f"{column.function}({', '.join(column.inputs)}): {exc}") from None

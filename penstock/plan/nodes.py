"""Logical plan nodes: frozen data, validated when built, so that an error points at the user's own line.

``schema`` is None after ``map_batches`` and similar verbs, whose columns are only known when they run. Checks that
need the schema then happen on the first batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import field, fields, replace
from typing import Any, ClassVar, TypeVar

from penstock.errors import ColumnNotFoundError, InvalidArgumentError, TypeMismatchError
from penstock.expr.expression_text import describe
from penstock.expr.nodes import ColumnRef, Expr, UdfCall, has_udf, walk
from penstock.expr.resolve import dtype_of, expand, schema_of
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.relations import Relation, check_same_columns
from penstock.protocols import NamedSink, Sink, Source
from penstock.types import DataType, Field, Schema, supertype
from penstock.types.frozen import frozen

Result = TypeVar("Result")


@frozen
class Plan:
    """One node of a plan."""

    schema: Schema | None = field(init=False)
    line: str | None = field(default=None, kw_only=True)  # the user's line, if errors need it
    is_row_preserving: ClassVar[bool] = False  # row i of the output comes from row i of the input alone

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self._output_schema())

    def _output_schema(self) -> Schema | None:
        raise AssertionError(f"{type(self).__name__} has no _output_schema")

    @property
    def children(self) -> tuple[Plan, ...]:
        return ()

    def with_children(self, children: tuple[Plan, ...]) -> Plan:
        """Return the node over other children."""
        return self


@frozen
class Unary(Plan):
    """A node over one child."""

    child: Plan

    @property
    def children(self) -> tuple[Plan, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Plan, ...]) -> Plan:
        return self.with_child(children[0])

    def with_child(self, child: Plan) -> Plan:
        return self if child is self.child else replace(self, child=child)

    def _output_schema(self) -> Schema | None:
        return self.child.schema

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a list of nodes, because pickle is recursive and a plan may be deep."""
        chain: list[Plan] = [self]
        while isinstance(chain[-1], Unary):
            chain.append(chain[-1].child)
        first = chain.pop()
        return _rebuilt, (first, [(type(node), _own_fields(node)) for node in reversed(chain)])


def _own_fields(node: Plan) -> dict[str, Any]:
    return {each.name: getattr(node, each.name) for each in fields(node) if each.name != "child"}


def _rebuilt(plan: Plan, parts: list[tuple[type[Unary], dict[str, Any]]]) -> Plan:
    for kind, state in parts:
        node = object.__new__(kind)
        for name, value in {**state, "child": plan}.items():
            object.__setattr__(node, name, value)
        plan = node
    return plan


@frozen
class Scan(Plan):
    """Rows of a source. The optimizer pushes ``columns``, ``predicate`` and ``limit`` down into it."""

    source: Source
    columns: tuple[str, ...] | None = None
    predicate: Expr | None = None
    limit: int | None = None

    def _output_schema(self) -> Schema | None:
        full = self.source.schema()
        return full if self.columns is None else full.select(self.columns)


@frozen
class Project(Unary):
    """A select list. Stars and unnests are expanded when it is built, if the schema is known."""

    exprs: tuple[Expr, ...]
    has_udf: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exprs", expand(self.exprs, self.child.schema))
        object.__setattr__(self, "has_udf", any(has_udf(expr) for expr in self.exprs))
        # A bare super() does not work in a dataclass with slots, which is a new class object.
        Plan.__post_init__(self)

    def _output_schema(self) -> Schema | None:
        return None if self.child.schema is None else schema_of(self.exprs, self.child.schema)

    @property
    def is_row_preserving(self) -> bool:  # type: ignore[override]
        computed = (expr for expr in self.exprs if not isinstance(expr, ColumnRef))
        return not any(
            isinstance(node, UdfCall) and node.udf.target.is_generator for expr in computed for node in walk(expr)
        )

    def over(self, child: Plan, exprs: tuple[Expr, ...]) -> Project:
        """Return a node that computes the same columns from another child; their types are not derived again."""
        other = copy.copy(self)
        object.__setattr__(other, "child", child)
        object.__setattr__(other, "exprs", exprs)
        return other


@frozen
class Filter(Unary):
    """The rows for which the predicate is true; false and null are dropped."""

    predicate: Expr

    def _output_schema(self) -> Schema | None:
        if self.child.schema is not None:
            dtype = dtype_of(self.predicate, self.child.schema)
            if not (dtype.is_boolean() or dtype.is_null()):
                raise TypeMismatchError(
                    f"filter needs a bool expression, but {describe(self.predicate)} is {dtype}; "
                    "compare it with something"
                )
        return self.child.schema


@frozen
class UdfProject(Unary):
    """The columns in ``keep`` (None: all), and ``column`` from one UDF call. A generator repeats the others."""

    call: UdfCall
    column: str
    keep: tuple[str, ...] | None = None

    def _output_schema(self) -> Schema | None:
        if self.child.schema is None:
            return None
        dtype_of(self.call, self.child.schema)
        kept = self.child.schema if self.keep is None else self.child.schema.select(self.keep)
        others = [f for f in kept if f.name != self.column]
        return Schema([*others, Field(self.column, self.call.udf.return_dtype)])

    @property
    def is_row_preserving(self) -> bool:  # type: ignore[override]
        return not self.call.udf.target.is_generator


@frozen
class MapBatches(Unary):
    """A Python function over batches or rows that may change columns and row count."""

    spec: BatchSpec

    def _output_schema(self) -> Schema | None:
        return self.child.schema if self.spec.verb == "filter" else None


@frozen
class Limit(Unary):
    """``num_rows`` rows (None: all the rest) after the first ``offset``, in input order."""

    num_rows: int | None
    offset: int = 0


@frozen
class Sample(Unary):
    """A share of the rows, drawn from each run of SAMPLED_ROWS rows; with a seed, the same rows every time."""

    fraction: float
    seed: int | None = None
    is_with_replacement: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise InvalidArgumentError(f"sample needs a fraction from 0 to 1; got {self.fraction!r}")
        Plan.__post_init__(self)


@frozen
class Explode(Unary):
    """A row for each element of the list ``columns``; null and empty lists give one row of null."""

    columns: tuple[str, ...]

    def _output_schema(self) -> Schema | None:
        if self.child.schema is None:
            return None
        inner: dict[str, DataType] = {}
        for name in self.columns:
            dtype = self.child.schema[name].dtype
            if not (dtype.is_list() or dtype.is_null()):
                raise TypeMismatchError(f"explode needs a list column, but {name!r} is {dtype}")
            inner[name] = dtype if dtype.is_null() else dtype.inner
        return Schema([Field(f.name, inner.get(f.name, f.dtype)) for f in self.child.schema])


@frozen
class Unpivot(Unary):
    """A row for each of ``values``, with its name and its value, beside the ``ids``."""

    ids: tuple[str, ...]
    values: tuple[str, ...]
    variable_name: str = "variable"
    value_name: str = "value"

    def _output_schema(self) -> Schema | None:
        schema = self.child.schema
        if schema is None:
            return None
        if not self.values:
            raise InvalidArgumentError("unpivot needs at least one value column")
        common = schema[self.values[0]].dtype
        for name in self.values[1:]:
            joined = supertype(common, schema[name].dtype)
            if joined is None:
                raise TypeMismatchError(
                    f"unpivot needs value columns of one type, but {name!r} is {schema[name].dtype} "
                    f"and {self.values[0]!r} is {common}; cast them first"
                )
            common = joined
        added = [Field(self.variable_name, DataType.string()), Field(self.value_name, common)]
        return Schema([*(schema[name] for name in self.ids), *added])


@frozen
class MonotonicId(Unary):
    """Every row with its number, from 0, in input order, as the first column."""

    column: str
    is_row_preserving: ClassVar[bool] = True

    def _output_schema(self) -> Schema | None:
        if self.child.schema is None:
            return None
        if self.column in self.child.schema:
            raise InvalidArgumentError(f"Column {self.column!r} exists already; choose another column_name")
        return Schema([Field(self.column, DataType.uint64()), *self.child.schema])


@frozen
class IntoBatches(Unary):
    """The same rows in batches of exactly ``size`` rows; only the last may be smaller."""

    size: int
    is_row_preserving: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("into_batches", self.size)
        Plan.__post_init__(self)


@frozen
class Repartition(Unary):
    """The same rows in ``num_partitions`` batches of equal size. Holds all rows until the last one comes."""

    num_partitions: int
    is_row_preserving: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("repartition", self.num_partitions)
        Plan.__post_init__(self)


@frozen
class Nary(Plan):
    """A node over several children."""

    inputs: tuple[Plan, ...]

    @property
    def children(self) -> tuple[Plan, ...]:
        return self.inputs

    def with_children(self, children: tuple[Plan, ...]) -> Plan:
        return replace(self, inputs=children)


@frozen
class Concat(Nary):
    """The rows of the inputs, one after the other. Known schemas must be equal."""

    def _output_schema(self) -> Schema | None:
        first = self.inputs[0].schema
        for other in (plan.schema for plan in self.inputs[1:]):
            if first is None or other is None:
                return None
            check_same_columns("concat", first, other)
        return first


@frozen
class Relate(Nary):
    """A relation over all rows of its inputs."""

    relation: Relation

    def _output_schema(self) -> Schema | None:
        known = [plan.schema for plan in self.inputs if plan.schema is not None]
        return self.relation.schema(*known) if len(known) == len(self.inputs) else None


@frozen
class Write(Unary):
    """Rows into a sink. The output is a record for each piece written."""

    sink: Sink

    def _output_schema(self) -> Schema | None:
        return None


def sink_name(sink: Sink) -> str:
    """Return the name of a sink in plans and errors: its ``name``, or the name of its class."""
    return sink.name if isinstance(sink, NamedSink) else type(sink).__name__


def check_count(verb: str, value: Any) -> None:
    """Raise an error unless a value is a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"{verb} needs a whole number of 1 or more; got {value!r}")


def check_columns(schema: Schema | None, names: tuple[str, ...], verb: str) -> None:
    """Raise an error that names the verb if one of ``names`` is not a column."""
    for name in names:
        if schema is not None and name not in schema:
            raise ColumnNotFoundError(name, schema.names, verb)


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """Yield the node and all below it, parents first."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


def called_functions(plan: Plan) -> Iterator[UdfSpec | BatchSpec]:
    for node in walk_plan(plan):
        match node:
            case Project(exprs=exprs):
                yield from (spec for expr in exprs for spec in _functions_of(expr))
            case Filter(predicate=predicate):
                yield from _functions_of(predicate)
            case UdfProject(call=call):
                yield from _functions_of(call)
            case MapBatches(spec=spec):
                yield spec


def _functions_of(expr: Expr) -> Iterator[UdfSpec]:
    """Yield the functions that an expression calls. An ``ask`` with a cheap judge yields the functions that it expands
    to.
    """
    for part in walk(expr):
        if isinstance(part, UdfCall):
            cascade = part.udf.builtin.cascade
            inner = [part.udf] if cascade is None else [spec for each in cascade.calls for spec in _functions_of(each)]
            yield from inner


def has_async_call(plan: Plan) -> bool:
    """Return True if the plan calls an async function."""
    return any(spec.target.is_async for spec in called_functions(plan))


def fold_plan(plan: Plan, enter: Callable[[Plan], Plan], combine: Callable[[Plan, list[Result]], Result]) -> Result:
    """Return ``combine(node, results of its children)`` of the plan; ``enter`` replaces each node before its children.

    It is a loop because a plan may be deeper than Python's stack.
    """
    pending, results = [(plan, False)], list[Result]()
    while pending:
        node, is_entered = pending.pop()
        if is_entered:
            first = len(results) - len(node.children)
            results[first:] = [combine(node, results[first:])]
        else:
            node = enter(node)
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(node.children))
    return results[0]

"""Verbs that combine rows: aggregates over all of them, or over groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, Unpack

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, lit
from penstock.expr.expression_text import describe
from penstock.expr.nodes import ColumnRef, Expr, Star
from penstock.frame.aggregation import aggregated
from penstock.frame.columns import ColumnInput, to_node
from penstock.frame.lazy_table import LazyTable
from penstock.frame.relational import Columns, nodes_of
from penstock.plan import nodes
from penstock.plan.nodes import Plan, check_columns
from penstock.plan.relations import GroupRows
from penstock.udf.options import GroupOptions, known_options
from penstock.udf.specs import make_batch_spec

Aggregates = Expression | Iterable[Expression]


class AggregateShortcuts:
    """One method for each aggregate of whole columns. Without column names it takes all columns except keys."""

    @abstractmethod
    def _aggregate(self, function: str, columns: tuple[ColumnInput, ...], **options: Any) -> Any:
        """Aggregate each of ``columns`` with the function of this name."""

    def sum(self, *columns: ColumnInput) -> Any:
        """Add the values of these columns.

        >>> ps.from_pydict({"a": [1, 2]}).sum("a").to_pydict()
        {'a': [3]}
        """
        return self._aggregate("sum", columns)

    def mean(self, *columns: ColumnInput) -> Any:
        """Return the arithmetic mean of these columns."""
        return self._aggregate("mean", columns)

    def min(self, *columns: ColumnInput) -> Any:
        """Return the smallest value of these columns."""
        return self._aggregate("min", columns)

    def max(self, *columns: ColumnInput) -> Any:
        """Return the largest value of these columns."""
        return self._aggregate("max", columns)

    def count_distinct(self, *columns: ColumnInput) -> Any:
        """Count the different values of these columns, without null."""
        return self._aggregate("count_distinct", columns)

    def any_value(self, *columns: ColumnInput) -> Any:
        """Return one of the values of these columns."""
        return self._aggregate("any_value", columns)

    def stddev(self, *columns: ColumnInput, ddof: int = 1) -> Any:
        """Return the standard deviation of these columns."""
        return self._aggregate("stddev", columns, ddof=ddof)

    def var(self, *columns: ColumnInput, ddof: int = 1) -> Any:
        """Return the variance of these columns."""
        return self._aggregate("var", columns, ddof=ddof)

    def product(self, *columns: ColumnInput) -> Any:
        """Multiply the values of these columns."""
        return self._aggregate("product", columns)

    def skew(self, *columns: ColumnInput) -> Any:
        """Return the skewness of these columns."""
        return self._aggregate("skew", columns)

    def list_agg(self, *columns: ColumnInput) -> Any:
        """Collect the values of these columns in lists."""
        return self._aggregate("list_agg", columns)

    def list_agg_distinct(self, *columns: ColumnInput) -> Any:
        """Collect the different values of these columns in lists."""
        return self._aggregate("list_agg_distinct", columns)

    def string_agg(self, *columns: ColumnInput, delimiter: str = "") -> Any:
        """Join the texts, or lists, of these columns."""
        return self._aggregate("string_agg", columns, delimiter=delimiter)


class AggregateVerbs(AggregateShortcuts, LazyTable):
    def agg(self, *aggregates: Aggregates) -> Self:
        """Combine all rows into one row of aggregates.

        >>> df = ps.from_pydict({"a": [1, 2], "b": [3, 4]})
        >>> df.agg(ps.col("a").sum(), (ps.col("a") * ps.col("b")).mean().alias("m")).to_pydict()
        {'a': [3], 'm': [5.5]}
        """
        return self._with(aggregated(self._plan, [], flat(aggregates), "agg"))

    def group_by(self, *keys: Columns) -> GroupedDataFrame:
        """Group rows by equal keys; ``agg`` and its shortcuts then give a row for each group. Null equals null.

        >>> df = ps.from_pydict({"k": ["x", "y", "x"], "v": [1, 2, 3]})
        >>> df.group_by("k").agg(ps.col("v").sum()).sort("k").to_pydict()
        {'k': ['x', 'y'], 'v': [4, 2]}
        """
        given = [node for key in keys for node in nodes_of(key)]
        if not given:
            raise InvalidArgumentError("groupby needs at least one key; use agg() to combine all rows")
        return GroupedDataFrame(self, given)

    def groupby(self, *keys: Columns) -> GroupedDataFrame:
        """Group rows by equal keys; the same as ``group_by``."""
        return self.group_by(*keys)

    def count(self, *columns: ColumnInput) -> Self:
        """Count the rows, as a column ``count``, also for ``"*"``; with columns, their values that are not null.

        >>> df = ps.from_pydict({"a": [1, None]})
        >>> df.count().to_pydict(), df.count(ps.col("*")).to_pydict()
        ({'count': [2]}, {'a': [1]})
        """
        if not columns or (isinstance(columns[0], str) and columns == ("*",)):
            return self.agg(lit(1).count().alias("count"))
        return self._aggregate("count", columns)

    def _aggregate(self, function: str, columns: tuple[ColumnInput, ...], **options: Any) -> Self:
        is_all = not columns or (len(columns) == 1 and isinstance(to_node(columns[0]), Star))
        chosen = self.columns if is_all else columns
        return self.agg(*[getattr(Expression(to_node(column)), function)(**options) for column in chosen])


class GroupedDataFrame(AggregateShortcuts):
    """The groups of ``groupby``."""

    def __init__(self, frame: AggregateVerbs, keys: Sequence[Expr]) -> None:
        names = [key.name for key in keys]
        check_columns(frame._plan.schema, tuple(key.column for key in keys if isinstance(key, ColumnRef)), "groupby")
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"groupby needs keys of different names; got {', '.join(names)}")
        self._frame = frame
        self._keys = keys

    def __repr__(self) -> str:
        return f"GroupedDataFrame by {', '.join(map(describe, self._keys))}"

    def agg(self, *aggregates: Aggregates) -> Any:
        """Combine the rows of each group to one, with expressions of aggregates; the keys come first.

        >>> df = ps.from_pydict({"k": [1, 1], "v": [2, 4]})
        >>> df.groupby("k").agg(ps.col("v").max() - ps.col("v").min()).to_pydict()
        {'k': [1], 'v': [2]}
        """
        plan = aggregated(self._frame._plan, self._keys, flat(aggregates), "agg")
        return self._frame._with(plan)

    def map_groups(self, fn: Callable[..., Any], **options: Unpack[GroupOptions]) -> Any:
        """Run a function, or a class built once per worker, over whole groups; it may change columns and row count.

        ``fn`` gets the rows of one group, keys included, in input order, and returns rows. Formats and options are as
        in ``map_batches``, without the options of batch sizes. ``fn`` may be a generator, or async. With
        ``on_error="null"`` or ``"log"`` failed groups are dropped and recorded by their keys. A group must fit in
        memory.

        >>> df = ps.from_pydict({"k": ["x", "y", "x"], "v": [1, 2, 3]})
        >>> df.groupby("k").map_groups(lambda g: {"k": g["k"][:1], "top": [g["v"].max()]}).sort("k").to_pydict()
        {'k': ['x', 'y'], 'top': [3, 2]}
        """
        given = known_options("map_groups", options, GroupOptions.__annotations__, "df.map_batches")
        names = tuple(key.name for key in self._keys)
        spec = make_batch_spec("map_groups", fn, given, names)
        plan = nodes.MonotonicId(self._with_keys("map_groups"), "__row")
        return self._frame._with(nodes.MapBatches(nodes.Relate((plan,), GroupRows(names, "__row")), spec))

    def _with_keys(self, verb: str) -> Plan:
        """Return the rows with the keys as columns."""
        computed = [key for key in self._keys if not isinstance(key, ColumnRef)]
        for key in computed:
            if self._frame._plan.schema is not None and key.name in self._frame._plan.schema:
                raise InvalidArgumentError(
                    f"{verb} adds the keys to the rows, but there is a column {key.name!r} already; "
                    f"name the key {describe(key)} with .alias(...)"
                )
        return nodes.Project(self._frame._plan, (Star(), *computed)) if computed else self._frame._plan

    def count(self, *columns: ColumnInput) -> Any:
        """Count the values of these columns that are not null.

        >>> ps.from_pydict({"k": [1, 1], "v": [2, None]}).groupby("k").count().to_pydict()
        {'k': [1], 'v': [1]}
        """
        return self._aggregate("count", columns)

    def _aggregate(self, function: str, columns: tuple[ColumnInput, ...], **options: Any) -> Any:
        names = {key.name for key in self._keys}
        chosen = list(columns) or [name for name in self._frame.columns if name not in names]
        return self.agg(*[getattr(Expression(to_node(column)), function)(**options) for column in chosen])


def flat(aggregates: Iterable[Aggregates]) -> list[Expr]:
    found = []
    for each in aggregates:
        found += [each] if isinstance(each, Expression) else list(each)
    for expression in found:
        if not isinstance(expression, Expression):
            raise InvalidArgumentError(f"agg takes expressions such as ps.col('x').sum(); got {expression!r}")
    return [expression._node for expression in found]

"""Verbs that keep, drop, repeat and regroup rows, or run a Python function over them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any, Literal, Self, Unpack

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression
from penstock.expr.nodes import ColumnRef, Expr
from penstock.frame.columns import ColumnInput, checked_count, to_node
from penstock.frame.lazy_table import LazyTable
from penstock.frame.option_lines import BATCHES
from penstock.frame.projection import with_added
from penstock.plan import nodes
from penstock.plan.expression_cost import cannot_fail
from penstock.plan.nodes import check_columns
from penstock.udf.options import BatchOptions, RowOptions, known_options, refusing_unknown
from penstock.udf.specs import make_batch_spec

Predicate = Expression | str | Callable[[dict[str, Any]], bool]


class RowVerbs(LazyTable):
    @refusing_unknown("map_batches", BATCHES, BatchOptions)
    def map_batches(self, fn: Callable[..., Any], **options: Unpack[BatchOptions]) -> Self:
        """Run a function, or a class built once per worker, over whole batches; it may change columns and row count.

        ``fn`` may be a generator, or async. It returns a dict of arrays or lists, a pyarrow Table or RecordBatch, or a
        pandas DataFrame. NumPy arrays share memory with the columns if possible and are read-only then. Torch tensors
        share memory only with ``zero_copy_batch=True`` and must not be changed then. With ``zero_copy_batch=False``
        ``fn`` may change both. It may always change a pandas DataFrame.

        A batch that raises ``split_on``, or that is too large for the memory of a GPU, is halved. By default the query
        ends when nearly all of the last 1,000 rows failed with the same exception class.

        >>> ps.range(3).map_batches(lambda batch: {"x": batch["id"] * 2}).to_pydict()
        {'x': [0, 2, 4]}
        """
        spec = make_batch_spec("map_batches", fn, options)
        return self._with(nodes.MapBatches(self._plan, spec))

    def map(self, fn: Callable[..., Any], **options: Unpack[RowOptions]) -> Self:
        """Run a function that turns a row into a row, both as dicts, with the options of ``map_batches``.

        >>> ps.range(2).map(lambda row: {"x": row["id"] + 1}).to_pydict()
        {'x': [1, 2]}
        """
        return self._map("map", fn, options)

    def flat_map(self, fn: Callable[..., Any], **options: Unpack[RowOptions]) -> Self:
        """Run a function that turns a row into a list of rows, with the options of ``map_batches``.

        >>> ps.range(2).flat_map(lambda row: [row, row]).to_pydict()
        {'id': [0, 0, 1, 1]}
        """
        return self._map("flat_map", fn, options)

    def _map(self, verb: Literal["map", "flat_map", "filter"], fn: Callable[..., Any], given: RowOptions) -> Self:
        options = known_options(verb, given, RowOptions.__annotations__, "df.map_batches")
        return self._with(nodes.MapBatches(self._plan, make_batch_spec(verb, fn, options)))

    def where(self, predicate: Predicate, **options: Unpack[RowOptions]) -> Self:
        """Keep the rows for which a condition holds, given as an expression, in SQL, or as a function of a row.

        >>> df = ps.from_pydict({"a": [1, 2, 3]})
        >>> df.where(ps.col("a") > 2).to_pydict(), df.where("a > 2").to_pydict()
        ({'a': [3]}, {'a': [3]})
        >>> df.where(lambda row: row["a"] < 2).to_pydict()
        {'a': [1]}
        """
        if isinstance(predicate, str):
            from penstock.frame.sql_expression import sql_expr

            predicate = sql_expr(predicate)
        if isinstance(predicate, Expression):
            if options:
                raise InvalidArgumentError(f"where takes {', '.join(options)} with a function only, not an expression")
            return self._with(nodes.Filter(self._plan, predicate._node))
        if not callable(predicate):
            raise InvalidArgumentError(f"where takes an expression or a function of a row; got {predicate!r}")
        return self._map("filter", predicate, options)

    def filter(self, predicate: Predicate, **options: Unpack[RowOptions]) -> Self:
        """Keep the rows for which a condition holds; the same as ``where``."""
        return self.where(predicate, **options)

    def limit(self, num: int) -> Self:
        """Keep the first rows. Work that they do not need is not done.

        >>> ps.range(100).limit(2).to_pydict()
        {'id': [0, 1]}
        """
        return self._with(nodes.Limit(self._plan, checked_count("limit", num)))

    def head(self, num: int = 5) -> Self:
        """Keep the first rows; the same as ``limit``."""
        return self.limit(num)

    def offset(self, num: int) -> Self:
        """Skip the first rows.

        >>> ps.range(4).offset(2).to_pydict()
        {'id': [2, 3]}
        """
        return self._with(nodes.Limit(self._plan, None, checked_count("offset", num)))

    def explode(self, *columns: ColumnInput) -> Self:
        """Turn each element of a list column into a row; several columns are exploded together.

        >>> ps.from_pydict({"a": [1, 2], "b": [[10, 20], []]}).explode("b").to_pydict()
        {'a': [1, 1, 2], 'b': [10, 20, None]}
        """
        if not columns:
            raise InvalidArgumentError("explode needs at least one list column")
        exprs = [to_node(column) for column in columns]
        computed = [e for e in exprs if not isinstance(e, ColumnRef)]
        source = with_added(self._plan, computed) if computed else self._plan
        names = tuple(expr.name for expr in exprs)
        check_columns(source.schema, names, "explode")
        return self._with(nodes.Explode(source, names))

    def drop_null(self, *columns: ColumnInput) -> Self:
        """Drop rows with null in any of these columns, or in any column at all.

        >>> ps.from_pydict({"a": [1, None]}).drop_null().to_pydict()
        {'a': [1]}
        """
        return self._where_all([Expression(e).not_null() for e in self._chosen(columns)])

    def drop_nan(self, *columns: ColumnInput) -> Self:
        """Drop rows with NaN in any of these columns, or in any floating-point column; null stays.

        >>> ps.from_pydict({"a": [1.0, float("nan")]}).drop_nan().to_pydict()
        {'a': [1.0]}
        """
        exprs = self._chosen(columns)
        if not columns:
            exprs = [e for e in exprs if self.schema[e.name].dtype.is_float()]
        return self._where_all([(~Expression(e).is_nan()).fill_null(True) for e in exprs])

    def into_batches(self, batch_size: int) -> Self:
        """Return the same rows in batches of exactly this size, except the last.

        >>> [len(batch) for batch in ps.range(5).into_batches(2).iter_partitions()]
        [2, 2, 1]
        """
        return self._with(nodes.IntoBatches(self._plan, batch_size))

    def _chosen(self, columns: tuple[ColumnInput, ...]) -> list[Expr]:
        return [to_node(column) for column in columns] if columns else [ColumnRef(name) for name in self.columns]

    def _where_all(self, conditions: list[Expression]) -> Self:
        """Keep the rows for which all conditions hold; in one filter, unless a condition can fail on rows that another
        drops."""
        if conditions and all(cannot_fail(condition._node) for condition in conditions):
            return self.where(reduce(and_, conditions))
        result = self
        for condition in conditions:
            result = result.where(condition)
        return result

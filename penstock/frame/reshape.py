"""Verbs that compose others: samples, shuffles, pivots, summaries, parts by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.aggregate_functions import AGGREGATES
from penstock.expr.column import Expression, call, col, lit, when
from penstock.expr.nodes import Alias, ColumnRef, Star, Unnest
from penstock.frame.aggregation import aggregated
from penstock.frame.columns import ColumnInput, checked_count, to_node
from penstock.frame.lazy_table import LazyTable
from penstock.frame.projection import projected
from penstock.frame.relational import Columns, nodes_of, without
from penstock.frame.results import count_rows
from penstock.plan import nodes
from penstock.plan.nodes import Plan, check_columns
from penstock.plan.relations import GROUP, Distinct, GroupRows, Sort, SortKey
from penstock.types import DataType, Field
from penstock.types.plain import arrow_array
from penstock.udf.options import refusing_unknown


class ReshapeVerbs(LazyTable):
    def sample(
        self,
        fraction: float | None = None,
        size: int | None = None,
        with_replacement: bool = False,
        seed: int | None = None,
    ) -> Self:
        """Draw a share of the rows, or ``size`` of them; with a seed, the same rows every time.

        A share is rounded up, and drawn from each 1,024 rows, in input order: it streams and holds no rows. Of a table
        with more than 1,024 rows it may return one row less; ``with_replacement`` it may return a row twice. ``size``
        rows come in random order; if there are fewer rows, all.

        >>> ps.range(1000).sample(0.1, seed=1).count_rows(), ps.range(1000).sample(size=7).count_rows()
        (100, 7)
        """
        if (fraction is None) == (size is None):
            raise InvalidArgumentError("sample takes either a fraction or a size")
        given: Any = fraction
        if fraction is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
            raise InvalidArgumentError(f"sample needs a fraction from 0 to 1; got {fraction!r}")
        _check_seed("sample", seed)
        if fraction is not None:
            return self._with(nodes.Sample(self._plan, fraction, seed, with_replacement))
        num_rows = checked_count("sample(size=...)", size)
        if with_replacement:
            raise InvalidArgumentError("sample draws a row again only by a share: sample(0.5, with_replacement=True)")
        return self._with(_in_random_order(self._plan, seed, num_rows))

    def shuffle(self, seed: int | None = None) -> Self:
        """Put the rows in a random order; with a seed, in the same one every time.

        >>> sorted(ps.range(4).shuffle(seed=1).to_pydict()["id"])
        [0, 1, 2, 3]
        """
        _check_seed("shuffle", seed)
        return self._with(_in_random_order(self._plan, seed))

    def train_test_split(
        self, test_size: float | int, *, shuffle: bool = False, seed: int | None = None
    ) -> tuple[Self, Self]:
        """Return two DataFrames: the first rows to train, and a share of the rows, or a number of them, to test.

        This counts the rows, and each part runs the query again; ``collect()`` it before if that is expensive, or if
        its rows differ from run to run. A ``shuffle`` without a seed uses seed 0, so that the parts share no row.

        >>> train, test = ps.range(8).train_test_split(0.25)
        >>> train.count_rows(), test.to_pydict()
        (6, {'id': [6, 7]})
        """
        given: Any = test_size
        is_share = isinstance(given, float)
        if not (0 < test_size < 1 if is_share else isinstance(given, int) and given > 0 and given is not True):
            raise InvalidArgumentError(
                f"train_test_split needs a test_size between 0 and 1, or a number of rows; got {test_size!r}"
            )
        _check_seed("train_test_split", seed)
        num_rows = count_rows(self)
        num_train = int(num_rows * (1 - test_size)) if is_share else num_rows - int(test_size)
        if num_train < 0:
            raise InvalidArgumentError(f"train_test_split: test_size is {test_size}, but there are {num_rows} rows")
        source = self.shuffle(seed or 0)._plan if shuffle else self._plan
        return self._with(nodes.Limit(source, num_train)), self._with(nodes.Limit(source, None, num_train))

    @refusing_unknown("repartition")
    def repartition(self, num: int, *partition_by: ColumnInput) -> Self:
        """Return the same rows in this many parts of equal size; with columns, equal values are in one part.

        Without columns it holds all rows in memory first. If you give columns, parts have any size, and empty parts are
        left out; only one part must fit in memory.

        >>> [len(part) for part in ps.range(6).repartition(3).iter_partitions()]
        [2, 2, 2]
        >>> parts = ps.from_pydict({"k": ["x", "y", "x"]}).repartition(8, "k").iter_partitions()
        >>> sorted(part.to_pydict()["k"] for part in parts)
        [['x', 'x'], ['y']]
        """
        if not partition_by:
            return self._with(nodes.Repartition(self._plan, num))
        nodes.check_count("repartition", num)
        keys = nodes_of(partition_by)
        check_columns(self._plan.schema, tuple(key.column for key in keys if isinstance(key, ColumnRef)), "repartition")
        part = call("hash", *map(Expression, keys), seed=0) % lit(num)
        numbered = nodes.Project(nodes.MonotonicId(self._plan, "__row"), (Star(), Alias(part._node, "__part")))
        groups = nodes.IntoBatches(nodes.Relate((numbered,), GroupRows(("__part",), "__row")), 1)
        rows = nodes.Project(nodes.Explode(groups, (GROUP,)), (Unnest(ColumnRef(GROUP)),))
        return self._with(without(rows, ["__part"]))

    @refusing_unknown("into_partitions")
    def into_partitions(self, num: int) -> Self:
        """Return the same rows in this many parts; the same as ``repartition``."""
        return self.repartition(num)

    def pivot(
        self,
        group_by: Columns,
        pivot_col: ColumnInput,
        value_col: ColumnInput,
        agg_fn: str,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Make a column of each value of ``pivot_col``: the aggregate of ``value_col`` in each group.

        ``agg_fn`` names an aggregate, such as ``sum``. Without ``names`` the query runs once to find the values.

        >>> df = ps.from_pydict({"year": [1, 1, 2], "month": ["jan", "feb", "jan"], "n": [5, 6, 7]})
        >>> df.pivot("year", "month", "n", "sum").sort("year").to_pydict()
        {'year': [1, 2], 'feb': [6, None], 'jan': [5, 7]}
        """
        function = {"list": "list_agg", "concat": "string_agg", "avg": "mean"}.get(agg_fn, agg_fn)
        keys, value = nodes_of(group_by), Expression(to_node(value_col))
        if function not in AGGREGATES or not keys:
            raise InvalidArgumentError(
                f"pivot takes group_by columns and the name of an aggregate, such as 'sum'; got {agg_fn!r}"
            )
        name = Expression(to_node(pivot_col)).cast(DataType.string()).fill_null("None").alias("__name")
        cells = aggregated(
            self._plan, [*keys, name._node], [getattr(value, function)().alias("__value")._node], "pivot"
        )
        if names is None:
            found = Distinct(("__name",))
            rows = self._with(nodes.Relate((nodes.Project(cells, (ColumnRef("__name"),)),), found))._batches()
            names = sorted(each for batch in rows for each in batch.column(0).to_pylist())
        key_names = [key.name for key in keys]
        if taken := set(names) & set(key_names):
            raise InvalidArgumentError(
                f"pivot: {min(taken)!r} is a group_by column and a value of pivot_col; rename it"
            )
        if not names:
            return self._with(nodes.Relate((projected(self._plan, keys),), Distinct(tuple(key_names))))
        columns = [when(col("__name") == lit(each), col("__value")).any_value(ignore_nulls=True) for each in names]
        named = [column.alias(each)._node for each, column in zip(names, columns, strict=True)]
        return self._with(aggregated(cells, [ColumnRef(each) for each in key_names], named, "pivot"))

    def describe(self) -> Self:
        """Return the names and the types of the columns as rows.

        >>> ps.range(1).describe().to_pydict()
        {'column_name': ['id'], 'type': ['int64']}
        """
        from penstock.io.memory_source import MemorySource

        fields = list(self.schema)
        texts = ([field.name for field in fields], [str(field.dtype) for field in fields])
        table = pa.Table.from_arrays([arrow_array(each, pa.string()) for each in texts], names=["column_name", "type"])
        return self._with(nodes.Scan(MemorySource.from_table(table, "describe")))

    def summarize(self) -> Self:
        """Return a row for each column: its type, the smallest and largest value as text, and counts.

        >>> summary = ps.from_pydict({"x": [1, None, 3]}).summarize()
        >>> summary.select("column", "min", "max", "count", "count_nulls").to_pydict()
        {'column': ['x'], 'min': ['1'], 'max': ['3'], 'count': [2], 'count_nulls': [1]}
        """
        rows = [_summary(field) for field in self.schema]
        if not rows:
            raise InvalidArgumentError("summarize needs at least one column")
        listed = aggregated(self._plan, [], [call("to_list", *rows).alias("row")._node], "summarize")
        return self._with(projected(nodes.Explode(listed, ("row",)), [Unnest(ColumnRef("row"))]))


def _check_seed(verb: str, seed: Any) -> None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise InvalidArgumentError(f"{verb} takes a whole number as seed; got {seed!r}")


def _in_random_order(plan: Plan, seed: int | None, num_rows: int | None = None) -> Plan:
    if seed is None:
        return nodes.Relate((plan,), Sort((), num_rows))
    draw = call("hash", col("__row"), seed=seed)._node
    drawn = nodes.Project(nodes.MonotonicId(plan, "__row"), (Star(), Alias(draw, "__draw")))
    order = (SortKey("__draw"), SortKey("__row"))
    return without(nodes.Relate((drawn,), Sort(order, num_rows)), ["__row", "__draw"])


def _summary(field: Field) -> Expression:
    """Return the statistics of a column as a struct of aggregates."""
    column, text = col(field.name), DataType.string()
    ends = [column.min(), column.max()] if field.dtype.is_comparable() else [lit(None), lit(None)]
    values = {
        "column": lit(field.name),
        "type": lit(str(field.dtype)),
        "min": ends[0].cast(text),
        "max": ends[1].cast(text),
        "count": column.count(),
        "count_nulls": column.count("null"),
        "approx_count_distinct": column.approx_count_distinct(),
    }
    return call("to_struct", *values.values(), names=tuple(values))

"""``DataFrame``: a lazy table. Each verb builds one plan node; ``collect``, ``show``, ``write_*`` and so on run it."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.config import get_config
from penstock.engine.runners import run, write
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, lit
from penstock.expr.nodes import Alias, Call, Cast, ColumnRef, Expr, Star, Unnest, unalias
from penstock.expr.resolve import expand
from penstock.expr.udf import BatchFormat, BatchSize, OnError
from penstock.frame.write import WriteVerbs
from penstock.observe.errors import SCHEMA, ErrorLog
from penstock.observe.stats import Stats
from penstock.plan import nodes
from penstock.plan.nodes import Plan, check_columns
from penstock.protocols import Sink, Subscriber
from penstock.types import Schema, Series, supertype, unified
from penstock.udf.compute import ROW_OPTIONS, Compute, make_batch_spec
from penstock.udf.formats import batch_in_format, checked_format, to_pandas
from penstock.udf.options import check_known, refusing_unknown

if TYPE_CHECKING:
    import pandas
    import torch

    from penstock.cost.estimates.estimate import CostEstimate
    from penstock.jobs.job import Resume

ColumnInput = str | Expression
SHOWN_ROWS = 8
SIDE = "__side"  # which input of a set operation a row came from


class ColumnNames(list[str]):
    """A list of names that gives itself when called: Ray Data has ``columns()`` where Daft has ``column_names``."""

    def __call__(self) -> list[str]:
        return self


class DataFrame(WriteVerbs):
    """A lazy table. Made by ``read_*`` and ``from_*``; nothing runs before its rows are asked for.

    >>> df = ps.from_pydict({"a": [1, 2, 3]})
    >>> df.where(ps.col("a") > 1).with_column("b", ps.col("a") * 10).to_pydict()
    {'a': [2, 3], 'b': [20, 30]}
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._schema: Schema | None = plan.schema
        self._preview: pa.Table | None = None
        self._errors: ErrorLog | None = None  # of the last run
        self._stats: Stats | None = None  # of the last run
        self._runs_for: DataFrame | None = None  # whose runs those of this one are

    # --- columns ---

    def select(self, *columns: ColumnInput, **named: ColumnInput) -> DataFrame:
        """Keep only these columns or expressions, in this order.

        >>> ps.from_pydict({"a": [1], "b": [2]}).select("b", c=ps.col("a") + 1).to_pydict()
        {'b': [2], 'c': [2]}
        """
        exprs = [_node(column) for column in columns]
        exprs += [Alias(_node(value), name) for name, value in named.items()]
        return self._projected(exprs)

    def with_column(self, name: str, expr: Any) -> DataFrame:
        """Add a column, or replace one in its place.

        >>> ps.from_pydict({"a": [1]}).with_column("b", ps.col("a") + 1).to_pydict()
        {'a': [1], 'b': [2]}
        """
        return self.with_columns({name: expr})

    def with_columns(self, columns: Mapping[str, Any]) -> DataFrame:
        """Add or replace several columns, each computed from the columns as they were.

        >>> ps.from_pydict({"a": [1]}).with_columns({"a": ps.col("a") * 2, "b": ps.col("a")}).to_pydict()
        {'a': [2], 'b': [1]}
        """
        schema = self._plan.schema
        parts = expand([_named(name, value) for name, value in _mapping("with_columns", columns).items()], schema)
        added = {part.name: part for part in parts if not isinstance(part, Unnest)}
        if schema is None:  # the star and what follows it are put in order once the columns are known
            unnested = [part for part in parts if isinstance(part, Unnest)]
            return self._projected([Star(tuple(added)), *added.values(), *unnested])
        kept = [added.pop(existing, ColumnRef(existing)) for existing in schema.names]
        return self._projected([*kept, *added.values()])

    def with_column_renamed(self, existing: str, new: str) -> DataFrame:
        """Rename one column.

        >>> ps.from_pydict({"a": [1]}).with_column_renamed("a", "b").columns
        ['b']
        """
        return self.rename_columns({existing: new})

    def with_columns_renamed(self, names: Mapping[str, str]) -> DataFrame:
        """Rename several columns."""
        return self.rename_columns(names)

    def rename_columns(self, names: Mapping[str, str]) -> DataFrame:
        """Rename several columns, given as old name to new.

        >>> ps.from_pydict({"a": [1], "b": [2]}).rename_columns({"a": "x"}).columns
        ['x', 'b']
        """
        schema = self._plan.schema
        renamed = {old: _named(new, col(_name(old))) for old, new in _mapping("rename_columns", names).items()}
        check_columns(schema, tuple(renamed), "rename_columns")
        if schema is None:  # the star and what follows it are put in order once the columns are known
            return DataFrame(nodes.Project(self._plan, (Star(tuple(renamed)), *renamed.values())))
        return DataFrame(nodes.Project(self._plan, tuple(renamed.get(name, ColumnRef(name)) for name in schema.names)))

    def exclude(self, *names: str) -> DataFrame:
        """Leave out columns.

        >>> ps.from_pydict({"a": [1], "b": [2]}).exclude("a").to_pydict()
        {'b': [2]}
        """
        check_columns(self._plan.schema, tuple(map(_name, names)), "exclude")
        return DataFrame(nodes.Project(self._plan, (Star(names),)))

    def drop_columns(self, *names: str | list[str]) -> DataFrame:
        """Leave out columns, given one by one or as a list."""
        flat = [n for name in names for n in (name if isinstance(name, list) else [name])]
        return self.exclude(*flat)

    # --- rows ---

    def where(self, predicate: Expression | Callable[[dict[str, Any]], bool], **options: Any) -> DataFrame:
        """Keep the rows for which a condition holds, given as an expression or as a function of a row.

        >>> df = ps.from_pydict({"a": [1, 2, 3]})
        >>> df.where(ps.col("a") > 2).to_pydict(), df.where(lambda row: row["a"] < 2).to_pydict()
        ({'a': [3]}, {'a': [1]})
        """
        if isinstance(predicate, Expression):
            if options:
                raise InvalidArgumentError(f"where takes {', '.join(options)} with a function only, not an expression")
            return DataFrame(nodes.Filter(self._plan, predicate._node))
        if not callable(predicate):
            raise InvalidArgumentError(f"where takes an expression or a function of a row; got {predicate!r}")
        return self._map("filter", predicate, options)

    def filter(self, predicate: Expression | Callable[[dict[str, Any]], bool], **options: Any) -> DataFrame:
        """Keep the rows for which a condition holds; the same as ``where``."""
        return self.where(predicate, **options)

    def limit(self, num: int) -> DataFrame:
        """Keep the first rows; what is not needed for them is not run.

        >>> ps.range(100).limit(2).to_pydict()
        {'id': [0, 1]}
        """
        return DataFrame(nodes.Limit(self._plan, _count("limit", num)))

    def offset(self, num: int) -> DataFrame:
        """Leave out the first rows.

        >>> ps.range(4).offset(2).to_pydict()
        {'id': [2, 3]}
        """
        return DataFrame(nodes.Limit(self._plan, None, _count("offset", num)))

    def sample(self, fraction: float, with_replacement: bool = False, seed: int | None = None) -> DataFrame:
        """Keep each row with a probability; with a seed, the same rows every time.

        >>> ps.range(1000).sample(0.1, seed=1).count_rows() in range(60, 140)
        True
        """
        given: tuple[Any, Any] = (fraction, seed)
        if not isinstance(given[0], (int, float)) or not isinstance(given[1], (int, type(None))):
            raise InvalidArgumentError(f"sample takes a fraction and a whole seed; got {fraction!r} and {seed!r}")
        return DataFrame(nodes.Sample(self._plan, fraction, seed, with_replacement))

    def explode(self, *columns: ColumnInput) -> DataFrame:
        """Make a row of each element of a list column; several columns are walked together.

        >>> ps.from_pydict({"a": [1, 2], "b": [[10, 20], []]}).explode("b").to_pydict()
        {'a': [1, 1, 2], 'b': [10, 20, None]}
        """
        if not columns:
            raise InvalidArgumentError("explode needs at least one list column")
        exprs = [_node(column) for column in columns]
        computed = {e.name: Expression(e) for e in exprs if not isinstance(e, ColumnRef)}
        source = self.with_columns(computed) if computed else self
        names = tuple(expr.name for expr in exprs)
        check_columns(source._plan.schema, names, "explode")
        return DataFrame(nodes.Explode(source._plan, names))

    def drop_null(self, *columns: ColumnInput) -> DataFrame:
        """Leave out rows with null in any of these columns, or in any column at all.

        >>> ps.from_pydict({"a": [1, None]}).drop_null().to_pydict()
        {'a': [1]}
        """
        return self._where_all([Expression(e).not_null() for e in self._chosen(columns)])

    def drop_nan(self, *columns: ColumnInput) -> DataFrame:
        """Leave out rows with NaN in any of these columns, or in any floating-point column; null stays.

        >>> ps.from_pydict({"a": [1.0, float("nan")]}).drop_nan().to_pydict()
        {'a': [1.0]}
        """
        exprs = self._chosen(columns)
        if not columns:
            exprs = [e for e in exprs if self.schema[e.name].dtype.is_float()]
        return self._where_all([(~Expression(e).is_nan()).fill_null(True) for e in exprs])

    # --- batches ---

    @refusing_unknown("map_batches")
    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: BatchSize = "auto",
        batch_format: BatchFormat = "numpy",
        zero_copy_batch: bool | None = None,
        max_batch_bytes: int | str | None = None,
        max_batch_tokens: int | None = None,
        batch_weight: Callable[..., Any] | None = None,
        split_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        compute: Compute | None = None,
        concurrency: int | tuple[int, int] | None = None,
        fn_args: Iterable[Any] = (),
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: int | str | None = None,
        max_retries: int = 0,
        on_error: OnError = "raise",
        max_errors: int | float | None = None,
        timeout: float | None = None,
        use_process: bool | None = None,
        cache: bool = False,
    ) -> DataFrame:
        """Run a function, or a class built once per worker, over whole batches; it may change columns and row count.

        ``fn`` may be a generator, or async. It returns a dict of arrays or lists, a pyarrow Table or RecordBatch, or a
        pandas DataFrame. NumPy arrays share memory with the columns where Arrow allows, and are read-only then; torch
        tensors, which cannot be locked, share it with ``zero_copy_batch=True`` only, and must not be written to then.
        With ``zero_copy_batch=False`` both are ``fn``'s to change, as DataFrames always are. With ``on_error`` of
        ``log`` or ``ignore`` the rows that it fails on are left out and recorded, see ``errors``; more than
        ``max_errors`` of them, a count or a fraction, end it.

        A ``batch_size`` of ``auto`` is found by measurement; None takes batches as they come. ``max_batch_bytes`` and
        ``max_batch_tokens`` bound what a batch weighs. One on which ``split_on`` is raised, or for which a GPU has not
        the memory, is halved. With ``cache=True`` what batches give is kept; see ``docs/DURABLE.md``.

        >>> ps.range(3).map_batches(lambda batch: {"x": batch["id"] * 2}).to_pydict()
        {'x': [0, 2, 4]}
        """
        spec = make_batch_spec(
            "map_batches", fn, batch_size=batch_size, batch_format=batch_format, zero_copy_batch=zero_copy_batch,
            max_batch_bytes=max_batch_bytes, max_batch_tokens=max_batch_tokens, batch_weight=batch_weight,
            split_on=split_on, compute=compute, concurrency=concurrency, fn_args=fn_args, fn_kwargs=fn_kwargs,
            fn_constructor_args=fn_constructor_args, fn_constructor_kwargs=fn_constructor_kwargs,
            num_cpus=num_cpus, num_gpus=num_gpus, memory=memory,
            max_retries=max_retries, on_error=on_error, max_errors=max_errors, timeout=timeout, use_process=use_process,
            cache=cache,
        )  # fmt: skip
        return DataFrame(nodes.MapBatches(self._plan, spec))

    def map(self, fn: Callable[..., Any], **options: Any) -> DataFrame:
        """Run a function from row to row, both dicts; the options are those of ``map_batches``.

        >>> ps.range(2).map(lambda row: {"x": row["id"] + 1}).to_pydict()
        {'x': [1, 2]}
        """
        return self._map("map", fn, options)

    def flat_map(self, fn: Callable[..., Any], **options: Any) -> DataFrame:
        """Run a function from one row to a list of rows; the options are those of ``map_batches``.

        >>> ps.range(2).flat_map(lambda row: [row, row]).to_pydict()
        {'id': [0, 0, 1, 1]}
        """
        return self._map("flat_map", fn, options)

    # --- layout ---

    def into_batches(self, batch_size: int) -> DataFrame:
        """Give the same rows in batches of exactly this size, but for the last.

        >>> [len(batch) for batch in ps.range(5).into_batches(2).iter_partitions()]
        [2, 2, 1]
        """
        return DataFrame(nodes.IntoBatches(self._plan, batch_size))

    def repartition(self, num: int) -> DataFrame:
        """Give the same rows in this many parts of equal size. Holds all rows until the last has come.

        >>> [len(part) for part in ps.range(6).repartition(3).iter_partitions()]
        [2, 2, 2]
        """
        return DataFrame(nodes.Repartition(self._plan, num))

    def into_partitions(self, num: int) -> DataFrame:
        """Give the same rows in this many parts; the same as ``repartition``."""
        return self.repartition(num)

    # --- combine ---

    def concat(self, other: DataFrame) -> DataFrame:
        """Put the rows of another DataFrame with the same columns after these.

        >>> ps.range(2).concat(ps.range(1)).to_pydict()
        {'id': [0, 1, 0]}
        """
        left, right = self._aligned(other)
        return DataFrame(nodes.Concat((left, right)))

    def union_all(self, other: DataFrame) -> DataFrame:
        """Put the rows of another DataFrame after these, duplicates included; the same as ``concat``."""
        return self.concat(other)

    def union(self, other: DataFrame) -> DataFrame:
        """Give the distinct rows that are in either DataFrame, in no particular order.

        >>> sorted(ps.range(2).union(ps.range(3)).to_pydict()["id"])
        [0, 1, 2]
        """
        return self._combined("union", other)

    def intersect(self, other: DataFrame) -> DataFrame:
        """Give the distinct rows that are in both DataFrames, in no particular order.

        >>> sorted(ps.range(2).intersect(ps.range(3)).to_pydict()["id"])
        [0, 1]
        """
        return self._combined("intersect", other)

    def except_distinct(self, other: DataFrame) -> DataFrame:
        """Give the distinct rows that the other DataFrame does not have, in no particular order.

        >>> ps.range(3).except_distinct(ps.range(2)).to_pydict()
        {'id': [2]}
        """
        return self._combined("except", other)

    # --- other ---

    def unpivot(
        self,
        ids: str | list[str],
        values: str | list[str] | None = None,
        variable_name: str = "variable",
        value_name: str = "value",
    ) -> DataFrame:
        """Make a row of each value column, with its name and its value.

        >>> ps.from_pydict({"k": ["p"], "a": [1], "b": [2]}).unpivot("k").to_pydict()
        {'k': ['p', 'p'], 'variable': ['a', 'b'], 'value': [1, 2]}
        """
        id_names = (ids,) if isinstance(ids, str) else tuple(ids)
        if values is None:
            values = [name for name in self.columns if name not in id_names]
        value_names = (values,) if isinstance(values, str) else tuple(values)
        check_columns(self._plan.schema, id_names + value_names, "unpivot")
        return DataFrame(nodes.Unpivot(self._plan, id_names, value_names, variable_name, value_name))

    def monotonically_increasing_id(self, column_name: str = "id") -> DataFrame:
        """Number the rows from 0, in input order, in a new first column.

        >>> ps.from_pydict({"a": ["x", "y"]}).monotonically_increasing_id("n").to_pydict()
        {'n': [0, 1], 'a': ['x', 'y']}
        """
        return DataFrame(nodes.MonotonicId(self._plan, _name(column_name)))

    def pipe(self, function: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> DataFrame:
        """Apply a function of a DataFrame, so that steps of your own read in order.

        >>> ps.range(3).pipe(lambda df, n: df.limit(n), 1).to_pydict()
        {'id': [0]}
        """
        result = function(self, *args, **kwargs)
        if not isinstance(result, DataFrame):
            raise InvalidArgumentError(f"pipe needs a function that gives a DataFrame; got {type(result).__name__}")
        return result

    def transform(self, function: Callable[..., DataFrame], *args: Any, **kwargs: Any) -> DataFrame:
        """Apply a function of a DataFrame; the same as ``pipe``."""
        return self.pipe(function, *args, **kwargs)

    # --- look at the plan ---

    @property
    def schema(self) -> Schema:
        """The columns and their types. After ``map_batches`` and the like it takes a run on the first rows to know."""
        if self._schema is None:
            first = next(self.limit(1)._batches(), None)
            self._schema = Schema([]) if first is None else Schema.from_arrow(first.schema)
        return self._schema

    @property
    def columns(self) -> ColumnNames:
        """The names of the columns.

        >>> ps.range(1).columns
        ['id']
        """
        return ColumnNames(self.schema.names)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns; the same as ``columns``."""
        return self.columns

    def __getitem__(self, key: Any) -> Any:
        """Return a column, by name or number, as an expression; or with a list of names a narrower DataFrame.

        >>> df = ps.from_pydict({"a": [1], "b": [2]})
        >>> df.select(df["a"] + 1).to_pydict(), df[["b"]].columns
        ({'a': [2]}, ['b'])
        """
        if isinstance(key, list):
            return self.select(*key)
        if isinstance(key, Expression):
            raise InvalidArgumentError(f"df[...] takes the name of a column; use df.where({key!r}) to keep rows")
        if isinstance(key, int) and not isinstance(key, bool):
            if not -len(self.columns) <= key < len(self.columns):
                raise InvalidArgumentError(f"There is no column number {key}; there are: {', '.join(self.columns)}")
            return col(self.columns[key])
        if key != "*":
            check_columns(self._plan.schema, (_name(key),), "df[...]")
        return col(key)

    def __contains__(self, name: object) -> bool:
        """Say whether there is a column of this name.

        >>> "id" in ps.range(1)
        True
        """
        return name in self.columns

    def explain(self, analyze: bool = False) -> str:
        """Print, and return, the plan as written, as optimized, and the stages it runs in.

        With ``analyze`` the query is run, its rows dropped, and what each stage took is added.
        """
        from penstock.plan.explain import explain_query

        parts = [explain_query(self._plan)]
        if analyze:
            for _ in self._batches():
                pass
            parts.append(f"== Run ==\n{self.stats()}")
        text = "\n\n".join(parts)
        sys.stdout.write(text + "\n")
        return text

    def plan_cost(self, sample: int = 20) -> CostEstimate:
        """Run the query on a sample of its rows, write nothing, and project tokens, dollars and time to all of them.

        The sample is spread over all rows where their number is known or small, and is the same each time. Its answers
        are kept where answers are kept (``cache_dir``), so that they are not paid for again. See ``docs/PROMPTS.md``.

        >>> server = getfixture("model_server")
        >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
        >>> df = ps.from_pydict({"q": ["Tell me more"] * 1000}).select(ps.prompt(ps.col("q"), model="gpt-5-mini"))
        >>> cost = df.plan_cost()
        >>> cost.sampled_rows, cost.calls, cost.dollars_low <= cost.dollars <= cost.dollars_high
        (20, 1000.0, True)
        """
        from penstock.cost.estimates.plan_cost import plan_cost

        return plan_cost(self._plan, sample)

    # --- take results ---

    def collect(self) -> DataFrame:
        """Run the query and keep its rows in memory, so that what follows does not run it again; returns itself.

        >>> df = ps.range(2).collect()
        >>> df.to_pydict()
        {'id': [0, 1]}
        """
        from penstock.io.memory import MemorySource

        table = self.to_arrow()
        self._plan = nodes.Scan(MemorySource.from_table(table, name="collected"))
        self._schema = self._plan.schema
        self._preview = table.slice(0, SHOWN_ROWS)
        return self

    def materialize(self) -> DataFrame:
        """Run the query and keep its rows in memory; the same as ``collect``."""
        return self.collect()

    def to_arrow(self) -> pa.Table:
        """Run the query and return its rows as a pyarrow Table.

        >>> ps.range(2).to_arrow().num_rows
        2
        """
        batches = list(self._batches())
        if not batches:
            return (self._plan.schema or Schema([])).to_arrow().empty_table()
        return pa.Table.from_batches(unified(batches))

    def to_pydict(self) -> dict[str, list[Any]]:
        """Run the query and return its columns as lists.

        >>> ps.range(2).to_pydict()
        {'id': [0, 1]}
        """
        table = self.to_arrow()
        return {name: Series(table.column(name)).to_pylist() for name in table.column_names}

    def to_pylist(self) -> list[dict[str, Any]]:
        """Run the query and return its rows as dicts.

        >>> ps.range(2).to_pylist()
        [{'id': 0}, {'id': 1}]
        """
        return list(self.iter_rows())

    def to_pandas(self) -> pandas.DataFrame:
        """Run the query and return its rows as a pandas DataFrame, with ndarrays for embeddings, tensors and images."""
        return to_pandas(self.to_arrow())

    def count_rows(self) -> int:
        """Run the query and return the number of its rows.

        >>> ps.range(5).where(ps.col("id") > 2).count_rows()
        2
        """
        return sum(batch.num_rows for batch in self._own(self.select())._batches(is_ordered=False))

    def __len__(self) -> int:
        """Return the number of rows in memory. What is not run yet has no length: ``list(df)`` would run it twice."""
        from penstock.io.memory import MemorySource

        if not (isinstance(self._plan, nodes.Scan) and isinstance(self._plan.source, MemorySource)):
            raise TypeError("The number of rows is not known before the query runs; use count_rows() or collect()")
        return self.count_rows()

    def __bool__(self) -> bool:
        raise TypeError("A DataFrame has no truth value; use `is None`, or count_rows() to see whether it has rows")

    def take(self, num: int = 20) -> list[dict[str, Any]]:
        """Return the first rows as dicts.

        >>> ps.range(100).take(2)
        [{'id': 0}, {'id': 1}]
        """
        return self._own(self.limit(num)).to_pylist()

    def take_all(self) -> list[dict[str, Any]]:
        """Return all rows as dicts; the same as ``to_pylist``."""
        return self.to_pylist()

    def take_batch(self, batch_size: int = 20, batch_format: BatchFormat = "numpy") -> Any:
        """Return the first rows as one batch.

        >>> ps.range(100).take_batch(2, batch_format="pylist")
        [{'id': 0}, {'id': 1}]
        """
        wanted = checked_format("take_batch", batch_format)
        table = self._own(self.limit(batch_size)).to_arrow().combine_chunks()
        batches = table.to_batches()
        return batch_in_format(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema), wanted)

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows as dicts while the query runs; stopping early cancels the rest.

        >>> next(ps.range(100).iter_rows())
        {'id': 0}
        """
        for batch in self._batches():
            yield from batch_in_format(batch, "pylist")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.iter_rows()

    @refusing_unknown("iter_batches")
    def iter_batches(
        self,
        batch_size: int | None = 256,
        batch_format: BatchFormat = "numpy",
        prefetch: int = 1,
        drop_last: bool = False,
    ) -> Iterator[Any]:
        """Yield batches while the query runs ahead by up to ``prefetch`` of them; stopping early cancels the rest.

        >>> [batch["id"].tolist() for batch in ps.range(3).iter_batches(batch_size=2)]
        [[0, 1], [2]]
        """
        wanted = checked_format("iter_batches", batch_format)
        source = self if batch_size is None else self._own(self.into_batches(batch_size))
        batches = source._batches(num_ahead=_count("prefetch", prefetch))
        least = batch_size if drop_last and batch_size else 0
        return (batch_in_format(batch, wanted) for batch in batches if batch.num_rows >= least)

    @refusing_unknown("iter_torch_batches")
    def iter_torch_batches(
        self, batch_size: int | None = 256, prefetch: int = 1, drop_last: bool = False
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Yield batches as dicts of torch tensors."""
        return self.iter_batches(batch_size, "torch", prefetch, drop_last)

    def iter_partitions(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches as the query makes them."""
        return self._batches()

    def errors(self) -> DataFrame:
        """Return the rows on which functions failed in this DataFrame's last run, where ``on_error`` tolerates that.

        ``operator`` names the function, ``input`` is what it was given, as JSON; ``error_type``, ``message`` and
        ``traceback`` say what it raised. A write leaves the same rows in the folder ``_errors`` of its output.

        >>> half = ps.func(lambda x: 6 // x, return_dtype=ps.DataType.int64(), on_error="ignore")
        >>> df = ps.from_pydict({"a": [1, 0]}).select(half(ps.col("a"))).collect()
        >>> df.errors().select("input", "error_type").to_pylist()
        [{'input': '{"a": 0}', 'error_type': 'ZeroDivisionError'}]
        """
        from penstock.io.memory import MemorySource

        return DataFrame(nodes.Scan(MemorySource((self._errors or ErrorLog()).parts(), SCHEMA, name="errors")))

    def stats(self) -> str:
        """Return what each stage of this DataFrame's last run took: rows, bytes, time, and rows that failed.

        >>> ps.range(3).stats()
        'No query has run.'
        >>> "finished in" in ps.range(3).with_column("x", ps.col("id") + 1).collect().stats()
        True
        """
        return str(self._stats or Stats())

    def to_torch_iterable(self) -> torch.utils.data.IterableDataset[dict[str, Any]]:
        """Return a torch dataset that runs the query anew in each iteration and yields rows as dicts."""
        from penstock.frame.torch import iterable_dataset

        return iterable_dataset(self)

    def to_torch_map(self) -> torch.utils.data.Dataset[dict[str, Any]]:
        """Run the query and return its rows as a torch dataset with length and index."""
        from penstock.frame.torch import map_dataset

        return map_dataset(self.to_arrow())

    # --- show ---

    @refusing_unknown("show")
    def show(
        self, n: int = SHOWN_ROWS, *, limit: int | None = None, format: str = "default", max_width: int = 30
    ) -> None:
        """Print the first rows as an aligned table; in a notebook, as HTML."""
        from penstock.frame import display

        display.check_format(format)
        wanted = limit if limit is not None else n
        table = self._own(self.limit(wanted)).to_arrow()
        total = table.num_rows if table.num_rows < wanted else None
        display.show(table, self._schema_of(table), total_rows=total, max_width=max_width, format=format)

    def __repr__(self) -> str:
        from penstock.frame import display

        if self._preview is not None:
            return display.render_text(self._preview, self._schema_of(self._preview), total_rows=None)
        if self._schema is None:
            return f"DataFrame (columns known once it runs)\n{_drawn(self._plan)}"
        return f"{self._schema!r}\n(not run yet: call show() or collect())"

    def _repr_html_(self) -> str:
        from penstock.frame import display

        if self._preview is not None:
            return display.render_html(self._preview, self._schema_of(self._preview), total_rows=None)
        if self._schema is None:
            return f"<pre>{_drawn(self._plan)}</pre>"
        return self._schema._repr_html_() + "<small>(not run yet: call show() or collect())</small>"

    # --- inside ---

    def _batches(
        self, *, is_ordered: bool = True, subscribers: Iterable[Subscriber] = (), num_ahead: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Run the query and yield its rows."""
        listening = [*_subscribers(), *self._new_log(), *subscribers]
        return run(self._plan, is_ordered=is_ordered, subscribers=listening, num_ahead=num_ahead)

    def _write(
        self, sink: Sink, resume: Resume, budget: float | None, job_dir: str | os.PathLike[str] | None
    ) -> DataFrame:
        """Run the query into a sink and return what that says."""
        from penstock.io.memory import MemorySource
        from penstock.io.writer import FileSink

        plan, log = nodes.Write(self._plan, sink), self._new_log()
        if resume is False and budget is None and job_dir is not None:
            raise InvalidArgumentError("job_dir= is where a job is kept; give resume=True with it.")
        if resume is False and budget is None:
            if isinstance(sink, FileSink) and sink.mode == "overwrite":
                from penstock.jobs.folder import open_job_folder

                open_job_folder(sink.root, sink.storage_options).lock.refuse_if_held()
            table = write(plan, subscribers=[*_subscribers(), *log])
        else:
            from penstock.cost.budget import spending
            from penstock.jobs.write import write_job

            with nullcontext() if budget is None else spending(budget):
                table = write_job(plan, resume, job_dir, subscribers=[*_subscribers(), *log])
        written = DataFrame(nodes.Scan(MemorySource.from_table(table)))
        written._errors, written._stats = self._errors, self._stats
        written._preview = table.slice(0, SHOWN_ROWS)
        return written

    def _new_log(self) -> list[Subscriber]:
        """Return what keeps account of a run that begins; nothing for rows in memory, which keep what they have."""
        if isinstance(self._plan, nodes.Scan):
            return []
        runner = self if self._runs_for is None else self._runs_for
        runner._errors, runner._stats = ErrorLog(), Stats()
        return [runner._errors, runner._stats]

    def _own(self, part: DataFrame) -> DataFrame:
        """Return another DataFrame whose runs are runs of this one."""
        if not isinstance(self._plan, nodes.Scan):
            part._runs_for = self if self._runs_for is None else self._runs_for
        return part

    def _map(
        self, verb: Literal["map", "flat_map", "filter"], fn: Callable[..., Any], options: dict[str, Any]
    ) -> DataFrame:
        check_known(verb, options, ROW_OPTIONS)
        return DataFrame(nodes.MapBatches(self._plan, make_batch_spec(verb, fn, **options)))

    def _chosen(self, columns: tuple[ColumnInput, ...]) -> list[Expr]:
        return [_node(column) for column in columns] if columns else [ColumnRef(name) for name in self.columns]

    def _where_all(self, conditions: list[Expression]) -> DataFrame:
        result = self
        for condition in conditions:
            result = result.where(condition)
        return result

    def _aligned(self, other: DataFrame) -> tuple[Plan, Plan]:
        """Return both plans with columns of equal order and type, as far as both are known and agree."""
        if not isinstance(other, DataFrame):
            raise InvalidArgumentError(f"The other side must be a DataFrame; got {type(other).__name__}")
        left, right = self._plan.schema, other._plan.schema
        if left is None or right is None or set(left.names) != set(right.names):
            return self._plan, other._plan
        common = {name: supertype(left[name].dtype, right[name].dtype) for name in left.names}
        return _cast_to(self._plan, common, left.names), _cast_to(other._plan, common, left.names)

    def _projected(self, exprs: Iterable[Expr]) -> DataFrame:
        """Return a select list over this; what it explodes is computed as lists first and made into rows then."""
        exploded: dict[str, Expr] = {}
        for expr in exprs:
            match unalias(expr):
                case Call("explode", (lists,)):
                    exploded[expr.name] = Alias(lists, expr.name)
        plan: Plan = nodes.Project(self._plan, tuple(exploded.get(expr.name, expr) for expr in exprs))
        return DataFrame(nodes.Explode(plan, tuple(exploded)) if exploded else plan)

    def _combined(self, verb: Literal["union", "intersect", "except"], other: DataFrame) -> DataFrame:
        sides = [DataFrame(plan).with_column(SIDE, number) for number, plan in enumerate(self._aligned(other))]
        both = nodes.Concat(tuple(side._plan for side in sides))
        return DataFrame(nodes.SetOperation(both, verb, SIDE))

    def _schema_of(self, table: pa.Table) -> Schema:
        return self._schema or Schema.from_arrow(table.schema)


def _node(column: ColumnInput) -> Expr:
    if isinstance(column, Expression):
        return column._node
    if isinstance(column, str):
        return col(column)._node
    raise InvalidArgumentError(f"A column is a name or an expression; got {column!r} of type {type(column).__name__}")


def _named(name: str, value: Any) -> Expr:
    """Return a value or an expression as the column ``name``; an unnest gives the names of its fields instead."""
    if isinstance(value, str):
        raise InvalidArgumentError(
            f"Column {_name(name)!r} is given the text {value!r}; write ps.col({value!r}) for the column of that name, "
            f"or ps.lit({value!r}) for the text itself"
        )
    node = lit(value)._node
    return node if isinstance(node, Unnest) else Alias(node, _name(name))


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"The name of a column is text; got {name!r} of type {type(name).__name__}")
    return name


def _mapping(verb: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"{verb} takes a dict by column name; got {given!r} of type {type(given).__name__}")
    return given


def _count(what: str, number: Any) -> int:
    """Return a number of rows or batches as an int, numpy's kinds included."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < 0:
        raise InvalidArgumentError(f"{what} needs a whole number, 0 or more; got {number!r}")
    return operator.index(number)


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


def _drawn(plan: Plan) -> str:
    from penstock.plan.explain import explain

    return explain(plan)


def _subscribers() -> list[Subscriber]:
    is_seen = "IPython" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())  # else rich is not loaded
    if not (is_seen and get_config().progress):
        return []
    from penstock.observe.progress import Progress

    return [Progress()]

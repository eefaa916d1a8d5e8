"""``Dataset``: a DataFrame with the verbs and parameters of Ray Data."""

# mypy: disable-error-code="override"
# Ray Data gives some verbs of DataFrame other parameters; users of one class never hold the other.

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.compat.ray.data import aggregate
from penstock.compat.ray.data.aggregate import ColumnAggregate, results_of
from penstock.compat.ray.data.grouped import GroupedData
from penstock.compat.ray.data.iterator import DataIterator
from penstock.compat.ray.data.resource_options import FORMATS, check_placement, function_options, refuse_if
from penstock.compat.ray.data.write_verbs import DatasetWrites
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col
from penstock.frame.dataframe import DataFrame
from penstock.plan.nodes import check_columns
from penstock.types import Field, Schema, Series
from penstock.udf.formats import batch_in_format, checked_format

_JOINS = {
    "inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer", "left_semi": "semi",
    "left_anti": "anti", "right_semi": "semi", "right_anti": "anti",
}  # fmt: skip


def _seed(given: Any) -> int | None:
    """Return the seed that a number or a RandomSeedConfig gives."""
    seed: int | None = getattr(given, "seed", given)
    return seed


class RaySchema(Schema):
    """The columns of a Dataset with their Arrow types; ``ray.data.Schema``."""

    __slots__ = ("_fetch",)

    def __init__(self, fields: Iterable[Field], fetch: Callable[[], Schema] | None = None) -> None:
        """Take the columns, or a function that finds them, which is called when they are first used."""
        self._fetch = fetch
        if fetch is None:
            super().__init__(fields)

    def __getattr__(self, name: str) -> Any:
        if name not in Schema.__slots__ or self._fetch is None:
            raise AttributeError(name)
        super().__init__(self._fetch())
        self._fetch = None
        return getattr(self, name)

    def __call__(self, fetch_if_missing: bool = True) -> RaySchema | None:
        """Return the schema itself, or None if the query would have to run to tell the columns and must not."""
        return self if fetch_if_missing or self._fetch is None else None

    @property
    def types(self) -> list[pa.DataType]:
        return list(self.base_schema.types)

    @property
    def base_schema(self) -> pa.Schema:
        return self.to_arrow()

    def __repr__(self) -> str:
        rows = [("Column", "Type"), ("------", "----"), *zip(self.names, map(str, self.types), strict=True)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {dtype}" for name, dtype in rows)


class RayColumnNames(list[str]):
    """The names of the columns. ``ds.columns(fetch_if_missing=False)`` is None if only running the query can tell
    them."""

    is_known = True

    def __call__(self, fetch_if_missing: bool = True) -> RayColumnNames | None:
        return self if fetch_if_missing or self.is_known else None


class Dataset(aggregate.Shortcuts, DatasetWrites):  # type: ignore[misc]
    """A lazy table with Ray Data's verbs. Every verb of ``penstock.DataFrame`` that Ray Data lacks works too."""

    @property
    def schema(self) -> RaySchema:
        return RaySchema(self._schema or (), None if self._schema is not None else lambda: super(Dataset, self).schema)

    @property
    def columns(self) -> RayColumnNames:
        is_known, names = self._schema is not None, RayColumnNames(super().columns)
        names.is_known = is_known
        return names

    def _with_known_columns(self) -> Self:
        """Run the query now if nothing else tells its columns: verbs of two datasets need their names."""
        return self if self._plan.schema is not None else self.materialize()

    # --- rows and columns ---

    def map_batches(self, fn: Callable[..., Any], **options: Any) -> Self:
        return super().map_batches(fn, **function_options(options))

    def map(self, fn: Callable[..., Any], **options: Any) -> Self:
        return super().map(fn, **function_options(options))

    def flat_map(self, fn: Callable[..., Any], **options: Any) -> Self:
        return super().flat_map(fn, **function_options(options))

    def filter(self, fn: Any = None, expr: Any = None, **options: Any) -> Self:
        refuse_if((fn is None) == (expr is None), "filter takes either fn= or expr=")
        if expr is None:
            return self.where(fn, **function_options(options))
        refuse_if(any(name.startswith("fn_") for name in options), "filter takes arguments of fn=, not of expr=")
        return self.where(expr)

    def with_column(self, column_name: str, expr: Any, **options: Any) -> Self:
        check_placement("with_column", options)
        return super().with_column(column_name, expr)

    def with_columns(self, exprs: Any, *more_exprs: Any, **options: Any) -> Self:
        """Add columns by name, or expressions that name themselves, such as ``unnest(...)``."""
        check_placement("with_columns", options)
        if isinstance(exprs, Mapping):
            return super().with_columns(exprs)
        return self.select(col("*"), *([exprs] if isinstance(exprs, Expression) else exprs), *more_exprs)

    def add_column(
        self, col: str, fn: Callable[[Any], Any], *, batch_format: str | None = "pandas", **options: Any
    ) -> Self:
        """Call ``fn`` with batches of a format, for a new or an existing column; the others do not change."""
        refuse_if(not callable(fn), f"add_column takes a function; got {fn!r}")
        wanted = checked_format("add_column", str(FORMATS.get(batch_format, batch_format)))

        def added(table: pa.Table) -> pa.Table:
            batch = batch_in_format(table.combine_chunks().to_batches()[0], wanted) if len(table) else None
            found = [] if batch is None else fn(batch)
            given = [found] * len(table) if np.isscalar(found) else found
            values = Series.from_pylist(given, name=col).to_arrow()
            if col in table.column_names:
                return table.set_column(table.column_names.index(col), col, values)
            return table.append_column(col, values)

        return self.map_batches(added, batch_format="pyarrow", **options)

    def select_columns(self, cols: str | Sequence[str], **options: Any) -> Self:
        check_placement("select_columns", options)
        names = [cols] if isinstance(cols, str) else list(cols)
        return self.select(*names)

    def drop_columns(self, *cols: Any, **options: Any) -> Self:
        check_placement("drop_columns", options)
        names = [name for each in cols for name in ([each] if isinstance(each, str) else each)]
        refuse_if(len(set(names)) < len(names), f"drop_columns takes each column once; got {names!r}")
        return super().drop_columns(*cols)

    def rename_columns(self, names: Any, **options: Any) -> Self:
        check_placement("rename_columns", options)
        refuse_if(not names, "rename_columns needs at least one name")
        if isinstance(names, Mapping):
            return super().rename_columns(names)
        if len(names) != len(self.columns):
            raise InvalidArgumentError(f"rename_columns takes {len(self.columns)} names here; got {list(names)!r}")
        return super().rename_columns(dict(zip(self.columns, names, strict=True)))

    def limit(self, limit: int) -> Self:
        return super().limit(limit)

    def sort(self, key: Any, descending: bool | list[bool] = False, boundaries: Any = None, **options: Any) -> Self:
        ours = {"desc": options.pop("desc", descending), "nulls_first": options.pop("nulls_first", False)}
        check_placement("sort", options)
        return super().sort(key, **ours)

    # --- several datasets ---

    def union(self, *other: Dataset) -> Self:
        """Append the rows of other datasets, with null in missing columns; ``DataFrame.union`` drops duplicates."""
        result = self
        for each in other:
            schemas = (result._plan.schema, each._plan.schema)
            differ = None not in schemas and len({frozenset(schema.names) for schema in schemas if schema}) > 1
            result = result.union_all_by_name(each) if differ else result.concat(each)
        return result

    def zip(self, *other: Any) -> Self:
        result = self._with_known_columns()
        for each in other:
            result = DataFrame.zip(result, each._with_known_columns())
        return result

    def join(
        self, ds: Any, join_type: str, num_partitions: Any = None, on: Sequence[str] = ("id",),
        right_on: Sequence[str] | None = None, left_suffix: str | None = None, right_suffix: str | None = None,
        **options: Any,
    ) -> Self:  # fmt: skip
        """Join by equal keys. The keys are named as on the left side; in a right outer join as on the right side."""
        check_placement("join", options)
        if join_type not in _JOINS or isinstance(on, str):
            kinds = ", ".join(_JOINS)
            raise InvalidArgumentError(
                f"join takes join_type={kinds}, and lists of names; got {join_type!r}, on={on!r}"
            )
        right_keys = right_on or on
        if join_type in ("right_semi", "right_anti"):
            swapped: Self = ds.join(self, join_type.replace("right", "left"), on=right_keys, right_on=on)
            return swapped
        left, right = self._with_known_columns(), ds._with_known_columns()
        how: Any = _JOINS[join_type]
        if how in ("semi", "anti"):
            return DataFrame.join(left, right, left_on=list(on), right_on=list(right_keys), how=how)
        common = [name for name in left.columns if name not in on and name in {*right.columns} - {*right_keys}]
        if common and left_suffix == right_suffix:
            raise InvalidArgumentError(f"join: both sides have {', '.join(common)}; give left_suffix= or right_suffix=")
        keys = right_keys if how == "right" else on
        left = left._renamed(on, keys, common, left_suffix)
        return DataFrame.join(left, right._renamed(right_keys, keys, common, right_suffix), on=list(keys), how=how)

    def _renamed(self, old: Sequence[str], new: Sequence[str], common: Sequence[str], suffix: str | None) -> Self:
        names = dict(zip(old, new, strict=True)) | {name: f"{name}{suffix or ''}" for name in common}
        return super().rename_columns({name: to for name, to in names.items() if name != to})

    # --- order and parts ---

    def random_sample(self, fraction: float, *, seed: Any = None) -> Self:
        return self.sample(fraction, seed=_seed(seed))

    def random_shuffle(self, *, seed: Any = None, **options: Any) -> Self:
        check_placement("random_shuffle", options)
        return self.shuffle(_seed(seed))

    def randomize_block_order(self, *, seed: int | None = None) -> Self:
        """Return the rows as they are: the order of blocks is no promise."""
        return self

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Sequence[str] | None = None,
        sort: bool = False,
    ) -> Self:
        """Ignore ``strict``, which is about the size of blocks."""
        by_rows = target_num_rows_per_block is not None
        refuse_if(
            not keys and (num_blocks is not None) == by_rows, "repartition takes a number of blocks or of rows each"
        )
        refuse_if(shuffle and by_rows, "repartition(shuffle=True) takes a number of blocks")
        if sort:
            return self.sort(list(keys or self.columns))
        if target_num_rows_per_block is not None:
            return self.into_batches(target_num_rows_per_block)
        shuffled = self.shuffle() if shuffle else self
        if keys is not None:
            return DataFrame.repartition(shuffled, num_blocks or 1, *keys)
        return shuffled if num_blocks is None else DataFrame.repartition(shuffled, num_blocks)

    def split_at_indices(self, indices: Sequence[int]) -> list[Self]:
        refuse_if(not indices, "split_at_indices needs at least one index")
        rows = self.materialize()
        ends = [0, *indices, rows.count()]
        if any(start > end for start, end in itertools.pairwise(ends[:-1])) or min(ends) < 0:
            raise InvalidArgumentError(f"split_at_indices takes indices in ascending order; got {list(indices)!r}")
        return [rows.offset(start).limit(max(0, end - start)) for start, end in itertools.pairwise(ends)]

    def split(self, n: int, *, equal: bool = False, **options: Any) -> list[Self]:
        hints = options.get("locality_hints")
        refuse_if(n < 1, f"split needs a number of 1 or more; got {n}")
        refuse_if(hints is not None and len(hints) != n, f"split({n}) takes as many locality_hints; got {hints!r}")
        check_placement("split", options)
        rows = self.materialize()
        share, rest = divmod(rows.count(), n)
        sizes = [share + (number < rest and not equal) for number in range(n)]
        return rows.split_at_indices(list(itertools.accumulate(sizes)))[:n]

    def split_proportionately(self, proportions: Sequence[float]) -> list[Self]:
        if not proportions or min(proportions) <= 0 or sum(proportions) >= 1:
            raise InvalidArgumentError("split_proportionately takes shares above 0 with a sum below 1")
        rows = self.materialize()
        num_rows = rows.count()
        return rows.split_at_indices([int(num_rows * share) for share in itertools.accumulate(proportions)])

    def train_test_split(
        self, test_size: float | int, *, shuffle: bool = False, seed: int | None = None, stratify: str | None = None
    ) -> tuple[Self, Self]:
        if stratify is not None:
            raise refusal("train_test_split(stratify=...)", "split each group with where()")
        return DataFrame.train_test_split(self.materialize(), test_size, shuffle=shuffle, seed=seed)

    def streaming_split(self, n: int, *, equal: bool = False, **options: Any) -> list[DataIterator]:
        return [DataIterator(part) for part in self.split(n, equal=equal, **options)]

    def iterator(self) -> DataIterator:
        return DataIterator(self)

    # --- aggregates ---

    def aggregate(self, *aggs: ColumnAggregate) -> dict[str, Any]:
        return results_of(self, aggs)

    def groupby(self, key: Any, num_partitions: int | None = None) -> GroupedData:
        refuse_if(num_partitions is not None and num_partitions < 1, "groupby: num_partitions must be 1 or more")
        refuse_if(not isinstance(key, str | Sequence | None), f"groupby takes names of columns; got {key!r}")
        keys = [] if key is None else [key] if isinstance(key, str) else list(key)
        check_columns(self._plan.schema, tuple(keys), "groupby")
        return GroupedData(self, keys)

    def count(self) -> int:
        return self.count_rows()

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        values = self.select(column).distinct().to_pydict()[column]
        return [value for value in values if not (ignore_nulls and value is None)]

    def _by(self, name: str, on: Any, **options: Any) -> Any:
        names = [on] if isinstance(on, str) else list(on or self.columns)
        found = results_of(self, [getattr(aggregate, name)(each, **options) for each in names])
        return found[next(iter(found))] if isinstance(on, str) else found

    @property
    def name(self) -> str | None:
        return getattr(self, "_name", None)

    def set_name(self, name: str | None) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise refused_name("ray.data.Dataset", name)

"""The aggregations of ``ray.data.aggregate`` as expressions: a table with one line for each."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, lit, when
from penstock.functions import (
    approx_percentiles,
    count_distinct,
    list_agg,
    list_agg_distinct,
    percentile,
    to_struct,
    value_counts,
)
from penstock.types import DataType, Series
from penstock.udf.udaf import udaf

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

Build = Callable[..., Expression]


class AggregateFn:
    """An aggregation of whole rows by functions of yours; a group is one block. Its results are Python objects."""

    name: str

    def __init__(
        self, init: Callable[[Any], Any], merge: Callable[[Any, Any], Any], name: str,
        accumulate_row: Callable[[Any, dict[str, Any]], Any] | None = None,
        accumulate_block: Callable[[Any, pa.Table], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        if (accumulate_row is None) == (accumulate_block is None):
            raise InvalidArgumentError("AggregateFn takes accumulate_row or accumulate_block")
        self.name, self._init, self._finalize = name, init, finalize
        self._row, self._block = accumulate_row, accumulate_block

    def expression(self, columns: Sequence[str], keys: Sequence[str]) -> Expression:
        """Return the aggregation of ``columns`` as an expression under its name; ``keys`` are the keys of the
        groups."""
        reduce: Callable[..., Expression] = udaf(self._of_rows(tuple(keys)), return_dtype=DataType.python())
        return reduce(to_struct(**{name: col(name) for name in columns})).alias(self.name)

    def _of_rows(self, keys: tuple[str, ...]) -> Callable[[Series], Any]:
        def reduce(rows: Series) -> Any:
            block = pa.Table.from_struct_array(rows.to_arrow())
            first = [block.column(key)[0].as_py() for key in keys]
            state = self._init(first[0] if len(keys) == 1 else tuple(first))
            if self._block is not None:
                state = self._block(state, block)
            elif self._row is not None:
                state = functools.reduce(self._row, block.to_pylist(), state)
            return state if self._finalize is None else self._finalize(state)

        return reduce


class ColumnAggregateFn(AggregateFn):
    """An aggregation of one column, or of the rows. Subclasses name the expression that computes it."""

    label: str
    build: Build

    def __init__(
        self, on: str | None = None, *args: Any, ignore_nulls: bool | None = None, alias_name: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        if ignore_nulls and type(self).__name__ in ("AsList", "Unique"):
            raise refusal(f"{type(self).__name__}(ignore_nulls=True)", "filter nulls before")
        self.on = on
        self.name = alias_name or f"{self.label}({on or ''})"
        self._arguments = (args, options, ignore_nulls)

    def expression(self, columns: Sequence[str], keys: Sequence[str]) -> Expression:
        args, options, ignore_nulls = self._arguments
        if self.on is None and self.label != "count":
            raise InvalidArgumentError(f"{type(self).__name__} needs the name of a column")
        keywords = options if ignore_nulls is None else {**options, "ignore_nulls": ignore_nulls}
        return type(self).build(None if self.on is None else col(self.on), *args, **keywords).alias(self.name)


def _count(column: Expression | None, ignore_nulls: bool = False) -> Expression:
    if column is None:
        return lit(1).count()
    return column.count() if ignore_nulls else column.count("all")


def _share(condition: Expression) -> Expression:
    return when(condition, 100.0).otherwise(0.0).mean()


def _skipping(build: Build) -> Build:
    """Return an aggregation that skips nulls, or one that is null if there are any."""

    def aggregation(column: Expression, *args: Any, ignore_nulls: bool = True, **options: Any) -> Expression:
        found = build(column, *args, **options)
        return found if ignore_nulls else when(column.count("null") == 0, found).otherwise(None)

    return aggregation


_TABLE: dict[str, tuple[str, Build]] = {
    "Count": ("count", _count),
    "Sum": ("sum", _skipping(lambda column: column.sum())),
    "Min": ("min", _skipping(lambda column: column.min())),
    "Max": ("max", _skipping(lambda column: column.max())),
    "Mean": ("mean", _skipping(lambda column: column.mean())),
    "Std": ("std", _skipping(lambda column, ddof=1: column.stddev(ddof=ddof))),
    "AbsMax": ("abs_max", _skipping(lambda column: column.abs().max())),
    "Quantile": ("quantile", _skipping(lambda column, q=0.5: percentile(column, q))),
    "ApproximateQuantile": ("approx_quantile", lambda column, quantiles, **_: approx_percentiles(column, quantiles)),
    "AsList": ("list", lambda column, **_: list_agg(column)),
    "Unique": ("unique", lambda column, **_: list_agg_distinct(column)),
    "CountDistinct": ("count_distinct", _skipping(count_distinct)),
    "ValueCounter": ("value_counter", value_counts),
    "MissingValuePercentage": ("missing_pct", lambda column: _share(column.is_null())),
    "ZeroPercentage": ("zero_pct", _skipping(lambda column: when(column.is_null(), None).otherwise(
        when(column == 0, 100.0).otherwise(0.0)).mean())),
}  # fmt: skip
for _name, (_label, _build) in _TABLE.items():
    globals()[_name] = type(
        _name, (ColumnAggregateFn,), {"label": _label, "build": staticmethod(_build), "__module__": __name__}
    )


class AggregateFnV2(AggregateFn, ABC):
    """An aggregation by methods of yours; a group is one block. Its results are Python objects."""

    def __init__(self, name: str, zero_factory: Callable[[], Any], *, on: str | None, ignore_nulls: bool) -> None:
        if on is None:
            raise refusal(f"{type(self).__name__}(on=None)", "name a column")
        self.on, self.name, self._zero, self._ignores_nulls = on, name, zero_factory, ignore_nulls

    def get_target_column(self) -> str | None:
        return self.on

    def expression(self, columns: Sequence[str], keys: Sequence[str]) -> Expression:
        reduce: Callable[..., Expression] = udaf(self._reduced, return_dtype=DataType.python())
        return reduce(col(str(self.on))).alias(self.name)

    def _reduced(self, values: Series) -> Any:
        array = values.to_arrow().drop_null() if self._ignores_nulls else values.to_arrow()
        if not len(array):
            return self.finalize(self._zero())
        block = pa.table({str(self.on): array})
        return self.finalize(self.combine(self._zero(), self.aggregate_block(block)))

    @abstractmethod
    def aggregate_block(self, block: pa.Table) -> Any: ...

    @abstractmethod
    def combine(self, current_accumulator: Any, new: Any) -> Any: ...

    def finalize(self, accumulator: Any) -> Any:
        return accumulator


__all__ = ["AggregateFn", "AggregateFnV2", *_TABLE]


class Shortcuts:
    """Aggregates of columns under the names of Ray Data, for a dataset and for its groups."""

    @abstractmethod
    def _by(self, name: str, on: Any, **options: Any) -> Any:
        """Aggregate the columns ``on``, by default all, by the aggregation of this name."""

    def sum(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._by("Sum", on, ignore_nulls=ignore_nulls)

    def min(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._by("Min", on, ignore_nulls=ignore_nulls)

    def max(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._by("Max", on, ignore_nulls=ignore_nulls)

    def mean(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._by("Mean", on, ignore_nulls=ignore_nulls)

    def std(self, on: Any = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        return self._by("Std", on, ddof=ddof, ignore_nulls=ignore_nulls)


def results_of(frame: DataFrame, aggregations: Sequence[AggregateFn]) -> dict[str, Any]:
    """Run aggregations over all rows and return their results by name."""
    return frame.agg(*(each.expression(frame.columns, ()) for each in aggregations)).to_pylist()[0]


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data.aggregate", name)

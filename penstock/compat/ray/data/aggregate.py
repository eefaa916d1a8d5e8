"""The aggregations of ``ray.data.aggregate`` as expressions: a table with one line for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
    value_counts,
)

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

Build = Callable[..., Expression]


class ColumnAggregate:
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

    def expression(self) -> Expression:
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
        _name, (ColumnAggregate,), {"label": _label, "build": staticmethod(_build), "__module__": __name__}
    )


__all__ = [*_TABLE]


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


def results_of(frame: DataFrame, aggregations: Sequence[ColumnAggregate]) -> dict[str, Any]:
    """Run aggregations over all rows and return their results by name."""
    return frame.agg(*(each.expression() for each in aggregations)).to_pylist()[0]


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data.aggregate", name)

"""``Dataset.summary``: statistics of each column, chosen by its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.compat.ray.data import aggregate
from penstock.compat.ray.data.aggregate import AggregateFn, results_of
from penstock.compat.translation import refusal
from penstock.frame.dataframe import DataFrame
from penstock.types import DataType

Choose = Callable[[str], Sequence[AggregateFn]]

Options = dict[str, dict[str, Any]]  # of aggregations, by their names

_EVERY: Options = {"Count": {"ignore_nulls": False}, "MissingValuePercentage": {}}
_ORDERED: Options = {"Min": {}, "Max": {}}
_NUMERIC: Options = {"Mean": {}, "Std": {"ddof": 0}, "ApproximateQuantile": {"quantiles": [0.5]}, "ZeroPercentage": {}}


class DatasetSummary:
    """The statistics of ``columns``, each by its name."""

    def __init__(self, dataset_schema: pa.Schema, statistics: Mapping[str, Mapping[str, Any]]) -> None:
        self.dataset_schema, self.columns = dataset_schema, list(statistics)
        self._statistics = statistics

    def to_pandas(self) -> Any:
        """Return a row for each statistic, in the order of their names, with a column for each column."""
        import pandas

        names = sorted({name for each in self._statistics.values() for name in each})
        columns = {column: [each.get(name) for name in names] for column, each in self._statistics.items()}
        return pandas.DataFrame({"statistic": names, **columns})

    def get_column_stats(self, column: str) -> Any:
        """Return the statistics of one column as ``statistic`` and ``value``."""
        return self.to_pandas()[["statistic", column]].rename(columns={column: "value"})


def summarized(frame: DataFrame, columns: Sequence[str] | None, chosen: Mapping[Any, Choose]) -> DatasetSummary:
    """Compute the statistics of columns; ``chosen`` has other aggregations for some types."""
    if any(not isinstance(dtype, DataType) for dtype in chosen):
        raise refusal("summary(override_dtype_agg_mapping=...) of a kind of types", "name each DataType")
    schema = frame.select(*columns).schema if columns else frame.schema
    found = {field.name: chosen.get(field.dtype, _by_default(field.dtype))(field.name) for field in schema}
    values = results_of(frame, [each for several in found.values() for each in several])
    statistics: dict[str, dict[str, Any]] = {column: {} for column in found}
    for column, several in found.items():
        for each in several:
            name, value = each.name.removesuffix(f"({column})"), values[each.name]
            parts = {f"{name}[{number}]": part for number, part in enumerate(value)} if isinstance(value, list) else {}
            statistics[column] |= parts or {name: value}
    return DatasetSummary(schema.to_arrow(), statistics)


def _by_default(dtype: DataType) -> Choose:
    wanted = dict(_EVERY)
    if dtype.is_numeric() or dtype.is_temporal():
        wanted |= _ORDERED
    if dtype.is_numeric():
        wanted |= _NUMERIC
    elif dtype.is_string() or dtype.is_binary() or dtype.is_boolean():
        wanted["ApproximateTopK"] = {"k": 10}
    return lambda column: [getattr(aggregate, name)(column, **options) for name, options in wanted.items()]

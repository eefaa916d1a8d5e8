"""Aggregate functions: a type rule and a SQL template for each name.

In a template, ``{0}`` is the first argument and ``{over}`` the window of a window function, which is empty in a group.
Types, nulls and NaN follow Daft; see ``docs/guides/relational.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.types as pt

from penstock.expr.kinds import ANY, BOOL, BOOLEAN, FLOAT64, INT64, NUMBER, STRING, UINT64, Kind
from penstock.expr.registry import Resolve
from penstock.expr.signatures import same_type, takes
from penstock.types import DataType
from penstock.types.frozen import frozen

ORDERED = Kind("a value that can be compared", DataType.is_comparable)
TEXT_OR_LIST = Kind("a string or a list", lambda dtype: dtype.is_string() or dtype.is_list())


@frozen
class AggregateFunction:
    """``resolve(*dtypes, **options)`` returns the type; ``sql`` is a template, or a function that returns it."""

    resolve: Resolve
    sql: str | Callable[..., str]

    def template(self, *dtypes: DataType, **options: Any) -> str:
        return self.sql if isinstance(self.sql, str) else self.sql(*dtypes, **options)


def _total_type(dtype: DataType, **_: Any) -> DataType:
    """Return the type of a sum or product: the widest of its kind."""
    if dtype.is_integer():
        return UINT64 if pt.is_unsigned_integer(dtype.arrow) else INT64
    if dtype.is_decimal():
        return DataType.decimal128(38, dtype.arrow.scale)
    return dtype


def _product_sql(dtype: DataType, **_: Any) -> str:
    if not dtype.is_integer():
        return "product({0}){over}"
    values = "list({0}::hugeint) filter ({0} is not null){over}"  # product() computes with floats
    return f"case when count({{0}}){{over}} > 0 then list_reduce({values}, lambda a, b: a * b) end"


_SKEW = (  # skewness() fails for NaN and infinities, so it gets only the other values
    "case when count({0}){over} = 0 then null when count({0}){over} < 2 or var_pop({0}){over} = 0 "
    "or not isfinite(var_pop({0}){over}) then 'nan'::double when count({0}){over} = 2 then 0 "
    "else skewness({0}) filter (isfinite({0}::double)){over} * (count({0}){over} - 2) "
    "/ sqrt(count({0}){over} * (count({0}){over} - 1)::double) end"
)


def _spread_sql(function: str) -> Callable[..., str]:
    """Return the SQL of a variance or standard deviation that divides by ``n - ddof``."""

    def sql(dtype: DataType, *, ddof: int = 1) -> str:
        if ddof in (0, 1):
            return f"{function}_{'samp' if ddof else 'pop'}({{0}}){{over}}"
        num_values = "count({0}){over}"
        variance = (
            f"case when {num_values} > {ddof} then var_pop({{0}}){{over}} * {num_values} / ({num_values} - {ddof}) end"
        )
        return variance if function == "var" else f"sqrt({variance})"

    return sql


_COUNTS = {"valid": "count({0}){over}", "all": "count(*){over}", "null": "count(*){over} - count({0}){over}"}


def _percentiles_type(dtype: DataType, *, percentiles: Any) -> DataType:
    return DataType.list(FLOAT64) if isinstance(percentiles, tuple) else FLOAT64


def _percentiles_sql(function: str) -> Callable[..., str]:
    def sql(dtype: DataType, *, percentiles: Any) -> str:
        given = list(percentiles) if isinstance(percentiles, tuple) else percentiles
        return f"{function}({{0}}::double, {given}){{over}}"

    return sql


def _joined_sql(dtype: DataType, *, delimiter: str = "") -> str:
    quoted = "'" + delimiter.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"
    if dtype.is_string() or dtype.is_null():
        return f"string_agg({{0}}::varchar, {quoted}){{over}}"
    return "flatten(list({0}) filter ({0} is not null){over})"


AGGREGATES = {
    "sum": AggregateFunction(takes(NUMBER, returns=_total_type), "sum({0}){over}"),
    "product": AggregateFunction(takes(NUMBER, returns=_total_type), _product_sql),
    "mean": AggregateFunction(takes(NUMBER, returns=FLOAT64), "avg({0}){over}"),
    "median": AggregateFunction(takes(NUMBER, returns=FLOAT64), "median({0}::double){over}"),
    "min": AggregateFunction(takes(ORDERED, returns=same_type), "min({0}){over}"),
    "max": AggregateFunction(takes(ORDERED, returns=same_type), "max({0}){over}"),
    "count": AggregateFunction(takes(ANY, returns=UINT64), lambda _, mode: _COUNTS[mode]),
    "count_distinct": AggregateFunction(takes(ANY, returns=UINT64), "count(distinct {0}){over}"),
    "approx_count_distinct": AggregateFunction(takes(ANY, returns=UINT64), "approx_count_distinct({0}){over}"),
    "approx_percentiles": AggregateFunction(
        takes(NUMBER, returns=_percentiles_type), _percentiles_sql("approx_quantile")
    ),
    "percentile": AggregateFunction(takes(NUMBER, returns=_percentiles_type), _percentiles_sql("quantile_cont")),
    "any_value": AggregateFunction(
        takes(ANY, returns=same_type),
        lambda _, ignore_nulls=False: f"{'any_value' if ignore_nulls else 'first'}({{0}}){{over}}",
    ),
    "stddev": AggregateFunction(takes(NUMBER, returns=FLOAT64), _spread_sql("stddev")),
    "var": AggregateFunction(takes(NUMBER, returns=FLOAT64), _spread_sql("var")),
    "skew": AggregateFunction(takes(NUMBER, returns=FLOAT64), _SKEW),
    "bool_and": AggregateFunction(takes(BOOLEAN, returns=BOOL), "bool_and({0}::boolean){over}"),
    "bool_or": AggregateFunction(takes(BOOLEAN, returns=BOOL), "bool_or({0}::boolean){over}"),
    "list_agg": AggregateFunction(takes(ANY, returns=DataType.list), "coalesce(list({0}){over}, [])"),
    "list_agg_distinct": AggregateFunction(
        takes(ANY, returns=DataType.list), "coalesce(list(distinct {0}) filter ({0} is not null){over}, [])"
    ),
    "string_agg": AggregateFunction(
        takes(TEXT_OR_LIST, returns=lambda dtype, **_: STRING if dtype.is_null() else dtype), _joined_sql
    ),
    "value_counts": AggregateFunction(
        takes(ANY, returns=lambda dtype: DataType.map(STRING if dtype.is_null() else dtype, UINT64)),
        lambda dtype: (
            "map([]::varchar[], []::ubigint[])" if dtype.is_null() else "coalesce(histogram({0}){over}, map {{}})"
        ),
    ),
}


def _at_row(function: str) -> AggregateFunction:
    """Return the SQL of ``lag`` or ``lead``: the value some rows away; outside the partition, the second argument."""

    def sql(*dtypes: DataType, offset: int) -> str:
        return f"{function}({{0}}, {offset}{', {1}' if len(dtypes) > 1 else ''}){{over}}"

    return AggregateFunction(takes(ANY, rest=ANY, returns=same_type), sql)


def _at_end(function: str) -> AggregateFunction:
    def sql(dtype: DataType, *, ignore_nulls: bool) -> str:
        return f"{function}({{0}}{' ignore nulls' if ignore_nulls else ''}){{over}}"

    return AggregateFunction(takes(ANY, returns=same_type), sql)


WINDOW_FUNCTIONS = AGGREGATES | {
    "row_number": AggregateFunction(takes(returns=UINT64), "row_number(){over}"),
    "rank": AggregateFunction(takes(returns=UINT64), "rank(){over}"),
    "dense_rank": AggregateFunction(takes(returns=UINT64), "dense_rank(){over}"),
    "lag": _at_row("lag"),
    "lead": _at_row("lead"),
    "first_value": _at_end("first_value"),
    "last_value": _at_end("last_value"),
}

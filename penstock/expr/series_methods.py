"""Methods and operators of ``Series``: the same as on ``Expression``, but computed at once.

series.upper()              # col("x").upper() over the values of series
series * 2 > other          # another Series is a second column; a Series of one row is a constant
"""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, lit
from penstock.expr.nodes import Alias, Call, Cast, ColumnRef, Literal, bottom_up
from penstock.types import Schema, Series as Series
from penstock.types.plain import arrow_array
from penstock.types.series import connect_methods

_AGGREGATES = ("count", "max", "mean", "min", "product", "stddev", "sum")
_ROW_BY_ROW = (Alias, Call, Cast, ColumnRef, Literal)


def _find(series: Series, name: str) -> Any:
    if name in _AGGREGATES:
        return functools.partial(_aggregated, name, series)
    try:
        getattr(col("x"), name)
    except AttributeError as exc:
        raise AttributeError(str(exc).replace("Expression", "Series", 1), name=name, obj=None) from None
    return functools.partial(_computed, name, series)


def _aggregated(name: str, series: Series) -> Series:
    import pyarrow.compute as pc

    options = {"ddof": 1} if name == "stddev" else {}  # the default of expressions
    found = getattr(pc, name)(series.to_arrow(), **options)
    return Series(arrow_array([found.as_py()], found.type), series.name)


def _computed(method: str, series: Series, *args: Any, **options: Any) -> Series:
    """Run a method of expressions; each Series among the arguments is a column."""
    columns = [series]

    def operand(value: Any) -> Any:
        if not isinstance(value, Series):
            return value
        if len(value) == 1 != len(series):
            return lit(value.to_arrow()[0])
        if len(value) != len(series):
            raise InvalidArgumentError(f"{method.strip('_')}: a Series has {len(series)} rows, another {len(value)}")
        columns.append(value)
        return col(str(len(columns) - 1))

    first = col("0")
    expr = getattr(first, method)(*map(operand, args), **{name: operand(value) for name, value in options.items()})
    if not isinstance(expr, Expression) or not all(isinstance(node, _ROW_BY_ROW) for node in bottom_up(expr._node)):
        raise InvalidArgumentError(f"{method} needs a query, so a Series does not have it; use it in a DataFrame")
    from penstock.expr.evaluate import Program

    batch = pa.record_batch({str(number): column.to_arrow() for number, column in enumerate(columns)})
    program = Program([Alias(expr._node, "found")], Schema.from_arrow(batch.schema))
    return Series(program.run(batch).column(0), series.name)


connect_methods(_find)

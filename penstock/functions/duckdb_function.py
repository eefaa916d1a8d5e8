"""The scalar functions of DuckDB by their name. ``sql_expr`` calls them where ``penstock.functions`` has none."""

from __future__ import annotations

import functools
from typing import Any

from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr.arrays import on_arrays
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call, lit
from penstock.expr.registry import Value, kernel
from penstock.relational.scalar import evaluate, scalar_functions
from penstock.types import DataType
from penstock.types.plain import arrow_array, arrow_scalar

__all__ = ["duckdb_function"]

_LETTERS = "abcdefgh"


def duckdb_function(name: str, *args: Any) -> Expression:
    """Call a scalar function of DuckDB by its name, with columns and constants.

    ``ps.sql_expr("bin(n)")`` does the same. The function must give the same result for the same arguments.

    >>> ps.from_pydict({"n": [5]}).select(duckdb_function("bin", ps.col("n"))).to_pydict()
    {'n': ['101']}
    """
    if str(name).lower() not in scalar_functions():
        raise InvalidArgumentError(f"{name!r} is no function of DuckDB that gives one value for each row")
    columns: list[Expression] = []
    parts = []
    for arg in args:
        text = _literal(arg)
        if text is None:
            columns.append(lit(arg))
            text = _LETTERS[len(columns) - 1 : len(columns)]
        parts.append(text)
    if not 0 < len(columns) <= len(_LETTERS):
        raise InvalidArgumentError(f"duckdb_function({name!r}) takes one to {len(_LETTERS)} columns; use ps.col(...)")
    return call("duckdb_function", *columns, sql=f"{name}({', '.join(parts)})")


def _literal(value: Any) -> str | None:
    """Return a constant as SQL, since some functions take no column in its place; None for other values."""
    if value is None:
        return "null"
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    return repr(value).lower() if isinstance(value, bool | int) else None


@functools.lru_cache(maxsize=256)
def _result_type(*dtypes: DataType, sql: str) -> DataType:
    if all(dtype.is_null() for dtype in dtypes):
        return DataType.null()
    try:
        return DataType(evaluate("DuckDB", sql, [arrow_array([], dtype.arrow) for dtype in dtypes]).type)
    except ComputeError as exc:
        raise TypeMismatchError(str(exc)) from exc


@kernel("duckdb_function", _result_type)
@on_arrays
def _duckdb_function(*arrays: Any, sql: str) -> Value:
    dtype = _result_type(*(DataType(array.type) for array in arrays), sql=sql)
    if dtype.is_null():
        return arrow_array([None] * len(arrays[0]), arrow_scalar(None).type)
    return cast(evaluate("DuckDB", sql, list(arrays)), dtype=dtype, is_strict=True)

"""Expressions as SQL, where DuckDB computes the same values as Penstock."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.expr.kinds import FLOAT64, INT64
from penstock.expr.nodes import Call, ColumnRef, Expr, Literal, unalias
from penstock.expr.resolve import dtype_of
from penstock.types import DataType, Schema

_COMPARISONS = {
    "equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="
}  # fmt: skip
_FLOAT_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*"}  # of integers they overflow in another way

SMALL = 2**15  # rests below it are small integers, so DuckDB can group by them without hashing


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def to_sql(expr: Expr, schema: Schema) -> str | None:
    """Return an expression as SQL over columns of ``schema``; None if DuckDB might give another value for some row."""
    match unalias(expr):
        case ColumnRef(name):
            return quoted(name)
        case Call("modulo", (value, Literal(divisor))) if _is_above_zero(divisor) and dtype_of(value, schema) == INT64:
            number = to_sql(value, schema)
            if number is None:
                return None
            rest = f"({number} % {divisor.as_py()})"  # here DuckDB uses another sign
            found = f"(case when {rest} < 0 then {rest} + {divisor.as_py()} else {rest} end)"
            return f"{found}::smallint" if divisor.as_py() <= SMALL else found
        case Call(function, (left, right)) if function in _FLOAT_OPERATORS and {
            dtype_of(left, schema),
            dtype_of(right, schema),
        } == {FLOAT64}:
            return _infix(left, _FLOAT_OPERATORS[function], right, schema)
        case Call(function, (left, right)) if function in _COMPARISONS and _compares_equally(
            dtype_of(left, schema), dtype_of(right, schema)
        ):
            return _infix(left, _COMPARISONS[function], right, schema)
        case Call("is_null" | "not_null" as function, (ColumnRef(name),)):
            return f"({quoted(name)} is {'not ' if function == 'not_null' else ''}null)"
        case Literal(scalar):
            return _constant(scalar)
        case _:
            return None


def _infix(left: Expr, operator: str, right: Expr, schema: Schema) -> str | None:
    sides = to_sql(left, schema), to_sql(right, schema)
    return None if None in sides else f"({sides[0]} {operator} {sides[1]})"


def _constant(scalar: pa.Scalar) -> str | None:
    value: Any = scalar.as_py() if scalar.is_valid else None
    if scalar.type == pa.int64() and value is not None:
        return f"{value}::bigint" if value >= 0 else None  # DuckDB binds the sign less than the cast
    if scalar.type == pa.float64() and value is not None:
        return f"'{value!r}'::double"
    if scalar.type == pa.string() and value is not None and "\0" not in value:
        return f"""'{value.replace("'", "''")}'"""
    return None


def _is_above_zero(scalar: pa.Scalar) -> bool:
    return bool(scalar.type == pa.int64() and scalar.is_valid and scalar.as_py() > 0)


def _compares_equally(left: DataType, right: DataType) -> bool:
    """Return True for integers and for text; NaN is the largest number to DuckDB."""
    return (left.is_integer() and right.is_integer()) or (left.is_string() and right.is_string())

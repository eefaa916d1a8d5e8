"""Convert predicates to Arrow expressions, for sources that filter while they read.

The converted predicate is true for exactly the same rows; if it might differ for some row, it is not converted.
Null in place of false changes nothing under ``and`` and ``or``, but it does under ``not``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.expr.nodes import COMPARISONS, Call, ColumnRef, Expr, Literal, bottom_up, unalias
from penstock.protocols import Condition
from penstock.types import Schema
from penstock.types.plain import arrow_array

_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_OPERATORS: dict[str, Any] = {
    "equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="
}  # fmt: skip
_EXACT_IN_FLOAT = 2**53

MAX_NODES = 500  # the largest converted predicate: Arrow visits shared parts repeatedly and recursively


def to_arrow_filter(expr: Expr, schema: Schema) -> pc.Expression | None:
    """Return the predicate as an Arrow expression, or None if Arrow might differ for some row."""
    return _convert(expr, schema, is_negated=False) if num_nodes(expr) <= MAX_NODES else None


def to_condition(part: Expr, schema: Schema) -> Condition | None:
    """Return one part of a converted predicate as plain data, or None if it is not a single comparison."""
    match unalias(part):
        case Call("is_null" | "not_null" as function, (ColumnRef(column),)):
            return Condition(column, "is null" if function == "is_null" else "is not null")
        case Call("is_in", (ColumnRef(column), Literal(scalar))):
            values = [_as_type(option, schema[column].dtype.arrow) for option in scalar.values]
            return Condition(column, "in", tuple(value.as_py() for value in values if value is not None))
        case Call(function, (ColumnRef(column), Literal(scalar))) if function in _OPERATORS:
            return _comparison(function, column, scalar, schema)
        case Call(function, (Literal(scalar), ColumnRef(column))) if function in _OPERATORS:
            return _comparison(_MIRRORED.get(function, function), column, scalar, schema)
        case _:
            return None


def _comparison(function: str, column: str, scalar: pa.Scalar, schema: Schema) -> Condition | None:
    value = _as_type(scalar, schema[column].dtype.arrow)
    return None if value is None else Condition(column, _OPERATORS[function], value.as_py())


def num_nodes(expr: Expr) -> int:
    """Return the size of the tree. A shared part counts each time it occurs."""
    sizes: dict[int, int] = {}
    for node in bottom_up(expr):
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in node.children)
    return sizes[id(expr)]


def _convert(expr: Expr, schema: Schema, is_negated: bool) -> pc.Expression | None:
    match unalias(expr):
        case ColumnRef(column) if column in schema and pt.is_boolean(schema[column].dtype.arrow):
            return pc.field(column)
        case Call("not", (child,)):
            inner = _convert(child, schema, is_negated=True)
            return None if inner is None else ~inner
        case Call("and" | "or" as function, (left, right)):
            first, second = _convert(left, schema, is_negated), _convert(right, schema, is_negated)
            if first is None or second is None:
                return None
            return first & second if function == "and" else first | second
        case Call("is_null", (ColumnRef(column),)) if column in schema:
            return pc.field(column).is_null()
        case Call("not_null", (ColumnRef(column),)) if column in schema:
            return pc.field(column).is_valid()
        case Call("is_in", (ColumnRef(column), Literal(scalar))) if column in schema and not is_negated:
            return _is_in(column, scalar, schema[column].dtype.arrow)
        case Call(function, (ColumnRef(column), Literal(scalar))) if function in _OPERATORS and column in schema:
            return _compare(function, column, scalar, schema[column].dtype.arrow, is_negated)
        case Call(function, (Literal(scalar), ColumnRef(column))) if function in _OPERATORS and column in schema:
            return _compare(_MIRRORED.get(function, function), column, scalar, schema[column].dtype.arrow, is_negated)
        case _:
            return None


def _compare(
    function: str, column: str, scalar: pa.Scalar, dtype: pa.DataType, is_negated: bool
) -> pc.Expression | None:
    # Parquet's statistics ignore NaN, so Arrow may skip a row group in which only NaN makes the predicate true.
    if pt.is_floating(dtype) and (is_negated or function == "not_equal"):
        return None
    value = _as_type(scalar, dtype)
    if value is None:
        return None
    return COMPARISONS[function](pc.field(column), value)


def _is_in(column: str, scalar: pa.Scalar, dtype: pa.DataType) -> pc.Expression | None:
    if not scalar.is_valid or pt.is_floating(dtype):  # membership distinguishes 0.0 from -0.0, statistics do not
        return None
    values = [value for option in scalar.values if (value := _as_type(option, dtype)) is not None]
    if not values or len(values) < len(scalar.values):
        return None
    return pc.field(column).isin(arrow_array([value.as_py() for value in values], dtype))


def _as_type(scalar: pa.Scalar, dtype: pa.DataType) -> pa.Scalar | None:
    """Return the constant as a value of the column's type, if that does not change the comparison."""
    if not scalar.is_valid:
        return None
    if scalar.type == dtype:
        return scalar if _is_plain(dtype) else None
    if pt.is_integer(scalar.type) and (pt.is_integer(dtype) or pt.is_floating(dtype)):
        is_exact = abs(scalar.as_py()) <= _EXACT_IN_FLOAT
    else:
        is_exact = pt.is_floating(scalar.type) and pt.is_floating(dtype)
    if not is_exact or pt.is_float16(dtype):
        return None
    try:
        value = scalar.cast(dtype)
    except pa.ArrowInvalid:
        return None
    return value if value.as_py() == scalar.as_py() else None


def _is_plain(dtype: pa.DataType) -> bool:
    checks = (pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_string, pt.is_date, pt.is_timestamp)
    return any(check(dtype) for check in checks) and not pt.is_float16(dtype)

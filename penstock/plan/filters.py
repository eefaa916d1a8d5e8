"""Parts of filters that sources check while they read: comparisons of a column with a constant.

A converted part is true for exactly the same rows; if it might differ for some row, it is not converted.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.expr.nodes import COMPARISONS, Call, ColumnRef, Expr, Literal, unalias
from penstock.plan.expression_cost import is_small
from penstock.protocols import Condition
from penstock.types import Schema
from penstock.types.plain import arrow_array, arrow_scalar

_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_OPERATORS: dict[str, Any] = {
    "equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="
}  # fmt: skip
_COMPARE = {sign: COMPARISONS[function] for function, sign in _OPERATORS.items()}
_EXACT_IN_FLOAT = 2**53

MAX_CONDITIONS = 200  # that one scan checks: Arrow visits the parts of an expression recursively


def to_condition(part: Expr, schema: Schema) -> Condition | None:
    """Return one part of a filter as plain data, or None if a source might judge it differently."""
    match unalias(part):
        case ColumnRef(column) if pt.is_boolean(schema[column].dtype.arrow):
            return Condition(column, "=", True)
        case Call("is_null" | "not_null" as function, (ColumnRef(column),)):
            return Condition(column, "is null" if function == "is_null" else "is not null")
        case Call("is_in", (ColumnRef(column), Literal(scalar))):
            return _membership(column, scalar, schema[column].dtype.arrow)
        case Call("or", (left, right)) if is_small(part):
            return _either(to_condition(left, schema), to_condition(right, schema), schema)
        case Call(function, (ColumnRef(column), Literal(scalar))) if function in _OPERATORS:
            return _comparison(function, column, scalar, schema[column].dtype.arrow)
        case Call(function, (Literal(scalar), ColumnRef(column))) if function in _OPERATORS:
            return _comparison(_MIRRORED.get(function, function), column, scalar, schema[column].dtype.arrow)
        case _:
            return None


def arrow_filter(conditions: Sequence[Condition], schema: Schema) -> pc.Expression | None:
    """Return an Arrow expression that is true where all conditions are; None without conditions."""
    parts = [_in_arrow(each, schema[each.column].dtype.arrow) for each in conditions]
    return functools.reduce(operator.and_, parts) if parts else None


def _in_arrow(condition: Condition, dtype: pa.DataType) -> pc.Expression:
    column, value = pc.field(condition.column), condition.value
    match condition.operator:
        case "is null":
            return column.is_null()
        case "is not null":
            return column.is_valid()
        case "in":
            return column.isin(arrow_array(value, dtype))
        case sign:
            return _COMPARE[sign](column, arrow_scalar(value, dtype))


def _comparison(function: str, column: str, scalar: pa.Scalar, dtype: pa.DataType) -> Condition | None:
    # Parquet's statistics ignore NaN, so a source may skip a row group in which only NaN fulfils the comparison.
    if function == "not_equal" and pt.is_floating(dtype):
        return None
    value = _as_type(scalar, dtype)
    return None if value is None else Condition(column, _OPERATORS[function], value.as_py())


def _membership(column: str, scalar: pa.Scalar, dtype: pa.DataType) -> Condition | None:
    if not scalar.is_valid or pt.is_floating(dtype):  # membership distinguishes 0.0 from -0.0, statistics do not
        return None
    values = [_as_type(option, dtype) for option in scalar.values]
    if not values or None in values:
        return None
    return Condition(column, "in", tuple(value.as_py() for value in values if value is not None))


def _either(left: Condition | None, right: Condition | None, schema: Schema) -> Condition | None:
    """Return two conditions of which one must be true as one: the values that a column may have."""
    if left is None or right is None or left.column != right.column:
        return None
    sides = [each.value if each.operator == "in" else (each.value,) for each in (left, right)]
    is_listed = {left.operator, right.operator} <= {"=", "in"} and not pt.is_floating(schema[left.column].dtype.arrow)
    return Condition(left.column, "in", (*sides[0], *sides[1])) if is_listed else None


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

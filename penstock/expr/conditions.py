"""Kernels of comparison, logic, null and choice.

- A null argument gives null; ``and``, ``or`` and ``not`` follow three-valued logic, as in SQL.
- Text compares with text and numbers with numbers; there are no implicit conversions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TypeMismatchError
from penstock.expr.arrays import filled, masked, on_arrays, storage_of, validity, wrapped
from penstock.expr.casting import cast
from penstock.expr.kinds import BOOL, BOOLEAN, DATE
from penstock.expr.nodes import COMPARISONS
from penstock.expr.registry import Resolve, Value, kernel
from penstock.expr.signatures import common_type, dtypes_of, number_type, numeric, strict
from penstock.types import DataType, supertype
from penstock.types.plain import arrow_array, arrow_scalar

# --- comparison -------------------------------------------------------------------------------------------------------


def comparison_problem(left: DataType, right: DataType, is_order: bool = False) -> str:
    """Return the reason why two types cannot be compared, and the remedy; empty if they can."""
    if left.is_null() or right.is_null():
        return ""
    remedy = ""
    if _is_date_with_text(left, right):
        return ""
    if left.is_string() != right.is_string():
        other = right if left.is_string() else left
        remedy = f'; convert the text with .cast("{other}"), or the other side with .cast("string")'
    elif left.is_boolean() != right.is_boolean():
        remedy = '; convert the bool with .cast("int64")'
    elif left.is_timestamp() and right.is_timestamp() and (left.timezone is None) != (right.timezone is None):
        remedy = "; one has a timezone and one has not: .cast() one to the other's type"
    elif left.is_timestamp() and right.is_timestamp():
        return ""
    elif supertype(left, right) is not None:
        if not is_order or (_has_order(left) and _has_order(right)):
            return ""
        remedy = "; its values have no order"
    return f"cannot compare {left} with {right}{remedy}"


def _has_order(dtype: DataType) -> bool:
    """Return whether values have an order; lists and structs are compared element by element."""
    if dtype.is_struct():
        return all(map(_has_order, dtype.fields.values()))
    return _has_order(dtype.inner) if dtype.is_list() else dtype.is_comparable()


def _is_date_with_text(left: DataType, right: DataType) -> bool:
    return (left.is_date() and right.is_string()) or (left.is_string() and right.is_date())


def _as_dates(value: Value) -> Value:
    """Convert text to dates, to compare it with dates; text that is no date becomes null."""
    return cast(value, dtype=DATE, is_strict=False) if DataType(value.type).is_string() else value


def _comparison_type(is_order: bool) -> Resolve:
    def resolve(left: DataType, right: DataType) -> DataType:
        if problem := comparison_problem(left, right, is_order):
            raise TypeMismatchError(problem)
        return BOOL

    return resolve


def compare(name: str, left: Value, right: Value) -> Value:
    """Compare two values whose types ``comparison_problem`` accepts."""
    left_type, right_type = dtypes_of(left, right)
    if _is_date_with_text(left_type, right_type):
        left, right = _as_dates(left), _as_dates(right)
        left_type, right_type = dtypes_of(left, right)
    if not left_type.is_comparable() or not right_type.is_comparable():
        return _compare_objects(left, right, name=name)
    if left_type.is_integer() and right_type.is_integer():
        if pa.uint64() in (left.type, right.type) and left.type != right.type:
            return _compare_integers(left, right, name=name)
    elif left_type.is_numeric() and right_type.is_numeric() and left_type != right_type:
        dtype = common_type(left_type, right_type)
        left, right = numeric(left, dtype), numeric(right, dtype)
    elif left_type.is_timestamp() and right_type.is_timestamp() and left_type.timezone != right_type.timezone:
        right = pc.cast(right, pa.timestamp(right_type.unit, left_type.timezone))
    if DataType.float16() in dtypes_of(left, right):
        left, right = pc.cast(left, pa.float32()), pc.cast(right, pa.float32())
    return getattr(pc, name)(left, right)


@on_arrays
def _compare_integers(left: pa.Array, right: pa.Array, *, name: str) -> pa.Array:
    """Compare uint64 with signed integers, which have no common type in Arrow; NumPy compares them exactly."""
    return masked(getattr(np, name)(filled(left), filled(right)), validity(left, right))


@on_arrays
def _compare_objects(left: pa.Array, right: pa.Array, *, name: str) -> pa.Array:
    """Compare lists, structs and other nested values row by row, because Arrow has no kernel for them."""
    compare_pair, is_order = COMPARISONS[name], name not in ("equal", "not_equal")
    sides = [[_order_key(row) for row in rows] if is_order else rows
             for rows in (storage_of(side).to_pylist() for side in (left, right))]  # fmt: skip
    found = [None if a is None or b is None else compare_pair(a, b) for a, b in zip(*sides, strict=True)]
    return arrow_array(found, pa.bool_())


def _order_key(value: Any) -> Any:
    """Return a value that Python can order: elements in turn, null after the others."""
    if isinstance(value, dict):
        value = list(value.values())
    return tuple((item is None, _order_key(item)) for item in value) if isinstance(value, list) else value


for _name in COMPARISONS:
    _resolve = _comparison_type(is_order=_name not in ("equal", "not_equal"))
    strict(_name, _resolve)(lambda left, right, _name=_name: compare(_name, left, right))


@kernel("equal_null_safe", _comparison_type(is_order=False))
def _equal_null_safe(left: Value, right: Value) -> Value:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    if pa.null() in (left.type, right.type):
        return both_null
    return pc.or_(both_null, pc.coalesce(compare("equal", left, right), arrow_scalar(False)))


# --- logic ------------------------------------------------------------------------------------------------------------


def _logic_type(left: DataType, right: DataType) -> DataType:
    if left.is_integer() or right.is_integer():
        if not all(dtype.is_integer() or dtype.is_null() for dtype in (left, right)):
            raise TypeMismatchError(f"& | ^ take two bools or two integers, got {left} and {right}")
        return number_type(left, right)
    BOOLEAN.check(left)
    BOOLEAN.check(right)
    return BOOL


def _logic(name: str, on_bools: Callable[..., Any], on_integers: Callable[..., Any]) -> None:
    @kernel(name, _logic_type)
    def _kernel(left: Value, right: Value) -> Value:
        dtype = _logic_type(*dtypes_of(left, right))
        compute = on_bools if dtype.is_boolean() else on_integers
        return compute(pc.cast(left, dtype.arrow), pc.cast(right, dtype.arrow))


_logic("and", pc.and_kleene, pc.bit_wise_and)
_logic("or", pc.or_kleene, pc.bit_wise_or)
_logic("xor", pc.xor, pc.bit_wise_xor)


def _inversion_type(dtype: DataType) -> DataType:
    if dtype.is_integer():
        return dtype
    BOOLEAN.check(dtype)
    return BOOL


@strict("not", _inversion_type)
def _not(value: Value) -> Value:
    return pc.invert(value) if pa.types.is_boolean(value.type) else pc.bit_wise_not(value)


# --- null, choice and membership --------------------------------------------------------------------------------------

_FEW_OPTIONS = 8  # up to this many options, comparing with each is faster than a hash table


kernel("is_null", lambda dtype: BOOL)(pc.is_null)
kernel("not_null", lambda dtype: BOOL)(pc.is_valid)


@kernel("coalesce", common_type)
def _coalesce(*values: Value) -> Value:
    dtype = common_type(*dtypes_of(*values))
    return _choose(pc.coalesce, dtype, *(cast(value, dtype=dtype, is_strict=True) for value in values))


def _if_else_type(condition: DataType, if_true: DataType, if_false: DataType) -> DataType:
    BOOLEAN.check(condition)
    return common_type(if_true, if_false)


@kernel("if_else", _if_else_type)
def _if_else(condition: Value, if_true: Value, if_false: Value) -> Value:
    dtype = common_type(*dtypes_of(if_true, if_false))
    is_true = pc.coalesce(pc.cast(condition, pa.bool_()), arrow_scalar(False))
    choices = (cast(value, dtype=dtype, is_strict=True) for value in (if_true, if_false))
    return _choose(pc.if_else, dtype, is_true, *choices)


def _choose(compute: Callable[..., Any], dtype: DataType, *values: Value) -> Value:
    """Compute a choice among values of ``dtype``. Arrow cannot choose among extension types, so use their storage."""
    if not dtype.is_special():
        return compute(*values)
    return on_arrays(lambda *arrays: wrapped(compute(*map(storage_of, arrays)), dtype.arrow))(*values)


def _is_in_type(value: DataType, values: DataType) -> DataType:
    if not values.is_list() and not values.is_null():
        raise TypeMismatchError(f"is_in takes a list of values, got {values}")
    if values.is_list() and (problem := comparison_problem(value, values.inner, is_order=True)):
        raise TypeMismatchError(problem)
    return BOOL


@strict("is_in", _is_in_type)
def _is_in(value: Value, values: Value) -> Value:
    if not isinstance(values, pa.Scalar):
        raise TypeMismatchError("is_in takes a list of constants; use list_contains(lists, value) for a list column")
    options = values.values
    if _is_date_with_text(*dtypes_of(value, options)):
        value, options = _as_dates(value), _as_dates(options)
    dtype = common_type(*dtypes_of(value, options))
    known = cast(options.drop_null(), dtype=dtype, is_strict=True)
    value = cast(value, dtype=dtype, is_strict=True)
    if 0 < len(known) <= _FEW_OPTIONS and (dtype.is_integer() or dtype.is_string()):
        found = functools.reduce(pc.or_, (pc.equal(value, option) for option in known))
    else:
        found = pc.is_in(value, value_set=known)
    # As in SQL, the result is null for null, and for a value that is not found if one of the options is null.
    is_unknown = pc.or_(pc.is_null(value), pc.and_(pc.invert(found), arrow_scalar(options.null_count > 0)))
    return pc.if_else(is_unknown, arrow_scalar(None, pa.bool_()), found)

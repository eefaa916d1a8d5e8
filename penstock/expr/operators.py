"""Kernels of arithmetic. Importing this module registers the kernels of every operator and core method.

- A null argument gives null, as in SQL.
- Integers widen to the type that holds both sides. A result that does not fit is an error; it never wraps around.
- Text and a number add up to text. A date and a duration of whole days add up to a date.
- Tensors and embeddings of the same shape add, subtract, multiply and divide (``/``) by element. One side may be a
  number.
- ``/`` gives float64. ``//`` and ``%`` have the signs of Python; an integer divided by zero is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock.expr.conditions
import penstock.expr.items  # noqa: F401  # these register kernels too
from penstock.errors import ComputeError, TypeMismatchError
from penstock.expr.arrays import empty_numbers, filled, masked, on_arrays, storage_of, validity
from penstock.expr.casting import cast
from penstock.expr.kinds import FLOAT64, INT64, NUMBER, STRING
from penstock.expr.registry import Resolve, Value
from penstock.expr.signatures import dtypes_of, number_type, numeric, strict
from penstock.types import DataType, supertype
from penstock.types.ndarrays import fixed_rows
from penstock.types.plain import arrow_array, arrow_scalar
from penstock.types.supertype import is_number

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _arithmetic_type(verb: str, compute: Callable[..., Any]) -> Resolve:
    """Return the type rule of ``compute``: ``number_type`` for numbers, the rule of Arrow for decimals and times."""

    def resolve(left: DataType, right: DataType) -> DataType:
        if left.is_null() or right.is_null():
            left, right = (right, right) if left.is_null() else (left, left)
        if verb == "add" and left == right and (left.is_string() or left.is_binary()):
            return left
        if verb == "add" and left.is_string() != right.is_string() and is_number(right if left.is_string() else left):
            return STRING
        if verb != "multiply" and left.is_date() and right.is_duration():
            return left
        if verb == "add" and left.is_duration() and right.is_date():
            return right
        if (of_arrays := _array_type(left, right)) is not None:
            return of_arrays
        is_plain = left.is_numeric() and right.is_numeric() and not (left.is_decimal() or right.is_decimal())
        if is_plain or (left.is_null() and right.is_null()):
            return number_type(left, right)
        if left.is_temporal() or right.is_temporal() or (left.is_numeric() and right.is_numeric()):
            try:
                return DataType(compute(arrow_array([], left.arrow), arrow_array([], right.arrow)).type)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                pass
        raise TypeMismatchError(f"cannot {verb} {left} and {right}{_arithmetic_remedy(left, right)}")

    return resolve


def _is_array(dtype: DataType) -> bool:
    return dtype.is_embedding() or dtype.is_fixed_shape_tensor()


def _array_type(left: DataType, right: DataType, inner_type: DataType | None = None) -> DataType | None:
    """Return the type for two tensors or embeddings of the same shape, or for one and a number; None for other types.

    Its numbers have ``inner_type``, or the type that holds the numbers of both sides.
    """
    arrays = [each for each in (left, right) if _is_array(each)]
    inner = [each.inner if _is_array(each) else each for each in (left, right)]
    if not arrays or arrays[0].shape != arrays[-1].shape or not all(is_number(each) for each in inner):
        return None
    dtype = inner_type or number_type(*inner)
    return (
        DataType.tensor(dtype, arrays[0].shape) if arrays[0].is_tensor() else DataType.embedding(dtype, arrays[0].size)
    )


@on_arrays
def _on_elements(left: pa.Array, right: pa.Array, *, compute: Callable[..., Any], dtype: DataType) -> pa.Array:
    size = math.prod(dtype.shape or ())
    flat = [
        storage_of(each).values.slice(storage_of(each).offset * size, len(each) * size)
        if _is_array(DataType(each.type))
        else each.take(np.repeat(np.arange(len(each)), size))
        for each in (left, right)
    ]
    elements = checked(compute, *(numeric(each, dtype.inner) for each in flat))
    return fixed_rows(elements, dtype.arrow, arrow_array(~validity(left, right)))


def _arithmetic_remedy(left: DataType, right: DataType) -> str:
    if left.is_string() or right.is_string():
        return '; convert the text with .cast("float64") or .cast("int64"), or the other side with .cast("string")'
    if left.is_boolean() or right.is_boolean():
        return '; convert the bool with .cast("int64")'
    return ""


def checked(compute: Callable[..., Any], *values: Value, name: str = "") -> Value:
    """Return ``compute(*values)``; raise ComputeError if the result does not fit its type."""
    try:
        return compute(*values)
    except pa.ArrowInvalid as exc:
        types = ", ".join(str(dtype) for dtype in dtypes_of(*values))
        verb = name or compute.__name__.removesuffix("_checked")
        raise ComputeError(
            f"The result of {verb} does not fit ({types}): {exc}. "
            'Convert an argument with .cast("float64") if an approximate result will do.'
        ) from exc


def _arithmetic(name: str, compute: Callable[..., Any]) -> None:
    resolve, compute_floats = _arithmetic_type(name, compute), getattr(pc, name)

    @strict(name, resolve)
    def _kernel(left: Value, right: Value) -> Value:
        dtypes = dtypes_of(left, right)
        dtype = resolve(*dtypes)
        if _is_array(dtype):
            return _on_elements(left, right, compute=compute, dtype=dtype)
        if dtype.is_string() or dtype.is_binary():
            left, right = (cast(value, dtype=dtype, is_strict=True) for value in (left, right))
            return pc.binary_join_element_wise(left, right, arrow_scalar("", dtype.arrow))
        if dtype.is_date():
            left, right = (_as_days(value) for value in (left, right))
            return pc.cast(checked(compute, left, right), dtype.arrow)
        if dtype.is_integer() or dtype.is_float():
            # Arrow has no arithmetic for float16.
            working = DataType.float32() if dtype == DataType.float16() else dtype
            try:
                left, right = numeric(left, working), numeric(right, working)
            except pa.ArrowInvalid as exc:
                raise ComputeError(f"A value does not fit {working}: {exc}") from exc
            return numeric(checked(compute_floats if dtype.is_float() else compute, left, right), dtype)
        return checked(compute, left, right)


def _as_days(value: Value) -> Value:
    """Return dates, and durations of whole days, as numbers of days."""
    if pa.types.is_date(value.type):
        return pc.cast(pc.cast(value, pa.date32()), pa.int32())
    count, per_day = pc.cast(value, pa.int64()), 86_400 * UNITS_PER_SECOND[value.type.unit]
    days = pc.divide(count, per_day)
    if pc.any(pc.not_equal(pc.multiply(days, per_day), count)).as_py():
        raise ComputeError(
            "A duration that is added to a date must be in whole days; convert the date with "
            '.cast("timestamp") to add hours and minutes'
        )
    return pc.cast(days, pa.int32())


_arithmetic("add", pc.add_checked)
_arithmetic("subtract", pc.subtract_checked)
_arithmetic("multiply", pc.multiply_checked)


def _division_type(left: DataType, right: DataType) -> DataType:
    if left.is_duration() and (right.is_integer() or right.is_null()):
        return left
    if right.is_duration() and (left.is_duration() or left.is_null()):
        return FLOAT64
    if left.is_null() or right.is_null():
        left, right = (right, right) if left.is_null() else (left, left)
    if (of_arrays := _array_type(left, right, FLOAT64)) is not None:
        return of_arrays
    for dtype in (left, right):
        NUMBER.check(dtype)
    return FLOAT64


@strict("divide", _division_type)
def _divide(left: Value, right: Value) -> Value:
    left_type, right_type = dtypes_of(left, right)
    if (of_arrays := _array_type(left_type, right_type, FLOAT64)) is not None:
        return _on_elements(left, right, compute=pc.divide, dtype=of_arrays)
    if left_type.is_duration() and right_type.is_integer():
        # Arrow raises for zero; return null, as for integers.
        return pc.divide(left, pc.if_else(pc.equal(right, 0), arrow_scalar(None, right.type), right))
    if left_type.is_duration():
        unit = pa.duration("ns")
        left, right = pc.cast(pc.cast(left, unit), pa.int64()), pc.cast(pc.cast(right, unit), pa.int64())
    return pc.divide(numeric(left, FLOAT64), numeric(right, FLOAT64))


def _integral_type(left: DataType, right: DataType) -> DataType:
    dtype = number_type(left, right)
    return FLOAT64 if dtype.is_decimal() else dtype


def _divide_exactly(compute: Callable[..., Any], left: pa.Array, right: pa.Array) -> pa.Array:
    """Divide as Python does; NumPy has the same signs, Arrow does not."""
    dtype = _integral_type(*dtypes_of(left, right))
    valid = validity(left, right)
    if dtype == INT64 and pa.uint64() in (left.type, right.type) and left.type != right.type:
        return _divide_as_objects(filled(left), filled(right, 1), valid, compute)
    over, under = filled(numeric(left, dtype)), filled(numeric(right, dtype), 1)
    if dtype.is_integer():
        valid &= under != 0
        lowest = np.iinfo(under.dtype).min
        if lowest < 0 and compute is np.floor_divide and bool(np.any(valid & (over == lowest) & (under == -1))):
            raise ComputeError(f'{lowest} // -1 does not fit {dtype}; convert an argument with .cast("float64")')
        under = np.where(under == 0, np.ones_like(under), under)
    with np.errstate(all="ignore"):
        return masked(compute(over, under), valid, dtype.arrow)


def _division(name: str, compute: Callable[..., Any]) -> None:
    by_rows = on_arrays(partial(_divide_exactly, compute))

    @strict(name, _integral_type)
    def _kernel(left: Value, right: Value) -> Value:
        dtype = _integral_type(*dtypes_of(left, right))
        is_constant = isinstance(right, pa.Scalar) and not isinstance(left, pa.Scalar)
        if is_constant and dtype.is_integer() and pa.uint64() not in (left.type, right.type):
            divisor = numeric(right, dtype).as_py()
            if divisor not in (0, -1):
                return _divide_by_constant(compute, numeric(left, dtype), divisor)
        return by_rows(left, right)


def _divide_by_constant(compute: Callable[..., Any], left: pa.Array, divisor: int) -> pa.Array:
    """Divide integers by one integer. NumPy turns this into a multiplication, but only for quotients."""
    over = filled(left)
    quotients = empty_numbers(len(over), over.dtype)
    np.floor_divide(over, divisor, out=quotients)
    if compute is np.mod:
        np.multiply(quotients, divisor, out=quotients)
        np.subtract(over, quotients, out=quotients)
    return masked(quotients, validity(left), left.type)


_division("floor_divide", np.floor_divide)
_division("modulo", np.mod)


def _divide_as_objects(over: Any, under: Any, valid: Any, compute: Callable[..., Any]) -> pa.Array:
    """Divide int64 and uint64, which have no common integer type, as Python integers."""
    valid &= under != 0
    result = compute(over.astype(object), np.where(under == 0, 1, under.astype(object)))
    try:
        return masked(np.where(valid, result, 0).astype(np.int64), valid)
    except OverflowError as exc:
        raise ComputeError('A result does not fit int64; convert an argument with .cast("float64")') from exc


def _power_type(base: DataType, exponent: DataType) -> DataType:
    dtype = number_type(base, exponent)
    return INT64 if dtype.is_integer() or dtype.is_null() else FLOAT64


@strict("power", _power_type)
def _power(base: Value, exponent: Value) -> Value:
    dtype = _power_type(*dtypes_of(base, exponent))
    return checked(pc.power_checked, numeric(base, dtype), numeric(exponent, dtype))


def _signed_type(dtype: DataType) -> DataType:
    """Return the type of the negative of a number: the next wider signed type for an unsigned integer."""
    if dtype.is_duration():
        return dtype
    NUMBER.check(dtype)
    if dtype.is_integer() and str(dtype).startswith("uint"):
        return supertype(dtype, DataType.int8()) if dtype.arrow.bit_width < 64 else INT64  # type: ignore[return-value]
    return dtype


@strict("negate", _signed_type)
def _negate(value: Value) -> Value:
    dtype = _signed_type(*dtypes_of(value))
    if dtype.is_float():
        return pc.cast(pc.negate(pc.cast(value, FLOAT64.arrow)), dtype.arrow)
    return checked(lambda number: pc.negate_checked(pc.cast(number, dtype.arrow)), value, name="negate")


def _magnitude_type(dtype: DataType) -> DataType:
    if not dtype.is_duration():
        NUMBER.check(dtype)
    return dtype


@strict("abs", _magnitude_type)
def _abs(value: Value) -> Value:
    if pa.types.is_float16(value.type):
        return pc.cast(pc.abs(pc.cast(value, pa.float32())), value.type)
    return checked(pc.abs_checked, value)

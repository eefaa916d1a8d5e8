"""Numbers: rounding, bounds, powers, NaN, bits, functions of one real number, and several columns of a row together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr.arrays import empty_numbers, filled, masked, on_arrays, validity
from penstock.expr.column import Expression, call
from penstock.expr.conditions import compare
from penstock.expr.kinds import BOOL, FLOAT64, INTEGER, NUMBER
from penstock.expr.public_functions import function, method
from penstock.expr.registry import Kernel, Value, kernel
from penstock.expr.signatures import common_type, dtypes_of, number_type, numeric, same_type, strict, takes
from penstock.functions.table import Builder, FunctionTable
from penstock.types import DataType
from penstock.types.plain import arrow_scalar

_table = FunctionTable(__name__)
_POWERS = {"base": NUMBER, "expr": NUMBER}


def _of_number(name: str, returns: Any, kernel: Kernel, doc: str, given: tuple[float], result: Any) -> Builder:
    return _table.strict(name, {"expr": NUMBER}, returns, kernel, doc, given, result)


def _as_float(value: Value) -> Value:
    return numeric(value, FLOAT64)


def _computable(value: Value) -> Value:
    """Return float16 as float32, because Arrow has no kernels for it."""
    return pc.cast(value, pa.float32()) if pa.types.is_float16(value.type) else value


# --- sign and rounding ------------------------------------------------------------------------------------------------


def _rounding(name: str, compute: Callable[[Value], Value], doc: str, given: float, result: float) -> Builder:
    def kernel(value: Value) -> Value:
        return value if pa.types.is_integer(value.type) else pc.cast(compute(_computable(value)), value.type)

    return _of_number(name, same_type, kernel, f"{doc}, in the type of the number.", (given,), result)


def _sign(value: Value) -> Value:
    return pc.cast(pc.sign(_computable(value)), value.type)


abs = _table.call("abs", {"expr": NUMBER}, "Return the absolute value.", (-2,), 2)
negate = _table.call("negate", {"expr": NUMBER}, "Return the negative.", (2,), -2)
sign = _of_number("sign", same_type, _sign, "Return -1, 0 or 1, in the type of the number.", (-2,), -1)
ceil = _rounding("ceil", pc.ceil, "Round up to a whole number", 1.2, 2.0)
floor = _rounding("floor", pc.floor, "Round down to a whole number", 1.8, 1.0)


@method
def round(expr: Expression, decimals: int = 0) -> Expression:
    """Round to ``decimals`` places, halves away from zero; negative decimals round to tens, hundreds and so on.

    >>> ps.from_pydict({"x": [2.5, -0.125]}).select(round(ps.col("x"), 2), round(ps.col("x")).alias("y")).to_pydict()
    {'x': [2.5, -0.13], 'y': [3.0, -0.0]}
    """
    if not isinstance(decimals, int):
        raise InvalidArgumentError(f"round takes a whole number of decimals, got {decimals!r}")
    return call("round", expr, decimals=decimals)


@strict("round", takes(NUMBER, returns=same_type))
def _round(value: Value, *, decimals: int) -> Value:
    if pa.types.is_integer(value.type) and decimals >= 0:
        return value
    rounded = pc.round(_computable(value), ndigits=decimals, round_mode="half_towards_infinity")
    return pc.cast(rounded, value.type)


@method
def clip(expr: Expression, min: Any = None, max: Any = None) -> Expression:
    """Limit numbers to the range between ``min`` and ``max``; None or null sets no bound.

    >>> ps.from_pydict({"x": [-5, 5, 15]}).select(clip(ps.col("x"), 0, 10)).to_pydict()
    {'x': [0, 5, 10]}
    """
    return call("clip", expr, min, max)


@kernel("clip", number_type)
def _clip(value: Value, lowest: Value, highest: Value) -> Value:
    dtype = number_type(*dtypes_of(value, lowest, highest))
    value, lowest, highest = (pc.cast(part, dtype.arrow) for part in (value, lowest, highest))
    for name, bound in (("less", lowest), ("greater", highest)):
        if not dtype.is_null():
            is_outside = pc.coalesce(compare(name, value, bound), arrow_scalar(False))
            value = pc.if_else(is_outside, bound, value)
    return value


@function
def greatest(*exprs: Any) -> Expression:
    """Return the largest of several values, ignoring nulls.

    >>> ps.from_pydict({"x": [1, 5], "y": [3, None]}).select(greatest(ps.col("x"), ps.col("y"))).to_pydict()
    {'x': [3, 5]}
    """
    return call("greatest", *exprs)


@function
def least(*exprs: Any) -> Expression:
    """Return the smallest of several values, ignoring nulls.

    >>> ps.from_pydict({"x": [1, 5], "y": [3, None]}).select(least(ps.col("x"), ps.col("y"))).to_pydict()
    {'x': [1, 5]}
    """
    return call("least", *exprs)


def _extreme_type(*dtypes: DataType) -> DataType:
    dtype = common_type(*dtypes)
    if not dtype.is_comparable():
        raise TypeMismatchError(f"expected values with an order, got {dtype}")
    return dtype


def _extreme(name: str) -> Callable[..., Value]:
    def choose(*values: Value) -> Value:
        dtype = common_type(*dtypes_of(*values)).arrow
        best, *others = (pc.cast(value, dtype) for value in values)
        for other in others if not pa.types.is_null(dtype) else ():
            is_better = pc.or_kleene(pc.is_null(best), compare(name, other, best))
            best = pc.if_else(pc.and_kleene(pc.is_valid(other), is_better), other, best)
        return best

    return choose


kernel("greatest", _extreme_type)(_extreme("greater"))
kernel("least", _extreme_type)(_extreme("less"))


# --- powers, roots and logarithms -------------------------------------------------------------------------------------


_POWER = "Raise to a power, as ``**`` does: int64 for integers, else float64."
power = _table.call("power", _POWERS, _POWER, (3, 2), 9)
pow = _table.call("pow", _POWERS, _POWER, (3, 2), 9, "power")


@method
def log(expr: Expression, base: float = math.e) -> Expression:
    """Return the logarithm to ``base``; NaN for negative numbers.

    >>> ps.from_pydict({"x": [8.0]}).select(log(ps.col("x"), 2)).to_pydict()
    {'x': [3.0]}
    """
    if base <= 0 or base == 1:
        raise InvalidArgumentError(f"log: the base must be positive and not 1, got {base!r}")
    return call("log", expr, base=float(base))


@strict("log", takes(NUMBER, returns=FLOAT64))
def _log(value: Value, *, base: float) -> Value:
    return pc.ln(_as_float(value)) if base == math.e else pc.logb(_as_float(value), base)


def _arctan2(y: Value, x: Value) -> Value:
    return pc.atan2(_as_float(y), _as_float(x))


_POINT = {"y": NUMBER, "x": NUMBER}
_ANGLE = "Return the angle of the point ``(x, y)`` in radians"
arctan2 = _table.strict("arctan2", _POINT, FLOAT64, _arctan2, f"{_ANGLE}.", (0.0, 1.0), 0.0)
atan2 = _table.call("atan2", _POINT, f"{_ANGLE}; the same as ``arctan2``.", (0.0, 1.0), 0.0, "arctan2")


# --- NaN and infinity -------------------------------------------------------------------------------------------------


def _test(name: str, compute: Callable[[Value], Value], doc: str) -> Builder:
    return _of_number(name, BOOL, lambda value: compute(_as_float(value)), doc, (1.0,), False)


is_nan = _test("is_nan", pc.is_nan, "Check whether a number is NaN; null for null.")
is_inf = _test("is_inf", pc.is_inf, "Check whether a number is infinite; null for null.")


@method
def fill_nan(expr: Expression, fill_value: Any) -> Expression:
    """Replace NaN by ``fill_value``; null stays null.

    >>> ps.from_pydict({"x": [1.0, float("nan")]}).select(fill_nan(ps.col("x"), 0.0)).to_pydict()
    {'x': [1.0, 0.0]}
    """
    return call("if_else", call("is_nan", expr), fill_value, expr)


# --- bits -------------------------------------------------------------------------------------------------------------


def _shift(name: str, compute: Callable[..., Value], doc: str, given: tuple[int, int], result: int) -> Builder:
    def shift(value: Value, num_bits: Value) -> Value:
        try:
            return compute(value, pc.cast(num_bits, value.type))
        except pa.ArrowInvalid as exc:
            raise ComputeError(f"{value.type} cannot be shifted by that number of bits: {exc}") from exc

    return _table.strict(name, {"expr": INTEGER, "num_bits": INTEGER}, same_type, shift, doc, given, result)


_LEFT = "Shift the bits of an integer to the left."
_RIGHT = "Shift the bits of an integer to the right, keeping its sign."
shift_left = _shift("shift_left", pc.shift_left_checked, _LEFT, (3, 2), 12)
shift_right = _shift("shift_right", pc.shift_right_checked, _RIGHT, (12, 2), 3)


# --- roots, exponentials, logarithms, trigonometry --------------------------------------------------------------------


def _arrow(name: str, compute: Callable[..., Any], doc: str, given: float, result: float) -> Builder:
    def kernel(value: Value) -> Value:
        return compute(_as_float(value))

    return _table.strict(name, {"expr": NUMBER}, FLOAT64, kernel, doc, (given,), result)


def _numpy(name: str, compute: Callable[..., Any], doc: str, given: float, result: float) -> Builder:
    """Use NumPy for functions that Arrow lacks, or has only in versions newer than the oldest supported one."""

    @on_arrays
    def kernel(array: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            return masked(compute(filled(_as_float(array)), out=empty_numbers(len(array))), validity(array))

    return _table.strict(name, {"expr": NUMBER}, FLOAT64, kernel, doc, (given,), result)


def _alias(name: str, original: str, doc: str, given: float, result: float) -> Builder:
    doc = f"{doc}; the same as ``{original}``."
    return _table.call(name, {"expr": NUMBER}, doc, (given,), result, original)


sqrt = _arrow("sqrt", pc.sqrt, "Return the square root; NaN for negative numbers.", 9.0, 3.0)
cbrt = _numpy("cbrt", np.cbrt, "Return the cube root.", 8.0, 2.0)
exp = _arrow("exp", pc.exp, "Return ``e`` to the power of the number.", 0.0, 1.0)
expm1 = _numpy("expm1", np.expm1, "Return ``exp(x) - 1``, exact for small numbers.", 0.0, 0.0)
ln = _arrow("ln", pc.ln, "Return the natural logarithm; NaN for negative numbers.", 1.0, 0.0)
log2 = _arrow("log2", pc.log2, "Return the logarithm to base 2; NaN for negative numbers.", 8.0, 3.0)
log10 = _arrow("log10", pc.log10, "Return the logarithm to base 10; NaN for negative numbers.", 100.0, 2.0)
log1p = _arrow("log1p", pc.log1p, "Return ``ln(1 + x)``, exact for small numbers.", 0.0, 0.0)
sin = _arrow("sin", pc.sin, "Return the sine of an angle in radians.", 0.0, 0.0)
cos = _arrow("cos", pc.cos, "Return the cosine of an angle in radians.", 0.0, 1.0)
tan = _arrow("tan", pc.tan, "Return the tangent of an angle in radians.", 0.0, 0.0)
arcsin = _arrow("arcsin", pc.asin, "Return the angle in radians whose sine is the number.", 0.0, 0.0)
arccos = _arrow("arccos", pc.acos, "Return the angle in radians whose cosine is the number.", 1.0, 0.0)
arctan = _arrow("arctan", pc.atan, "Return the angle in radians whose tangent is the number.", 0.0, 0.0)
asin = _alias("asin", "arcsin", "Return the angle in radians whose sine is the number", 0.0, 0.0)
acos = _alias("acos", "arccos", "Return the angle in radians whose cosine is the number", 1.0, 0.0)
atan = _alias("atan", "arctan", "Return the angle in radians whose tangent is the number", 0.0, 0.0)
sinh = _numpy("sinh", np.sinh, "Return the hyperbolic sine.", 0.0, 0.0)
cosh = _numpy("cosh", np.cosh, "Return the hyperbolic cosine.", 0.0, 1.0)
tanh = _numpy("tanh", np.tanh, "Return the hyperbolic tangent.", 0.0, 0.0)
arcsinh = _numpy("arcsinh", np.arcsinh, "Return the inverse hyperbolic sine.", 0.0, 0.0)
arccosh = _numpy("arccosh", np.arccosh, "Return the inverse hyperbolic cosine.", 1.0, 0.0)
arctanh = _numpy("arctanh", np.arctanh, "Return the inverse hyperbolic tangent.", 0.0, 0.0)
degrees = _numpy("degrees", np.degrees, "Convert radians to degrees.", 0.0, 0.0)
radians = _numpy("radians", np.radians, "Convert degrees to radians.", 0.0, 0.0)

"""Functions of one real number: roots, exponentials, logarithms, trigonometry. All give float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.arrays import filled, masked, on_arrays, validity
from penstock.expr.column import Expression, call, method
from penstock.expr.registry import Value
from penstock.expr.signatures import FLOAT64, NUMBER, numeric, strict, takes


def _by_arrow(compute: Callable[..., Any]) -> Callable[[Value], Value]:
    return lambda value: compute(numeric(value, FLOAT64))


def _by_numpy(compute: Callable[..., Any]) -> Callable[[Value], Value]:
    """Use NumPy for what Arrow has not, or has only in versions newer than the oldest we support."""

    @on_arrays
    def computed(array: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            return masked(compute(filled(numeric(array, FLOAT64))), validity(array))

    return computed


_KERNELS = {
    "sqrt": _by_arrow(pc.sqrt),
    "cbrt": _by_numpy(np.cbrt),
    "exp": _by_arrow(pc.exp),
    "expm1": _by_numpy(np.expm1),
    "ln": _by_arrow(pc.ln),
    "log2": _by_arrow(pc.log2),
    "log10": _by_arrow(pc.log10),
    "log1p": _by_arrow(pc.log1p),
    "sin": _by_arrow(pc.sin),
    "cos": _by_arrow(pc.cos),
    "tan": _by_arrow(pc.tan),
    "cot": _by_numpy(lambda x: 1 / np.tan(x)),
    "sec": _by_numpy(lambda x: 1 / np.cos(x)),
    "csc": _by_numpy(lambda x: 1 / np.sin(x)),
    "arcsin": _by_arrow(pc.asin),
    "arccos": _by_arrow(pc.acos),
    "arctan": _by_arrow(pc.atan),
    "sinh": _by_numpy(np.sinh),
    "cosh": _by_numpy(np.cosh),
    "tanh": _by_numpy(np.tanh),
    "arcsinh": _by_numpy(np.arcsinh),
    "arccosh": _by_numpy(np.arccosh),
    "arctanh": _by_numpy(np.arctanh),
    "degrees": _by_numpy(np.degrees),
    "radians": _by_numpy(np.radians),
}
for _name, _kernel in _KERNELS.items():
    strict(_name, takes(NUMBER, returns=FLOAT64))(_kernel)


@method
def sqrt(expr: Expression) -> Expression:
    """Return the square root; NaN for negative numbers.

    >>> ps.from_pydict({"x": [4.0]}).select(sqrt(ps.col("x"))).to_pydict()
    {'x': [2.0]}
    """
    return call("sqrt", expr)


@method
def cbrt(expr: Expression) -> Expression:
    """Return the cube root.

    >>> ps.from_pydict({"x": [8.0]}).select(cbrt(ps.col("x"))).to_pydict()
    {'x': [2.0]}
    """
    return call("cbrt", expr)


@method
def exp(expr: Expression) -> Expression:
    """Return e to the power of the number.

    >>> ps.from_pydict({"x": [0.0]}).select(exp(ps.col("x"))).to_pydict()
    {'x': [1.0]}
    """
    return call("exp", expr)


@method
def expm1(expr: Expression) -> Expression:
    """Return ``exp(x) - 1``, exact for small numbers.

    >>> ps.from_pydict({"x": [0.0]}).select(expm1(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("expm1", expr)


@method
def ln(expr: Expression) -> Expression:
    """Return the natural logarithm; NaN for negative numbers.

    >>> ps.from_pydict({"x": [1.0]}).select(ln(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("ln", expr)


@method
def log2(expr: Expression) -> Expression:
    """Return the logarithm to base 2; NaN for negative numbers.

    >>> ps.from_pydict({"x": [8.0]}).select(log2(ps.col("x"))).to_pydict()
    {'x': [3.0]}
    """
    return call("log2", expr)


@method
def log10(expr: Expression) -> Expression:
    """Return the logarithm to base 10; NaN for negative numbers.

    >>> ps.from_pydict({"x": [100.0]}).select(log10(ps.col("x"))).to_pydict()
    {'x': [2.0]}
    """
    return call("log10", expr)


@method
def log1p(expr: Expression) -> Expression:
    """Return ``ln(1 + x)``, exact for small numbers.

    >>> ps.from_pydict({"x": [0.0]}).select(log1p(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("log1p", expr)


@method
def sin(expr: Expression) -> Expression:
    """Return the sine of an angle in radians.

    >>> ps.from_pydict({"x": [0.0]}).select(sin(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("sin", expr)


@method
def cos(expr: Expression) -> Expression:
    """Return the cosine of an angle in radians.

    >>> ps.from_pydict({"x": [0.0]}).select(cos(ps.col("x"))).to_pydict()
    {'x': [1.0]}
    """
    return call("cos", expr)


@method
def tan(expr: Expression) -> Expression:
    """Return the tangent of an angle in radians.

    >>> ps.from_pydict({"x": [0.0]}).select(tan(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("tan", expr)


@method
def cot(expr: Expression) -> Expression:
    """Return the cotangent of an angle in radians.

    >>> ps.from_pydict({"x": [0.0]}).select(cot(ps.col("x"))).to_pydict()
    {'x': [inf]}
    """
    return call("cot", expr)


@method
def sec(expr: Expression) -> Expression:
    """Return the secant of an angle in radians.

    >>> ps.from_pydict({"x": [0.0]}).select(sec(ps.col("x"))).to_pydict()
    {'x': [1.0]}
    """
    return call("sec", expr)


@method
def csc(expr: Expression) -> Expression:
    """Return the cosecant of an angle in radians.

    >>> ps.from_pydict({"x": [0.0]}).select(csc(ps.col("x"))).to_pydict()
    {'x': [inf]}
    """
    return call("csc", expr)


@method
def arcsin(expr: Expression) -> Expression:
    """Return the angle in radians whose sine is the number.

    >>> ps.from_pydict({"x": [0.0]}).select(arcsin(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arcsin", expr)


@method
def arccos(expr: Expression) -> Expression:
    """Return the angle in radians whose cosine is the number.

    >>> ps.from_pydict({"x": [1.0]}).select(arccos(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arccos", expr)


@method
def arctan(expr: Expression) -> Expression:
    """Return the angle in radians whose tangent is the number.

    >>> ps.from_pydict({"x": [0.0]}).select(arctan(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arctan", expr)


@method
def asin(expr: Expression) -> Expression:
    """Return the angle in radians whose sine is the number; the same as ``arcsin``.

    >>> ps.from_pydict({"x": [0.0]}).select(asin(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arcsin", expr)


@method
def acos(expr: Expression) -> Expression:
    """Return the angle in radians whose cosine is the number; the same as ``arccos``.

    >>> ps.from_pydict({"x": [1.0]}).select(acos(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arccos", expr)


@method
def atan(expr: Expression) -> Expression:
    """Return the angle in radians whose tangent is the number; the same as ``arctan``.

    >>> ps.from_pydict({"x": [0.0]}).select(atan(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arctan", expr)


@method
def sinh(expr: Expression) -> Expression:
    """Return the hyperbolic sine.

    >>> ps.from_pydict({"x": [0.0]}).select(sinh(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("sinh", expr)


@method
def cosh(expr: Expression) -> Expression:
    """Return the hyperbolic cosine.

    >>> ps.from_pydict({"x": [0.0]}).select(cosh(ps.col("x"))).to_pydict()
    {'x': [1.0]}
    """
    return call("cosh", expr)


@method
def tanh(expr: Expression) -> Expression:
    """Return the hyperbolic tangent.

    >>> ps.from_pydict({"x": [0.0]}).select(tanh(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("tanh", expr)


@method
def arcsinh(expr: Expression) -> Expression:
    """Return the inverse hyperbolic sine.

    >>> ps.from_pydict({"x": [0.0]}).select(arcsinh(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arcsinh", expr)


@method
def arccosh(expr: Expression) -> Expression:
    """Return the inverse hyperbolic cosine.

    >>> ps.from_pydict({"x": [1.0]}).select(arccosh(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arccosh", expr)


@method
def arctanh(expr: Expression) -> Expression:
    """Return the inverse hyperbolic tangent.

    >>> ps.from_pydict({"x": [0.0]}).select(arctanh(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("arctanh", expr)


@method
def degrees(expr: Expression) -> Expression:
    """Turn radians into degrees.

    >>> ps.from_pydict({"x": [0.0]}).select(degrees(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("degrees", expr)


@method
def radians(expr: Expression) -> Expression:
    """Turn degrees into radians.

    >>> ps.from_pydict({"x": [0.0]}).select(radians(ps.col("x"))).to_pydict()
    {'x': [0.0]}
    """
    return call("radians", expr)

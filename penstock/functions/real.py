"""Functions of one real number: roots, exponentials, logarithms, trigonometry. All return float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.arrays import filled, masked, on_arrays, validity
from penstock.expr.kinds import FLOAT64, NUMBER
from penstock.expr.registry import Value
from penstock.expr.signatures import numeric
from penstock.functions.table import Builder, FunctionTable

_table = FunctionTable(__name__)


def _arrow(name: str, compute: Callable[..., Any], doc: str, given: float, result: float) -> Builder:
    def kernel(value: Value) -> Value:
        return compute(numeric(value, FLOAT64))

    return _table.strict(name, {"expr": NUMBER}, FLOAT64, kernel, doc, (given,), result)


def _numpy(name: str, compute: Callable[..., Any], doc: str, given: float, result: float) -> Builder:
    """Use NumPy for functions that Arrow lacks, or has only in versions newer than the oldest supported one."""

    @on_arrays
    def kernel(array: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            return masked(compute(filled(numeric(array, FLOAT64))), validity(array))

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
cot = _numpy("cot", lambda x: 1 / np.tan(x), "Return the cotangent of an angle in radians.", 0.0, math.inf)
sec = _numpy("sec", lambda x: 1 / np.cos(x), "Return the secant of an angle in radians.", 0.0, 1.0)
csc = _numpy("csc", lambda x: 1 / np.sin(x), "Return the cosecant of an angle in radians.", 0.0, math.inf)
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

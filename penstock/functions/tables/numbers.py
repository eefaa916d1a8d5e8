"""Numbers: constants, several columns of a row together, divisions without errors, and the globe."""

from __future__ import annotations

import functools
import math
import operator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError
from penstock.expr.arrays import Numbers, filled, list_bounds, masked, ranges, to_lists, validity
from penstock.expr.column import Expression, col, lit, when
from penstock.expr.kinds import FLOAT64, INT64, INTEGER, LIST, NUMBER
from penstock.expr.signatures import element_type
from penstock.functions.core import coalesce
from penstock.functions.numeric import greatest, least
from penstock.functions.table import FunctionTable
from penstock.types import DataType

_table = FunctionTable(__name__)
_FACTORIALS = np.array([math.factorial(n) for n in range(21)])
_EARTH_RADIUS_M = 6_371_000.0
_UINT64_LIST = DataType.list(DataType.uint64())


def pi() -> Expression:
    """Return the constant pi.

    >>> ps.from_pydict({"x": [1]}).select(pi().round(2).alias("x")).to_pydict()
    {'x': [3.14]}
    """
    return lit(math.pi)


def e() -> Expression:
    """Return Euler's number.

    >>> ps.from_pydict({"x": [1]}).select(e().round(2).alias("x")).to_pydict()
    {'x': [2.72]}
    """
    return lit(math.e)


def _factorial(numbers: pa.Array) -> pa.Array:
    n = filled(numbers)
    is_small = (n >= 0) & (n <= 20)
    return masked(_FACTORIALS[np.where(is_small, n, 0).astype(np.int64)], validity(numbers) & is_small)


factorial = _table.kernel(
    "factorial", {"expr": INTEGER}, INT64, _factorial,
    "Return the factorial; null for negative numbers and from 21 on, where it exceeds int64.", (5,), 120,
)  # fmt: skip


def _pmod(a: pa.Array, b: pa.Array) -> pa.Array:
    dividend, divisor = filled(a), filled(b)
    is_divisor = divisor != 0
    if not is_divisor.all():
        divisor = np.where(is_divisor, divisor, 1)
    with np.errstate(all="ignore"):
        remainder = np.fmod(dividend, divisor)
        if remainder.dtype.kind == "f":
            remainder = np.where(remainder < 0, np.fmod(remainder + divisor, divisor), remainder)
        else:
            remainder += (remainder < 0) * np.maximum(divisor, 0)  # the same, without a second division
    return masked(remainder, validity(a, b) & is_divisor)


pmod = _table.kernel(
    "pmod", {"a": NUMBER, "b": NUMBER}, lambda a, b: FLOAT64 if a.is_float() or b.is_float() else INT64, _pmod,
    "Return the remainder, not negative for a positive divisor; null for the divisor 0.", (-7, 3), 2,
)  # fmt: skip
try_divide = _table.build(
    "try_divide", {"dividend": NUMBER, "divisor": NUMBER}, lambda a, b: when(b != 0, a / b).otherwise(None),
    "Divide; null for the divisor 0.", (7, 2), 3.5,
)  # fmt: skip


def _great_circle(*degrees: pa.Array) -> pa.Array:
    values = [filled(pc.cast(column, pa.float64())) for column in degrees]
    can_be = [np.abs(value) <= limit for value, limit in zip(values, (90, 180, 90, 180), strict=True)]
    lat1, lon1, lat2, lon2 = map(np.radians, values)
    with np.errstate(all="ignore"):
        half = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
        meters: Numbers = 2 * _EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1)))
    return masked(meters, validity(*degrees) & np.logical_and.reduce(can_be))


great_circle_distance = _table.kernel(
    "great_circle_distance", dict.fromkeys(("lat1", "lon1", "lat2", "lon2"), NUMBER), FLOAT64, _great_circle,
    "Return the distance of two points on the Earth in meters; null for impossible degrees.", (0.0, 0.0, 0.0, 0.0), 0.0,
)  # fmt: skip


def _seq(numbers: pa.Array) -> pa.Array:
    lengths = filled(numbers).astype(np.int64)
    if len(lengths) and lengths.min() < 0:
        raise ComputeError(f"seq: a list cannot have {lengths.min()} elements")
    values = pa.array(ranges(np.zeros(len(lengths), np.int64), lengths).astype(np.uint64))
    return to_lists(values, lengths, validity(numbers))


seq = _table.kernel(
    "seq", {"n": INTEGER}, _UINT64_LIST, _seq, "Return the list of the numbers from 0 to ``n - 1``.", (3,), [0, 1, 2]
)


def _chunk_type(dtype: DataType, *, size: int) -> DataType:
    if size < 1:
        raise InvalidArgumentError(f"chunk: size={size} must be at least 1")
    return DataType.list(DataType.fixed_size_list(element_type(dtype), size))


def _chunk(lists: pa.Array, *, size: int) -> pa.Array:
    values, starts, ends = list_bounds(lists)
    counts = (ends - starts) // size
    elements = values.take(pa.array(ranges(starts, counts * size)))
    return to_lists(pa.FixedSizeListArray.from_arrays(elements, size), counts, validity(lists))


chunk = _table.kernel(
    "chunk", {"list_expr": LIST, "size": int}, _chunk_type, _chunk,
    "Cut a list into lists of ``size`` elements; drop the rest.", ([1, 2, 3], 2), [[1, 2]],
)  # fmt: skip


def _columns(exprs: tuple[Expression | str, ...]) -> list[Expression]:
    if not exprs:
        raise InvalidArgumentError("Give at least one column")
    return [col(expr) if isinstance(expr, str) else lit(expr) for expr in exprs]


def columns_sum(*exprs: Expression | str) -> Expression:
    """Add the values of several columns in each row; null only if all are null.

    >>> ps.from_pydict({"a": [1, None], "b": [2, 3]}).select(columns_sum("a", "b")).to_pydict()
    {'a': [3, 3]}
    """
    columns = _columns(exprs)
    total = functools.reduce(operator.add, (column.fill_null(0) for column in columns))
    return coalesce(*columns).is_null().if_else(None, total).alias(columns[0].name())


def columns_mean(*exprs: Expression | str) -> Expression:
    """Return the mean of several columns in each row, without nulls.

    >>> ps.from_pydict({"a": [1, None], "b": [2, 3]}).select(columns_mean("a", "b")).to_pydict()
    {'a': [1.5, 3.0]}
    """
    columns = _columns(exprs)
    counts = functools.reduce(operator.add, (column.not_null().cast("int64") for column in columns))
    return (columns_sum(*columns) / counts).alias(columns[0].name())


def columns_avg(*exprs: Expression | str) -> Expression:
    """Return the mean of several columns in each row; the same as ``columns_mean``.

    >>> ps.from_pydict({"a": [1], "b": [2]}).select(columns_avg("a", "b")).to_pydict()
    {'a': [1.5]}
    """
    return columns_mean(*exprs)


def columns_min(*exprs: Expression | str) -> Expression:
    """Return the least value of several columns in each row, without nulls.

    >>> ps.from_pydict({"a": [1, None], "b": [2, 3]}).select(columns_min("a", "b")).to_pydict()
    {'a': [1, 3]}
    """
    return least(*_columns(exprs))


def columns_max(*exprs: Expression | str) -> Expression:
    """Return the greatest value of several columns in each row, without nulls.

    >>> ps.from_pydict({"a": [1, None], "b": [2, 3]}).select(columns_max("a", "b")).to_pydict()
    {'a': [2, 3]}
    """
    return greatest(*_columns(exprs))


def _counts_type(dtype: DataType) -> DataType:
    return DataType.map(element_type(dtype), DataType.uint64())


list_value_counts = _table.kernel(
    "list_value_counts", {"list_expr": LIST}, _counts_type,
    "case when a is not null then coalesce(list_aggregate(a, 'histogram'), map()) end",
    "Count how often each value occurs in a list; nulls are not counted.", (["a", "b", "a"],), {"a": 2, "b": 1},
)  # fmt: skip

"""``ray.data.expressions``: columns, constants and functions, with the functions of text in ``.str``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as f
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal
from penstock.expr import column
from penstock.expr.column import Expression
from penstock.functions.core import arrow_function as _arrow
from penstock.types import DataType, Series
from penstock.udf.decorators import cls, func, method

__all__ = [
    "col",
    "download",
    "lit",
    "monotonically_increasing_id",
    "pyarrow_udf",
    "random",
    "star",
    "udf",
    "unnest",
    "uuid",
]


class RayExpression(Expression):
    """An expression with the methods of Ray Data. Its methods and operators return such expressions."""

    __slots__ = ()

    def is_not_null(self) -> Expression:
        """Check whether each value is not null."""
        return self.not_null()

    def not_in(self, values: Any) -> Expression:
        """Check whether each value is different from all of ``values``."""
        return ~self.is_in(values)

    def __getattr__(self, name: str) -> Any:
        return _keeping(super().__getattr__(name))  # type: ignore[misc]  # hidden by the stub


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose expressions have the methods of Ray Data."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        built = function(*args, **options)
        return RayExpression(built._node) if isinstance(built, Expression) else built

    return call


for _name, _inherited in list(vars(Expression).items()):
    if inspect.isfunction(_inherited) and _name != "__init__":
        setattr(RayExpression, _name, _keeping(_inherited))


def _method(function: str) -> Callable[[Expression], Expression]:
    return lambda expr: _arrow(function, expr)


def _divide(left: Any, right: Any) -> Expression:
    """Divide as Arrow does: integers give the integer towards zero."""
    return _arrow("divide", column.lit(left), column.lit(right))


def _floor_divide(left: Any, right: Any) -> Expression:
    return _arrow("floor", _divide(left, right))


def _remainder(left: Any, right: Any) -> Expression:
    multiple: Expression = _floor_divide(left, right) * right
    return column.lit(left) - multiple


def _is_in(expr: Expression, values: Any) -> Expression:
    """Check whether each value is one of ``values``, which may contain null; the result is never null."""
    if isinstance(values, Expression):
        return Expression.is_in(expr, values).fill_null(False)
    found = Expression.is_in(expr, [value for value in values if value is not None]).fill_null(False)
    return found | expr.is_null() if None in values else found


def _cast(expr: Expression, target_type: Any, *, safe: bool = True) -> Expression:
    return _arrow("cast", expr, target_type=DataType.of(target_type).arrow, safe=safe)


_METHODS: dict[str, Callable[..., Expression]] = {
    "abs": _method("abs_checked"), "negate": _method("negate_checked"), "is_in": _is_in, "cast": _cast,
    **{name: _method(name) for name in ("ceil", "floor", "round", "trunc", "ln", "log10", "log2", "exp", "sin", "cos",
                                        "tan", "asin", "acos", "atan", "sign")},
    "__truediv__": _divide, "__floordiv__": _floor_divide, "__mod__": _remainder,
    "__rtruediv__": lambda right, left: _divide(left, right), "__rmod__": lambda right, left: _remainder(left, right),
    "__rfloordiv__": lambda right, left: _floor_divide(left, right),
}  # fmt: skip
for _name, _function in _METHODS.items():
    setattr(RayExpression, _name, _keeping(_function))
unnest, uuid = _keeping(f.unnest), _keeping(f.uuid)
monotonically_increasing_id = _keeping(f.monotonically_increasing_id)


def col(name: str) -> RayExpression:
    """Refer to a column by name."""
    return RayExpression(column.col(name)._node)


def lit(value: Any) -> RayExpression:
    """Make a constant column from a Python value."""
    return RayExpression(column.lit(value)._node)


def star() -> Expression:
    """Refer to every column."""
    return col("*")


def download(uri_column_name: str | Expression, *, filesystem: Any = None) -> Expression:
    """Download the URLs of a column; a string names the column."""
    if filesystem is not None:
        raise refusal("download(filesystem=...)", "set storage_options in penstock.functions.download")
    return lit(f.download(col(uri_column_name) if isinstance(uri_column_name, str) else uri_column_name))


def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> Expression:
    """Return a random number from 0 to 1 for each row."""
    return lit(f.random_int(0, 2**53 - 1, seed) / 2**53)


def udf(return_dtype: Any) -> Callable[[Any], Any]:
    """Make a function, or a class, of Arrow arrays an expression."""
    dtype = DataType.of(getattr(return_dtype, "_physical_dtype", return_dtype))

    def decorate(function: Any) -> Any:
        if isinstance(function, type):  # one object for each worker
            methods = {"__call__": method.batch(return_dtype=dtype)(_on_arrays(function.__call__))}
            made: Any = cls(type(function.__name__, (function,), {**methods, "__module__": function.__module__}))
            return functools.wraps(function, updated=())(lambda *args, **options: _keeping(made(*args, **options)))
        return _keeping(func.batch(return_dtype=dtype)(_on_arrays(function)))

    return decorate


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def on_series(*columns: Any) -> Any:
        arrays = (pa.chunked_array([each.to_arrow()]) if isinstance(each, Series) else each for each in columns)
        found = function(*arrays)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    return on_series


pyarrow_udf = udf


_STRINGS = {
    "len": "utf8_length", "byte_len": "binary_length", "contains": "match_substring", "match": "match_like",
    "match_regex": "match_substring_regex", "find": "find_substring", "find_regex": "find_substring_regex",
    "count": "count_substring", "count_regex": "count_substring_regex", "replace": "replace_substring",
    "replace_regex": "replace_substring_regex", "replace_slice": "binary_replace_slice", "repeat": "binary_repeat",
    "slice": "utf8_slice_codeunits", "split": "split_pattern", "split_regex": "split_pattern_regex",
    "extract": "extract_regex", "is_ascii": "string_is_ascii", "strip": "utf8_trim_whitespace",
    "lstrip": "utf8_ltrim_whitespace", "rstrip": "utf8_rtrim_whitespace",
}  # fmt: skip
"""The functions of ``pyarrow.compute`` for text that have other names than in Ray Data."""


class Strings:
    """The functions of text, bound to an expression: ``col("t").str.upper()``."""

    def __init__(self, expr: Expression) -> None:
        self._expr = expr

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        if name.startswith("_"):
            raise AttributeError(name)
        names = (_STRINGS.get(name), f"utf8_{name}", name)
        function = next((each for each in names if each in pc.list_functions()), None)
        if function is None:
            raise refusal(f"str.{name}", "use the functions of penstock.functions")
        return functools.partial(_keeping(_arrow), function, self._expr)


RayExpression.str = property(Strings)  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data.expressions", name)

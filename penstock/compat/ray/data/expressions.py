"""``ray.data.expressions``: columns, constants and functions, with the namespaces ``.str .list .struct .dt .arr .map``.

``RayExpression`` has the namespaces; each is a table from Ray's name to Penstock's function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock import functions as f
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError
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


def _stripped(characters_of: str, whitespace: str) -> Callable[..., Expression]:
    def strip(expr: Expression, characters: str | None = None) -> Expression:
        return _arrow(whitespace, expr) if characters is None else _arrow(characters_of, expr, characters=characters)

    return strip


def _pad(expr: Expression, width: int, fillchar: str = " ", side: str = "right") -> Expression:
    functions = {"left": "utf8_lpad", "right": "utf8_rpad", "both": "utf8_center"}
    if side not in functions:
        raise InvalidArgumentError(f"str.pad(side={side!r}): use one of {', '.join(functions)}")
    return _arrow(functions[side], expr, width, fillchar)


def _list_get(expr: Expression, index: int) -> Expression:
    return expr[index]


def _list_slice(
    expr: Expression, start: int | None = None, stop: int | None = None, step: int | None = None
) -> Expression:
    return _arrow("list_slice", expr, start=start or 0, stop=stop, step=step or 1)


def _list_sort(expr: Expression, order: str = "ascending", null_placement: str = "at_end") -> Expression:
    for value, known in ((order, ("ascending", "descending")), (null_placement, ("at_start", "at_end"))):
        if value not in known:
            raise InvalidArgumentError(f"list.sort({value!r}): use one of {', '.join(known)}")
    return f.list_sort(expr, desc=order == "descending", nulls_first=null_placement == "at_start")


def _field_by_index(expr: Expression, index: int) -> Expression:
    if index < 0:
        raise InvalidArgumentError(f"struct.field_by_index({index}): the index of a field is 0 or more")
    return _arrow("struct_field", expr, index)


def _rounded(name: str) -> Callable[..., Expression]:
    return lambda expr, unit: _arrow(f"{name}_temporal", expr, multiple=1, unit=unit)


def _of_arrow(**functions: str) -> dict[str, Callable[..., Expression]]:
    """Return functions of ``pyarrow.compute`` by name; Ray Data uses the same."""
    return {name: functools.partial(_arrow, function) for name, function in functions.items()}


NAMESPACES: dict[str, dict[str, Callable[..., Expression]]] = {
    "str": {
        **_of_arrow(
            len="utf8_length", byte_len="binary_length", upper="utf8_upper", lower="utf8_lower", title="utf8_title",
            capitalize="utf8_capitalize", swapcase="utf8_swapcase", reverse="utf8_reverse", contains="match_substring",
            starts_with="starts_with", ends_with="ends_with", match="match_like", match_regex="match_substring_regex",
            find="find_substring", find_regex="find_substring_regex", count="count_substring",
            count_regex="count_substring_regex", replace="replace_substring", replace_regex="replace_substring_regex",
            replace_slice="binary_replace_slice", slice="utf8_slice_codeunits", split="split_pattern",
            split_regex="split_pattern_regex", split_whitespace="utf8_split_whitespace", extract="extract_regex",
            repeat="binary_repeat", center="utf8_center", lpad="utf8_lpad", rpad="utf8_rpad",
        ),
        **_of_arrow(**{f"is_{kind}": f"utf8_is_{kind}" for kind in (
            "alnum", "alpha", "decimal", "digit", "lower", "numeric", "printable", "space", "title", "upper")}),
        **_of_arrow(is_ascii="string_is_ascii"),
        "strip": _stripped("utf8_trim", "utf8_trim_whitespace"),
        "lstrip": _stripped("utf8_ltrim", "utf8_ltrim_whitespace"),
        "rstrip": _stripped("utf8_rtrim", "utf8_rtrim_whitespace"),
        "pad": _pad,
    },
    "list": {
        **_of_arrow(len="list_value_length"),
        "get": _list_get, "slice": _list_slice, "flatten": f.list_flatten, "sort": _list_sort,
    },
    "arr": {"to_list": lambda expr: expr},
    "struct": {"field": lambda expr, field_name: expr[field_name], "field_by_index": _field_by_index},
    "map": {"keys": f.map_keys, "values": f.map_values},
    "dt": {
        **_of_arrow(**{part: part for part in ("year", "month", "day", "hour", "minute", "second")}),
        "strftime": lambda expr, fmt: _arrow("strftime", expr, format=fmt),
        **{name: _rounded(name) for name in ("ceil", "floor", "round")},
    },
}  # fmt: skip


class Namespace:
    """The functions of one namespace, bound to an expression: ``col("t").str.upper()``."""

    def __init__(self, name: str, expr: Expression) -> None:
        self._name, self._expr = name, expr

    def __getitem__(self, key: Any) -> Expression:
        if self._name == "struct" and isinstance(key, int):
            return self.field_by_index(key)
        return self._expr[key]  # already one with these methods

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        function = NAMESPACES[self._name].get(name)
        if function is None:
            if name.startswith("_"):
                raise AttributeError(name)
            raise refusal(f"{self._name}.{name}", f"the namespace has {', '.join(sorted(NAMESPACES[self._name]))}")
        return functools.partial(_keeping(function), self._expr)


def _namespace(name: str) -> property:
    return property(lambda expr: Namespace(name, expr), doc=f"The functions of Ray Data's ``.{name}``.")


for _name in NAMESPACES:
    setattr(RayExpression, _name, _namespace(_name))


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data.expressions", name)

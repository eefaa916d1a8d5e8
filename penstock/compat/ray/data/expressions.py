"""``ray.data.expressions``: columns, constants and functions, with the namespaces ``.str .list .struct .dt .arr .map``.

``RayExpression`` has the namespaces; each is a table from Ray's name to our function.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock import functions as f
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError
from penstock.expr import column
from penstock.expr.column import Expression
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
    """An expression with the methods of Ray Data. What its methods and operators build is one too."""

    __slots__ = ()

    def is_not_null(self) -> Expression:
        """Check whether each value is not null."""
        return self.not_null()

    def not_in(self, values: Any) -> Expression:
        """Check whether each value is different from all of ``values``."""
        return ~self.is_in(values)


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose expressions have the methods of Ray Data."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        built = function(*args, **options)
        return RayExpression(built._node) if isinstance(built, Expression) else built

    return call


for _name, _method in list(vars(Expression).items()):
    if inspect.isfunction(_method) and _name not in ("__init__", "__getattr__"):
        setattr(RayExpression, _name, _keeping(_method))


def _trunc(expr: Expression) -> Expression:
    """Drop the digits after the point."""
    return f.when(expr < 0, expr.ceil()).otherwise(expr.floor())


def _round(expr: Expression) -> Expression:
    """Round to the nearest integer, and halves to the even one, as Arrow does."""
    rounded = f.round(expr)
    is_odd_half = (expr - expr.floor() == 0.5) & (rounded % 2 != 0)
    return rounded - f.when(is_odd_half, expr.sign()).otherwise(0)


for _name, _function in (("trunc", _trunc), ("round", _round), ("negate", Expression.__neg__)):
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
            made = cls(type(function.__name__, (function,), {**methods, "__module__": function.__module__}))
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


def _is_like(pattern: str) -> Callable[[Expression], Expression]:
    return lambda expr: f.regexp(expr, pattern)


def _slice(expr: Expression, start: int = 0, stop: int | None = None, step: int = 1) -> Expression:
    if step != 1:
        raise refusal("str.slice(step=...)")
    return f.substr(expr, start, None if stop is None else stop - start)


def _pad(expr: Expression, width: int, fillchar: str = " ", side: str = "right") -> Expression:
    if side == "both":
        raise refusal("str.pad(side='both')")
    missing = f.greatest(f.length(expr), width)  # Ray never cuts a longer text
    return f.lpad(expr, missing, fillchar) if side == "left" else f.rpad(expr, missing, fillchar)


def _stripped(expr: Expression, characters: str | None, left: bool, right: bool) -> Expression:
    if characters is None:
        return f.strip(expr) if left and right else f.lstrip(expr) if left else f.rstrip(expr)
    some = "[" + "".join(f"\\x{{{ord(character):x}}}" for character in characters) + "]+"
    expr = f.regexp_replace(expr, f"^{some}", "") if left else expr
    return f.regexp_replace(expr, f"{some}$", "") if right else expr


def _list_get(expr: Expression, index: int) -> Expression:
    return expr[index]


NAMESPACES: dict[str, dict[str, Callable[..., Expression]]] = {
    "str": {
        "len": f.length, "byte_len": f.length_bytes, "upper": f.upper, "lower": f.lower, "capitalize": f.capitalize,
        "title": f.title, "reverse": f.reverse, "contains": f.contains, "starts_with": f.startswith,
        "ends_with": f.endswith, "find": f.find, "match": f.like, "match_regex": f.regexp, "count": f.regexp_count,
        "count_regex": f.regexp_count, "replace": f.replace, "replace_regex": f.regexp_replace, "split": f.split,
        "split_regex": f.regexp_split, "split_whitespace": lambda e: f.regexp_split(f.strip(e), r"\s+"),
        "repeat": f.repeat, "slice": _slice, "pad": _pad,
        "lpad": lambda e, width, padding=" ": _pad(e, width, padding, "left"),
        "rpad": lambda e, width, padding=" ": _pad(e, width, padding, "right"),
        "strip": lambda e, characters=None: _stripped(e, characters, True, True),
        "lstrip": lambda e, characters=None: _stripped(e, characters, True, False),
        "rstrip": lambda e, characters=None: _stripped(e, characters, False, True),
        "is_alpha": _is_like(r"^\p{L}+$"), "is_digit": _is_like(r"^\p{Nd}+$"), "is_decimal": _is_like(r"^\p{Nd}+$"),
        "is_alnum": _is_like(r"^[\p{L}\p{N}]+$"), "is_numeric": _is_like(r"^\p{N}+$"), "is_space": _is_like(r"^\s+$"),
        "is_ascii": _is_like(r"^[\x00-\x7F]*$"), "is_lower": _is_like(r"^\P{Lu}*\p{Ll}\P{Lu}*$"),
        "is_upper": _is_like(r"^\P{Ll}*\p{Lu}\P{Ll}*$"),
    },
    "list": {
        "len": f.list_length, "get": _list_get, "slice": f.list_slice, "sum": f.list_sum, "mean": f.list_mean,
        "min": f.list_min, "max": f.list_max, "unique": f.list_distinct, "contains": f.list_contains,
        "flatten": f.list_flatten, "sort": lambda e, order="ascending", **_: f.list_sort(e, desc=order == "descending"),
    },
    "arr": {"to_list": lambda e: e, "flatten": f.list_flatten},
    "struct": {"field": lambda e, name: e[name]},
    "map": {"keys": f.map_keys, "values": f.map_values},
    "dt": {
        "year": f.year, "month": f.month, "day": f.day, "hour": f.hour, "minute": f.minute, "second": f.second,
        "strftime": f.strftime, "floor": lambda e, unit, **_: f.date_trunc(unit, e),
    },
}  # fmt: skip


class Namespace:
    """The functions of one namespace, bound to an expression: ``col("t").str.upper()``."""

    def __init__(self, name: str, expr: Expression) -> None:
        self._name, self._expr = name, expr

    def __getitem__(self, key: Any) -> Expression:
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


_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.And: operator.and_, ast.Or: operator.or_,
}  # fmt: skip


def parsed(text: str) -> Expression:
    """Return the expression of a condition in Python syntax, such as ``"id > 5 and kind in ['a', 'b']"``."""
    try:
        return lit(_parsed(ast.parse(text, mode="eval").body))
    except (SyntaxError, KeyError) as exc:
        raise InvalidArgumentError(
            f"{text!r} is no condition of columns, constants, comparisons, arithmetic, and, or, not, in; "
            "use expr=col(...) instead"
        ) from exc


def _parsed(node: ast.AST) -> Any:
    match node:
        case ast.Name(name):
            return col(name)
        case ast.Constant(value):
            return value
        case ast.List(items) | ast.Tuple(items):
            return [_parsed(item) for item in items]
        case ast.BinOp(left, kind, right):
            return _BINARY[type(kind)](lit(_parsed(left)), _parsed(right))
        case ast.BoolOp(kind, parts):
            return functools.reduce(_BINARY[type(kind)], map(_parsed, parts))
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            return ~_parsed(operand)
        case ast.UnaryOp(ast.USub(), operand):
            return -_parsed(operand)
        case ast.Compare(left, [ast.In() as kind], [right]) | ast.Compare(left, [ast.NotIn() as kind], [right]):
            found = _parsed(left).is_in(_parsed(right))
            return found if isinstance(kind, ast.In) else ~found
        case ast.Compare(left, [ast.Is() | ast.IsNot() as kind], [ast.Constant(None)]):
            return _parsed(left).is_null() if isinstance(kind, ast.Is) else _parsed(left).not_null()
        case ast.Compare(left, kinds, rights):
            sides = [lit(_parsed(side)) for side in (left, *rights)]
            pairs = zip(sides, kinds, sides[1:], strict=False)
            return functools.reduce(operator.and_, (_BINARY[type(kind)](one, other) for one, kind, other in pairs))
    raise KeyError(type(node).__name__)


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data.expressions", name)

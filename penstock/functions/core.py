"""Conversions, nulls and conditions as functions, and the functions of Arrow and DuckDB by their names."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr import casting
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call, lit, method
from penstock.expr.kinds import ANY, BOOLEAN
from penstock.expr.registry import Value, kernel
from penstock.functions.table import FunctionTable, generated
from penstock.relational.scalar import evaluate, scalar_functions
from penstock.types import DataType
from penstock.types.plain import arrow_array, arrow_scalar
from penstock.udf import decorators


def coalesce(*args: Any) -> Expression:
    """Return the first value that is not null.

    >>> ps.from_pydict({"a": [None, 1], "b": [2, 3]}).select(coalesce(ps.col("a"), ps.col("b"))).to_pydict()
    {'a': [2, 1]}
    """
    if not args:
        raise InvalidArgumentError("coalesce needs at least one value")
    return call("coalesce", *args)


@method
def apply(expr: Expression, func: Callable[[Any], Any], return_dtype: DataType | str | type) -> Expression:
    """Run a Python function on each value, also on null; ``ps.func`` is the general form.

    >>> ps.from_pydict({"a": [1, 2]}).select(apply(ps.col("a"), lambda x: x * 10, "int64")).to_pydict()
    {'a': [10, 20]}
    """
    applied: Expression = decorators.func(func, return_dtype=return_dtype)(expr)
    return applied


def is_in(expr: Expression, other: Iterable[Any]) -> Expression:
    """Check whether each value is one of ``other``; null for null, as in SQL.

    >>> ps.from_pydict({"a": [1, 2]}).select(is_in(ps.col("a"), [2, 3])).to_pydict()
    {'a': [False, True]}
    """
    return lit(expr).is_in(other)


# --- methods of ``Expression`` as functions ---------------------------------------------------------------------------

_function = functools.partial(FunctionTable(__name__).build, is_method=False)
_VALUE = {"expr": ANY}
_CAST = {"expr": ANY, "dtype": DataType | str | type}

cast = _function(
    "cast", _CAST, Expression.cast, "Convert to another type; a value that does not fit is an error.", ("1", "int64"), 1
)
try_cast = _function(
    "try_cast", _CAST, Expression.try_cast, "Convert to another type; a value that does not fit becomes null.",
    ("x", "int64"), None,
)  # fmt: skip
is_null = _function("is_null", _VALUE, Expression.is_null, "Check whether each value is null.", (1,), False)
not_null = _function("not_null", _VALUE, Expression.not_null, "Check whether each value is not null.", (1,), True)
fill_null = _function(
    "fill_null", {"expr": ANY, "fill_value": ANY}, Expression.fill_null, "Replace null by ``fill_value``.", (None, 0), 0
)
between = _function(
    "between", {"expr": ANY, "lower": ANY, "upper": ANY}, Expression.between,
    "Check whether each value lies from ``lower`` to ``upper``, both included.", (5, 1, 3), False,
)  # fmt: skip
eq_null_safe = _function(
    "eq_null_safe", {"left": ANY, "right": ANY}, Expression.eq_null_safe,
    "Compare like ``==``, but with null equal to null only.", (1, None), False,
)  # fmt: skip
if_else = _function(
    "if_else", {"condition": BOOLEAN, "if_true": ANY, "if_false": ANY}, Expression.if_else,
    "Choose between two values by a condition; null counts as false.", (True, "big", "small"), "big",
)  # fmt: skip

# --- conversions by the name of the type: ``col("a").as_int64()`` is ``col("a").cast("int64")`` -----------------------

_EXAMPLES: dict[str, tuple[Any, Any, str]] = {  # a value, the result, the parameters of the type
    **{f"{sign}int{bits}": ("7", 7, "") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": ("1.5", 1.5, "") for bits in (16, 32, 64)},
    "bool": (1, True, ""),
    "string": (7, "7", ""),
    "binary": ("a", b"a", ""),
    "date": ("2024-01-31", dt.date(2024, 1, 31), ""),
    "file": ("a.txt", "File('a.txt')", ""),
    "null": (None, None, ""),
    "python": (7, 7, ""),
    "time": ("10:30:00", dt.time(10, 30), "'us'"),
    "timestamp": ("2024-01-31", dt.datetime(2024, 1, 31), "'us'"),
    "duration": (dt.timedelta(1), dt.timedelta(1), "'us'"),
    "decimal128": (1.5, Decimal("1.50"), "5, 2"),
    "fixed_size_binary": (b"ab", b"ab", "2"),
    "list": (["7"], [7], "'int64'"),
    "fixed_size_list": (["7"], [7], "'int64', 1"),
    "struct": ({"a": "7"}, {"a": 7}, "{'a': 'int64'}"),
    "map": (None, None, "'string', 'int64'"),
    "embedding": ([1.5], "array([1.5], dtype=float32)", "'float32', 1"),
    "tensor": ([1.5], "array([1.5], dtype=float32)", "'float32', (1,)"),
    "image": (None, None, "'RGB'"),
    "interval": (None, None, ""),
}


def _conversion(dtype: str) -> Callable[..., Expression]:
    make: Callable[..., DataType] = getattr(DataType, dtype)
    name = f"as_{dtype}"

    def convert(expr: Expression, *args: Any, **kwargs: Any) -> Expression:
        try:
            return lit(expr).cast(make(*args, **kwargs))
        except OverflowError as exc:
            raise InvalidArgumentError(f"{name}: {exc}") from exc

    parameters = [each.replace(annotation="Any") for each in inspect.signature(make).parameters.values()]
    expr = inspect.Parameter("expr", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Expression")
    signature = inspect.Signature([expr, *parameters], return_annotation="Expression")
    setattr(convert, "__signature__", signature)  # noqa: B010  # unknown to type checkers
    convert.__module__, convert.__name__, convert.__qualname__ = __name__, name, name
    given, result, text = _EXAMPLES[dtype]
    modules = [each for each in ("datetime", "decimal") if f"{each}." in f"{given!r}{result!r}".lower()]
    shown = result if isinstance(result, str) and dtype != "string" else repr(result)
    arguments = ", ".join(filter(None, ['ps.col("x")', text]))
    lines = [
        f"Convert to ``DataType.{dtype}``; a value that does not fit is an error.\n",
        *(f">>> import {each}" for each in modules),
        f'>>> ps.from_pydict({{"x": [{given!r}]}}).select({name}({arguments})).to_pydict()',
        f"{{'x': [{shown}]}}\n",
    ]
    convert.__doc__ = "\n    ".join(lines)
    generated[name] = method(convert)
    return convert


globals().update({f"as_{dtype}": _conversion(dtype) for dtype in _EXAMPLES})


# --- functions of Arrow -----------------------------------------------------------------------------------------------


def arrow_function(name: str, *args: Any, **options: Any) -> Expression:
    """Call a function of ``pyarrow.compute`` by its name: with columns first, then constants and options.

    >>> ps.from_pydict({"t": ["ab"]}).select(arrow_function("utf8_center", ps.col("t"), 6, "-")).to_pydict()
    {'t': ['--ab--']}
    """
    if name != "cast" and (name not in pc.list_functions() or pc.get_function(name).kind != "scalar"):
        raise InvalidArgumentError(f"{name!r} is no function of pyarrow.compute that gives a value for each row")
    columns = list(itertools.takewhile(lambda arg: isinstance(arg, Expression), args))
    if not columns:
        raise InvalidArgumentError(f"arrow_function({name!r}) needs a column; use ps.col(...) or ps.lit(...)")
    rest = args[len(columns) :]
    return call("arrow_function", *columns, name=name, constants=rest, options=tuple(sorted(options.items())))


def _result_type(*dtypes: DataType, name: str, constants: tuple[Any, ...], options: Any) -> DataType:
    empty = [arrow_array([], dtype.arrow) for dtype in dtypes]
    try:
        return DataType(getattr(pc, name)(*empty, *constants, **dict(options)).type)
    except (pa.ArrowException, TypeError) as exc:
        if dtypes and all(dtype.is_null() for dtype in dtypes):  # most functions take no nulls without a type
            return DataType.null()
        raise TypeMismatchError(f"pyarrow.compute.{name}: {exc}") from exc


@kernel("arrow_function", _result_type)
def _arrow_function(*values: Value, name: str, constants: tuple[Any, ...], options: Any) -> Value:
    dtypes = [DataType.from_arrow_type(value.type) for value in values]
    if _result_type(*dtypes, name=name, constants=constants, options=options).is_null():
        return arrow_scalar(None)
    try:
        return getattr(pc, name)(*values, *constants, **dict(options))
    except pa.ArrowException as exc:
        raise ComputeError(f"pyarrow.compute.{name}: {exc}") from exc


# --- functions of DuckDB ----------------------------------------------------------------------------------------------

_LETTERS = "abcdefgh"


def duckdb_function(name: str, *args: Any) -> Expression:
    """Call a scalar function of DuckDB by its name, with columns and constants.

    ``ps.sql_expr("bin(n)")`` does the same. The function must give the same result for the same arguments.

    >>> ps.from_pydict({"n": [5]}).select(duckdb_function("bin", ps.col("n"))).to_pydict()
    {'n': ['101']}
    """
    if str(name).lower() not in scalar_functions():
        raise InvalidArgumentError(f"{name!r} is no function of DuckDB that gives one value for each row")
    columns: list[Expression] = []
    parts = []
    for arg in args:
        text = _literal(arg)
        if text is None:
            columns.append(lit(arg))
            text = _LETTERS[len(columns) - 1 : len(columns)]
        parts.append(text)
    if not 0 < len(columns) <= len(_LETTERS):
        raise InvalidArgumentError(f"duckdb_function({name!r}) takes one to {len(_LETTERS)} columns; use ps.col(...)")
    return call("duckdb_function", *columns, sql=f"{name}({', '.join(parts)})")


def _literal(value: Any) -> str | None:
    """Return a constant as SQL, since some functions take no column in its place; None for other values."""
    if value is None:
        return "null"
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    return repr(value).lower() if isinstance(value, bool | int) else None


@functools.lru_cache(maxsize=256)
def _duckdb_type(*dtypes: DataType, sql: str) -> DataType:
    if all(dtype.is_null() for dtype in dtypes):
        return DataType.null()
    try:
        return DataType(evaluate("DuckDB", sql, [arrow_array([], dtype.arrow) for dtype in dtypes]).type)
    except ComputeError as exc:
        raise TypeMismatchError(str(exc)) from exc


@kernel("duckdb_function", _duckdb_type)
@on_arrays
def _duckdb_function(*arrays: Any, sql: str) -> Value:
    dtype = _duckdb_type(*(DataType(array.type) for array in arrays), sql=sql)
    if dtype.is_null():
        return arrow_array([None] * len(arrays[0]), arrow_scalar(None).type)
    return casting.cast(evaluate("DuckDB", sql, list(arrays)), dtype=dtype, is_strict=True)

"""Conversions, nulls and conditions as functions, and the functions of Arrow and DuckDB by their names."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr import casting
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call, lit
from penstock.expr.public_functions import function, method
from penstock.expr.registry import Value, kernel
from penstock.relational.scalar import evaluate, scalar_functions
from penstock.types import DataType
from penstock.types.plain import arrow_array, arrow_scalar
from penstock.udf import decorators


@function
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


# --- methods of ``Expression`` as functions ---------------------------------------------------------------------------


P = ParamSpec("P")


def _of_method(build: Callable[Concatenate[Expression, P], Expression]) -> Callable[Concatenate[Any, P], Expression]:
    """Return a basic method of ``Expression`` as a function, whose first argument may be a constant."""

    @functools.wraps(build)
    def function_of(expr: Any, *args: P.args, **options: P.kwargs) -> Expression:
        return build(lit(expr), *args, **options)

    function_of.__module__ = __name__
    expr, *rest = inspect.signature(build).parameters.values()
    signature = inspect.Signature([expr.replace(name="expr", annotation="Any"), *rest], return_annotation="Expression")
    setattr(function_of, "__signature__", signature)  # noqa: B010  # unknown to type checkers
    return function(function_of)  # type: ignore[return-value]  # mypy wants the first parameter without a name


cast = _of_method(Expression.cast)
try_cast = _of_method(Expression.try_cast)
is_null = _of_method(Expression.is_null)
not_null = _of_method(Expression.not_null)
fill_null = _of_method(Expression.fill_null)
is_in = _of_method(Expression.is_in)
between = _of_method(Expression.between)
eq_null_safe = _of_method(Expression.eq_null_safe)
if_else = _of_method(Expression.if_else)


# --- functions of Arrow -----------------------------------------------------------------------------------------------


@function
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


@function
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
    are_constant = all(_literal(arg) is not None for arg in args)  # the first is a column then, since a call needs one
    for number, arg in enumerate(args):
        text = _literal(arg)
        if text is None or (number == 0 and are_constant):
            columns.append(lit(arg))
            text = _LETTERS[len(columns) - 1 : len(columns)]
        parts.append(text)
    if not 0 < len(columns) <= len(_LETTERS):
        raise InvalidArgumentError(
            f"duckdb_function({name!r}) takes one to {len(_LETTERS)} columns, or constants alone"
        )
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

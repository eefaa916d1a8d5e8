"""Functions of ``pyarrow.compute`` as expressions."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, call
from penstock.expr.registry import Value
from penstock.expr.signatures import strict
from penstock.types import DataType


def arrow_function(name: str, *args: Any, **options: Any) -> Expression:
    """Call a function of ``pyarrow.compute`` by its name: with columns first, then constants and options.

    >>> ps.from_pydict({"t": ["ab"]}).select(arrow_function("utf8_center", ps.col("t"), 6, "-")).to_pydict()
    {'t': ['--ab--']}
    """
    if name != "cast" and (name not in pc.list_functions() or pc.get_function(name).kind != "scalar"):
        raise InvalidArgumentError(f"{name!r} is no function of pyarrow.compute that gives a value for each row")
    columns = list(itertools.takewhile(lambda arg: isinstance(arg, Expression), args))
    rest = args[len(columns) :]
    return call("arrow_function", *columns, name=name, constants=rest, options=tuple(sorted(options.items())))


def _result_type(*dtypes: DataType, name: str, constants: tuple[Any, ...], options: Any) -> DataType:
    if all(dtype.is_null() for dtype in dtypes):
        return DataType.null()
    empty = [pa.array([], dtype.arrow) for dtype in dtypes]
    try:
        return DataType(getattr(pc, name)(*empty, *constants, **dict(options)).type)
    except (pa.ArrowException, TypeError) as exc:
        raise TypeMismatchError(f"pyarrow.compute.{name}: {exc}") from exc


@strict("arrow_function", _result_type)
def _arrow_function(*values: Value, name: str, constants: tuple[Any, ...], options: Any) -> Value:
    try:
        return getattr(pc, name)(*values, *constants, **dict(options))
    except pa.ArrowException as exc:
        raise ComputeError(f"pyarrow.compute.{name}: {exc}") from exc

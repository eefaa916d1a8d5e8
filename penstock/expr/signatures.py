"""Short forms of type rules, and kernels that never see a column of the null type.

    @strict("upper", takes(TEXT, returns=STRING))
    def _upper(text): ...

A rule accepts the null type everywhere: a column of nulls only fits any function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import TypeMismatchError
from penstock.expr.arrays import broadcast, on_arrays
from penstock.expr.kinds import INT64, NUMBER, TEXT, Kind
from penstock.expr.registry import Resolve, Value, kernel
from penstock.types import DataType, supertype
from penstock.types.plain import arrow_array, arrow_scalar

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


def takes(*kinds: Kind, rest: Kind | None = None, returns: DataType | Resolve) -> Resolve:
    """Return a rule that takes one argument of each kind, and more of the kind ``rest``; ``returns`` is the result type
    or a function that computes it.
    """

    def resolve(*dtypes: DataType, **options: Any) -> DataType:
        for position, dtype in enumerate(dtypes):
            kind = kinds[position] if position < len(kinds) else rest
            assert kind is not None, f"{len(dtypes)} arguments where {len(kinds)} are taken"
            kind.check(dtype)
        return returns if isinstance(returns, DataType) else returns(*dtypes, **options)

    return resolve


def same_type(dtype: DataType, *_: DataType, **__: Any) -> DataType:
    """Return the type of the first argument."""
    return dtype


def element_type(dtype: DataType, *_: DataType, **__: Any) -> DataType:
    """Return the type of the elements of a list or embedding."""
    return dtype if dtype.is_null() else dtype.inner


def common_type(*dtypes: DataType, **_: Any) -> DataType:
    """Return the type that all arguments convert to, or raise an error that names two arguments without a common
    type.
    """
    result = DataType.null()
    for dtype in dtypes:
        merged = supertype(result, dtype)
        if merged is None:
            raise TypeMismatchError(f"{result} and {dtype} have no type in common; .cast() one to the other's type")
        result = merged
    return result


def number_type(*dtypes: DataType, **_: Any) -> DataType:
    """Return the number type that holds all arguments; int64 for int64 with uint64, which have no common type."""
    for dtype in dtypes:
        NUMBER.check(dtype)
    result = common_type(*dtypes)
    return INT64 if result.is_float() and all(dtype.is_integer() for dtype in dtypes) else result


def strict(name: str, resolve: Resolve) -> Callable[[AnyCallable], AnyCallable]:
    """Register a kernel that returns null wherever an argument is null.

    It gets neither a column of the null type nor a null constant: for these the result is a null of the right type.
    """

    def register(compute: AnyCallable) -> AnyCallable:
        @functools.wraps(compute)
        def guarded(*values: Any, **options: Any) -> Any:
            for value in values:
                if pt.is_null(value.type) or (isinstance(value, pa.Scalar) and not value.is_valid):
                    dtypes = [DataType.from_arrow_type(value.type) for value in values]
                    return arrow_scalar(None, resolve(*dtypes, **options).arrow)
            return compute(*values, **options)

        kernel(name, resolve)(guarded)
        return compute

    return register


def text_kernel(
    name: str,
    *parameters: Kind,
    returns: DataType,
    compute: Callable[..., pa.Array],
    by_rows: Callable[[list[pa.Array]], pa.Array] | None = None,
) -> None:
    """Register a kernel of text; ``compute(texts, *constants)`` takes a column of text and constant parameters.

    Where a parameter is a column, call ``by_rows`` with all columns; without ``by_rows``, compute all rows with equal
    parameters at once.
    """

    @strict(name, takes(TEXT, *parameters, returns=returns))
    def compute_all(texts: Value, *values: Value, **options: Any) -> Any:
        if all(isinstance(value, pa.Scalar) for value in values):
            constants = [value.as_py() for value in values]
            return on_arrays(lambda array: compute(array, *constants, **options))(texts)
        texts, *columns = broadcast(texts, *values)
        if by_rows is not None:
            return by_rows([texts, *columns])
        rows_by_constants: dict[tuple[Any, ...], list[int]] = {}
        for row, each in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            rows_by_constants.setdefault(each, []).append(row)
        parts, order = [pa.nulls(0, returns.arrow)], list[int]()
        for each, rows in rows_by_constants.items():
            has_null = None in each
            chosen = texts.take(arrow_array(rows))
            parts.append(pa.nulls(len(rows), returns.arrow) if has_null else compute(chosen, *each, **options))
            order += rows
        return pa.concat_arrays(parts).take(arrow_array(np.argsort(order)))


def dtypes_of(*values: Value) -> list[DataType]:
    """Return the types of kernel arguments."""
    return [DataType(value.type) for value in values]


def numeric(value: Value, dtype: DataType) -> Value:
    """Return numbers as ``dtype``; a large integer may lose digits as a float, as in Python."""
    import pyarrow.compute as pc

    return pc.cast(value, dtype.arrow, safe=not dtype.is_float())

"""Type rules in a few words, and kernels that never see a column of the null type.

    @strict("upper", takes(TEXT, returns=STRING))
    def _upper(text): ...

A rule accepts the null type everywhere: a column of nothing but nulls fits any function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import TypeMismatchError
from penstock.expr.arrays import broadcast, on_arrays
from penstock.expr.registry import Resolve, Value, kernel
from penstock.types import DataType, supertype

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])

BOOL, STRING, BINARY = DataType.bool(), DataType.string(), DataType.binary()
INT32, INT64, UINT32, UINT64 = DataType.int32(), DataType.int64(), DataType.uint32(), DataType.uint64()
FLOAT64, DATE = DataType.float64(), DataType.date()


@dataclass(frozen=True, slots=True)
class Kind:
    """A set of types: how it is called in a message, which types are in it, and how to get there."""

    label: str
    accepts: Callable[[DataType], bool]
    remedy: str = ""

    def check(self, dtype: DataType) -> None:
        """Raise TypeMismatchError unless ``dtype`` is in the set or null."""
        if not dtype.is_null() and not self.accepts(dtype):
            raise TypeMismatchError(f"expected {self.label}, got {dtype}{self.remedy and '; '}{self.remedy}")


def is_vector(dtype: DataType) -> bool:
    """Check whether values are lists of numbers, of one length or not."""
    return (dtype.is_list() or dtype.is_embedding()) and (dtype.inner.is_numeric() or dtype.inner.is_null())


ANY = Kind("any type", lambda dtype: True)
TEXT = Kind("a string", DataType.is_string, 'convert it with .cast("string")')
TEXT_OR_BYTES = Kind("a string or binary", lambda d: d.is_string() or d.is_binary(), 'convert it with .cast("string")')
NUMBER = Kind("a number", DataType.is_numeric, 'convert it with .cast("float64") or .cast("int64")')
INTEGER = Kind("an integer", DataType.is_integer, 'convert it with .cast("int64")')
BOOLEAN = Kind("a bool", DataType.is_boolean, "compare it with something to get one")
LIST = Kind("a list", lambda d: d.is_list() or d.is_embedding())
LISTS = Kind("a list of lists", lambda d: d.is_list() and (d.inner.is_list() or d.inner.is_null()))
STRUCT = Kind("a struct", DataType.is_struct)
MAP = Kind("a map", DataType.is_map)
VECTOR = Kind("an embedding or a list of numbers", is_vector)
DATE_OR_TIMESTAMP = Kind(
    "a date or timestamp",
    lambda d: d.is_date() or d.is_timestamp(),
    'convert it with .cast("timestamp"), .cast("date") or to_datetime(format)',
)
CLOCK = Kind("a timestamp or time", lambda d: d.is_timestamp() or d.is_time(), 'convert it with .cast("timestamp")')
TIMESTAMP = Kind("a timestamp", DataType.is_timestamp, 'convert it with .cast("timestamp")')
DURATION = Kind("a duration", DataType.is_duration)


def takes(*kinds: Kind, rest: Kind | None = None, returns: DataType | Resolve) -> Resolve:
    """Return the rule: one argument of each kind, any more of ``rest``; ``returns`` is a type or computed from them."""

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
    """Return the type that all arguments convert to, or raise an error that names the two that do not agree."""
    result = DataType.null()
    for dtype in dtypes:
        merged = supertype(result, dtype)
        if merged is None:
            raise TypeMismatchError(f"{result} and {dtype} have no type in common; .cast() one to the other's type")
        result = merged
    return result


def number_type(*dtypes: DataType, **_: Any) -> DataType:
    """Return the number type that holds all arguments; int64 for int64 with uint64, which have none."""
    for dtype in dtypes:
        NUMBER.check(dtype)
    result = common_type(*dtypes)
    return INT64 if result.is_float() and all(dtype.is_integer() for dtype in dtypes) else result


def strict(name: str, resolve: Resolve) -> Callable[[AnyCallable], AnyCallable]:
    """Register a kernel for which null in an argument always means null.

    It never sees a column of the null type nor a null constant: the answer, a null of the right type, is given for it.
    """

    def register(compute: AnyCallable) -> AnyCallable:
        @functools.wraps(compute)
        def guarded(*values: Any, **options: Any) -> Any:
            for value in values:
                if pt.is_null(value.type) or (isinstance(value, pa.Scalar) and not value.is_valid):
                    dtypes = [DataType.from_arrow_type(value.type) for value in values]
                    return pa.scalar(None, resolve(*dtypes, **options).arrow)
            return compute(*values, **options)

        kernel(name, resolve)(guarded)
        return compute

    return register


def text_kernel(
    name: str, *parameters: Kind, returns: DataType, whole: Callable[..., pa.Array], row: Callable[..., Any]
) -> None:
    """Register a kernel of text whose parameters are mostly constants.

    ``whole(texts, *constants)`` computes a column at once. Where a parameter is a column itself, ``row(text, *values)``
    computes each row, and a null among its values makes it null.
    """

    @strict(name, takes(TEXT, *parameters, returns=returns))
    def compute(texts: Value, *values: Value, **options: Any) -> Any:
        if all(isinstance(value, pa.Scalar) for value in values):
            constants = [value.as_py() for value in values]
            return on_arrays(lambda array: whole(array, *constants, **options))(texts)
        rows = zip(*(array.to_pylist() for array in broadcast(texts, *values)), strict=True)
        results = [None if None in items else row(*items, **options) for items in rows]
        return pa.array(results, returns.arrow)


def dtypes_of(*values: Value) -> list[DataType]:
    """Return the types of kernel arguments."""
    return [DataType(value.type) for value in values]


def numeric(value: Value, dtype: DataType) -> Value:
    """Return numbers as ``dtype``; a large integer may lose digits on the way to a float, as in Python."""
    return pc.cast(value, dtype.arrow, safe=not dtype.is_float())

"""Sets of types that functions accept, and the types that rules return most often."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import TypeMismatchError
from penstock.types import DataType
from penstock.types.frozen import frozen
from penstock.types.supertype import is_listed

BOOL, STRING, BINARY = DataType.bool(), DataType.string(), DataType.binary()
INT32, INT64, UINT32, UINT64 = DataType.int32(), DataType.int64(), DataType.uint32(), DataType.uint64()
FLOAT64, DATE = DataType.float64(), DataType.date()


@frozen
class Kind:
    """A set of types: its name in messages, a test for membership, and advice on how to convert to it."""

    label: str
    accepts: Callable[[DataType], bool]
    remedy: str = ""

    def check(self, dtype: DataType) -> None:
        """Raise TypeMismatchError unless ``dtype`` is in the set or null."""
        if not dtype.is_null() and not self.accepts(dtype):
            raise TypeMismatchError(f"expected {self.label}, got {dtype}{self.remedy and '; '}{self.remedy}")


def is_vector(dtype: DataType) -> bool:
    """Check whether values are vectors as models return them: lists of numbers, or tensors with one dimension."""
    is_row = dtype.is_tensor() and dtype.shape is not None and len(dtype.shape) == 1
    return (is_row or is_listed(dtype)) and (dtype.inner.is_numeric() or dtype.inner.is_null())


def vector_size(dtype: DataType) -> int | None:
    """Return the length of a type's vectors, or None if it is not known."""
    if dtype.is_tensor():
        return dtype.shape[0] if dtype.shape else None
    return dtype.size if dtype.is_embedding() or dtype.is_fixed_size_list() else None


ANY = Kind("any type", lambda dtype: True)
TEXT = Kind("a string", DataType.is_string, 'convert it with .cast("string")')
TEXT_OR_BYTES = Kind("a string or binary", lambda d: d.is_string() or d.is_binary(), 'convert it with .cast("string")')
NUMBER = Kind("a number", DataType.is_numeric, 'convert it with .cast("float64") or .cast("int64")')
INTEGER = Kind("an integer", DataType.is_integer, 'convert it with .cast("int64")')
BOOLEAN = Kind("a bool", DataType.is_boolean, "compare it with something to get one")
LIST = Kind("a list", is_listed)
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

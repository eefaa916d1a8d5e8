"""Choose the row groups of a Parquet file that may have rows for a predicate, by the statistics in its footer."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.protocols import Condition, ReadRequest
from penstock.types.frozen import frozen

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_UNITS_US = {"s": 10**6, "ms": 10**3, "us": 1}

# True if no value between the bounds fulfils the comparison. NaN as a bound proves nothing.
_RULES_OUT: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda value, least, most: value < least or value > most,
    "<": lambda value, least, most: least >= value,
    "<=": lambda value, least, most: least > value,
    ">": lambda value, least, most: most <= value,
    ">=": lambda value, least, most: most < value,
}


@frozen
class _Check:
    """A condition on the column at position ``leaf``."""

    condition: Condition
    leaf: int
    dtype: pa.DataType

    def may_match(self, group: Any) -> bool:
        """Return False if the statistics of a row group prove that the condition is true for none of its rows."""
        found = group.column(self.leaf).statistics
        if found is None:
            return True
        num_nulls = found.null_count if found.has_null_count else None
        operator, value = self.condition.operator, self.condition.value
        if operator == "is null":
            return num_nulls != 0
        if num_nulls == group.num_rows:
            return False
        if operator in ("is not null", "!=") or not found.has_min_max:
            return True
        least, most = (_bound(raw, self.dtype) for raw in (found.min_raw, found.max_raw))
        rules_out = _RULES_OUT["=" if operator == "in" else operator]
        values = value if operator == "in" else (value,)
        return not all(rules_out(_constant(each, self.dtype), least, most) for each in values)


def matching_groups(metadata: Any, schema: pa.Schema, request: ReadRequest) -> list[int]:
    """Return the row groups whose statistics do not rule out a condition.

    Arrow's datasets do the same, but import pandas.
    """
    checks = list(_checks(metadata, schema, request))
    groups = ((number, metadata.row_group(number)) for number in range(metadata.num_row_groups))
    return [number for number, group in groups if all(check.may_match(group) for check in checks)]


def _checks(metadata: Any, schema: pa.Schema, request: ReadRequest) -> Iterator[_Check]:
    """Yield the conditions on plain columns that have the promised type in the file."""
    in_file = metadata.schema.to_arrow_schema()
    leaves = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    for each in request.conditions:
        position = in_file.get_field_index(each.column)
        if position < 0 or "." in each.column or each.column not in leaves or each.column not in schema.names:
            continue
        dtype = in_file.field(position).type
        if dtype == schema.field(each.column).type and _is_ordered(dtype):
            yield _Check(each, leaves[each.column], dtype)


def _is_ordered(dtype: pa.DataType) -> bool:
    """Return True for types whose values Parquet stores in an order-preserving form."""
    checks = (pt.is_signed_integer, pt.is_float32, pt.is_float64, pt.is_string, pt.is_date32)
    return any(check(dtype) for check in checks) or (pt.is_timestamp(dtype) and dtype.unit in _UNITS_US)


def _bound(raw: Any, dtype: pa.DataType) -> Any:
    return raw * _UNITS_US[dtype.unit] if pt.is_timestamp(dtype) else raw


def _constant(value: Any, dtype: pa.DataType) -> Any:
    """Return a value in the form in which the statistics hold it."""
    if pt.is_string(dtype):
        return value.encode()
    if pt.is_date32(dtype):
        return value.toordinal() - _EPOCH.toordinal()
    if pt.is_timestamp(dtype):
        return (value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND
    return value

"""Divide the rows of a relation into parts, by a hash or by ranges of its keys. Each part is computed by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.relations import (
    AddWindows,
    Aggregate,
    Distinct,
    GroupRows,
    Join,
    Relation,
    SetOperation,
    Sort,
    SortKey,
)
from penstock.relational.arrow import to_duckdb
from penstock.relational.scalar import database
from penstock.types import DataType, Schema, supertype
from penstock.types.cast import cast
from penstock.types.frozen import frozen
from penstock.types.plain import arrow_numbers, numpy_values

Numbers = npt.NDArray[np.int64]
SAMPLED_KEYS = 64  # of each batch


@frozen
class HashParts:
    """Rows with equal keys are in the same part. ``keys`` are the columns of each input, ``dtypes`` the types to
    compare them in; None leaves them unchanged.
    """

    keys: tuple[tuple[str, ...], ...]
    dtypes: tuple[DataType, ...] | None = None


@frozen
class RangeParts:
    """Parts follow each other in the order of the keys. ``bounds`` are the least sort keys of all parts but the
    first."""

    keys: tuple[SortKey, ...]
    bounds: tuple[bytes, ...] = ()


def parts_of(relation: Relation, schemas: Sequence[Schema | None]) -> HashParts | RangeParts | None:
    """Return the way to divide the rows of a relation; None if it needs all rows at once, or only a few."""
    match relation:
        case Sort(keys, None) if keys:
            return RangeParts(keys)
        case Aggregate(keys) | GroupRows(keys) if keys:
            return HashParts((keys,))
        case Distinct(columns):
            return HashParts((columns,))
        case AddWindows(columns):
            shared = set(columns[0].partition_by).intersection(*(column.partition_by for column in columns))
            return HashParts((tuple(sorted(shared)),)) if shared else None
        case Join(_, left_on, right_on) if left_on:
            pairs = _key_types(schemas, left_on, right_on)
            return HashParts((left_on, right_on), pairs) if pairs else None
        case SetOperation() if schemas[0] is not None:
            names = tuple(schemas[0].names)
            return HashParts((names, names))
        case _:
            return None


def _key_types(
    schemas: Sequence[Schema | None], left_on: Sequence[str], right_on: Sequence[str]
) -> tuple[DataType, ...] | None:
    left, right = schemas
    if left is None or right is None:
        return None
    dtypes = [supertype(left[name].dtype, right[other].dtype) for name, other in zip(left_on, right_on, strict=True)]
    return tuple(dtype for dtype in dtypes if dtype is not None)


def divided(rows: pa.RecordBatch, parts: HashParts | RangeParts, num_parts: int, side: int = 0) -> list[pa.RecordBatch]:
    """Return the rows of each part, in the order of the input ``side``."""
    numbers = _hashed(rows, parts, num_parts, side) if isinstance(parts, HashParts) else _ranged(rows, parts)
    ends = np.cumsum(np.bincount(numbers, minlength=num_parts)).tolist()
    order = np.argsort(numbers.astype(np.uint16), kind="stable")  # NumPy sorts such short numbers by their digits
    taken = rows.take(arrow_numbers(order))
    return [taken.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]


def _hashed(rows: pa.RecordBatch, parts: HashParts, num_parts: int, side: int) -> Numbers:
    names = parts.keys[side]
    columns = [rows.column(name) for name in names]
    if parts.dtypes is not None:
        pairs = zip(columns, parts.dtypes, strict=True)
        columns = [cast(column, dtype, what="join: a key") for column, dtype in pairs]
    # DuckDB hashes equal values of a type equally: null and null, NaN and NaN, zero and minus zero.
    return numpy_values(_computed(columns, f"(hash({{}}) % {num_parts})::bigint"))


def _ranged(rows: pa.RecordBatch, parts: RangeParts) -> Numbers:
    keys = np.array(sort_keys(rows, parts.keys), object)
    return np.searchsorted(np.array(parts.bounds, object), keys, side="right")


def sampled(rows: pa.RecordBatch, keys: Sequence[SortKey]) -> list[bytes]:
    """Return the sort keys of some rows; nothing if a key has no type here, because other rows may give it one."""
    if any(pa.types.is_null(rows.column(key.column).type) for key in keys):
        return []
    places = np.linspace(0, rows.num_rows - 1, min(rows.num_rows, SAMPLED_KEYS)).astype(np.int64)
    return sort_keys(rows.select([key.column for key in keys]).take(arrow_numbers(places)), keys)


def bounds_of(samples: Sequence[bytes], num_parts: int) -> tuple[bytes, ...]:
    """Return bounds of parts so that each has about as many of the sampled sort keys.

    >>> bounds_of([b"d", b"a", b"c", b"b"], 2), bounds_of([], 2)
    ((b'c',), (b'',))
    """
    ordered = sorted(samples) or [b""]
    return tuple(ordered[len(ordered) * number // num_parts] for number in range(1, num_parts))


def sort_keys(rows: pa.RecordBatch, keys: Sequence[SortKey]) -> list[bytes]:
    """Return a key for each row whose order as bytes is the order of the rows."""
    terms = [
        f"{{}}, '{'desc' if key.is_descending else 'asc'} nulls {'first' if key.is_nulls_first else 'last'}'"
        for key in keys
    ]
    columns = [rows.column(key.column) for key in keys]
    columns = [column.cast(pa.string()) if pa.types.is_null(column.type) else column for column in columns]
    found: list[bytes] = _computed(columns, f"create_sort_key({', '.join(terms)})").to_pylist()
    return found


def _computed(columns: Sequence[pa.Array], template: str) -> pa.Array:
    """Compute an SQL expression of the columns for each row; ``template`` has one placeholder for each column, or a
    single one for all columns.
    """
    names = [f"k{number}" for number in range(len(columns))]
    keys = to_duckdb(pa.RecordBatch.from_arrays(list(columns), names=names))
    sql = template.format(*names) if template.count("{}") == len(names) else template.format(", ".join(names))
    result = database().cursor().from_arrow(pa.Table.from_batches([keys])).project(f"{sql} as found").to_arrow_table()
    return result.column(0).combine_chunks()

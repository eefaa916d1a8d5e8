"""Give a batch the schema it must have: reorder, fill in and cast its columns."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import TypeMismatchError, WriteError
from penstock.types import DataType, cast, supertype


class ColumnMismatchError(Exception):
    """A column cannot be cast to its type. The caller adds the file or the operator for the user."""

    def __init__(self, column: str, found: pa.DataType | None, wanted: pa.DataType | None) -> None:
        super().__init__(column, found, wanted)
        self.column = column
        self.found = found
        self.wanted = wanted


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema, is_strict: bool = False) -> pa.RecordBatch:
    """Return ``batch`` with exactly the columns and types of ``schema``; itself if it has them already.

    A missing column becomes nulls and an extra one is dropped. With ``is_strict`` both are a mismatch.
    """
    if batch.schema.equals(schema):
        return batch
    if not len(schema):
        return batch.select([])  # keeps the number of rows, which from_arrays would lose
    if is_strict:
        known = set(schema.names)
        for name in batch.schema.names:
            if name not in known:
                raise ColumnMismatchError(name, batch.schema.field(name).type, None)
    return pa.RecordBatch.from_arrays([_conform_column(batch, field, is_strict) for field in schema], schema=schema)


def conform_rows(batch: pa.RecordBatch, schema: pa.Schema, target: str) -> pa.RecordBatch:
    """Return rows with exactly the schema of the earlier batches for ``target``, or raise ``WriteError``."""
    try:
        return conform_batch(batch, schema, is_strict=True)
    except ColumnMismatchError as exc:
        raise mismatch_error(exc, target) from exc


def mismatch_error(exc: ColumnMismatchError, target: str) -> WriteError:
    if exc.found is None:
        problem = f"column {exc.column!r} is missing from a batch, where earlier ones have it"
    elif exc.wanted is None:
        problem = f"a batch has the new column {exc.column!r}, which earlier ones do not have"
    else:
        found, wanted = DataType(exc.found), DataType(exc.wanted)
        problem = f"column {exc.column!r} is {found} in a batch and cannot be made {wanted}, as before"
    return WriteError(f"Cannot write to {target!r}: {problem}.")


def widened_schema(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return ``schema`` with types that hold the values of ``other`` as well; itself if they do already.

    A column that only one of them has does not change. Types without a common supertype are a mismatch.

    >>> widened_schema(pa.schema({"a": pa.int64()}), pa.schema({"a": pa.float64(), "b": pa.null()})).types
    [DataType(double)]
    """
    if schema.equals(other):
        return schema
    fields = [_widened_field(field, other) for field in schema]
    return schema if all(new is old for new, old in zip(fields, schema, strict=True)) else pa.schema(fields)


def _widened_field(field: pa.Field, other: pa.Schema) -> pa.Field:
    position = other.get_field_index(field.name)
    if position < 0 or other.field(position).type == field.type:
        return field
    known, found = DataType(field.type), DataType(other.field(position).type)
    common = supertype(known, found)
    if common is None:
        raise ColumnMismatchError(field.name, found.arrow, known.arrow)
    return field if common == known else pa.field(field.name, common.arrow)


def _conform_column(batch: pa.RecordBatch, field: pa.Field, is_strict: bool) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        if is_strict:
            raise ColumnMismatchError(field.name, None, field.type)
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(position)
    if column.type == field.type:
        return column
    try:
        return cast(column, DataType(field.type))
    except TypeMismatchError as exc:
        raise ColumnMismatchError(field.name, column.type, field.type) from exc

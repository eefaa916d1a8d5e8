"""An input whose columns are not known before it runs. A null says nothing about the type of its column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.relational.spill import Place, SpilledBatches
from penstock.types import DataType, Schema, supertype
from penstock.types.cast import cast
from penstock.types.supertype import has_null_type

HELD_NBYTES = 16 * 2**20  # bytes of batches in memory; the others wait in a file


class TypedInput:
    """Gives all batches of an input the same columns and types.

    If these are unknown, batches wait until each column has had a value, or the input ends.
    """

    def __init__(self, title: str, schema: Schema | None) -> None:
        self.schema = schema
        self._title = title  # of the verb, in errors
        self._types: pa.Schema | None = None  # of the batches that wait
        self._spilled = SpilledBatches(title, HELD_NBYTES)
        self._waiting: list[Place] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batches that no longer need to wait."""
        if self.schema is None:
            self._types = batch.schema if self._types is None else _merged(self._title, self._types, batch.schema)
            self._waiting.append(self._spilled.put(batch))
            if not any(map(has_null_type, self._types.types)):
                yield from self.end()
        else:
            yield with_types(self._title, batch, self.schema.to_arrow())

    def end(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that wait; a column without any value has the type of null."""
        if self.schema is None and self._types is not None:
            self.schema = Schema.from_arrow(self._types.remove_metadata())
            schema = self.schema.to_arrow()
            waiting, self._waiting = self._waiting, []
            for place in waiting:
                yield with_types(self._title, self._spilled.get(place), schema)
            self._spilled.close()

    def close(self) -> None:
        self._waiting = []
        self._spilled.close()


def common_schema(title: str, batches: Sequence[pa.RecordBatch]) -> pa.Schema:
    """Return the columns of some batches, with types that hold the values of all."""
    schema = batches[0].schema
    for batch in batches[1:]:
        schema = _merged(title, schema, batch.schema)
    return schema.remove_metadata()


def with_types(title: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns and types of earlier batches; a function may give other types in each batch."""
    if batch.schema.types == schema.types and batch.schema.names == schema.names:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    _merged(title, schema, batch.schema)  # refuses text where numbers were
    what = f"{title}: a function gave several types for column"
    arrays = [cast(batch.column(f.name), DataType(f.type), what=f"{what} {f.name!r}") for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _merged(title: str, known: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the types that hold the values of both."""
    if known.equals(other):
        return known
    _check_names(title, other, known)
    fields = []
    for field in known:
        pair = DataType(field.type), DataType(other.field(field.name).type)
        common = supertype(*pair)
        if common is None:
            raise TypeMismatchError(
                f"{title}: a function gave several types for column {field.name!r}: {pair[0]} and {pair[1]}"
            )
        fields.append(pa.field(field.name, common.arrow))
    return pa.schema(fields)


def _check_names(title: str, found: pa.Schema, known: pa.Schema) -> None:
    if set(found.names) != set(known.names):
        raise TypeMismatchError(
            f"{title}: the first rows have the columns {', '.join(known.names)}, later ones "
            f"{', '.join(found.names)}; a function must return the same columns for all rows"
        )

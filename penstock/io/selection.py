"""Rows and columns that a scan selects: cast to the promised types, filtered, projected and cut to the limit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ReadError
from penstock.io.batches import split_batch
from penstock.io.conform import ColumnMismatchError, conform_batch
from penstock.protocols import ReadRequest, ReadTask
from penstock.types import DataType, Schema, normalize_batch

Task = TypeVar("Task", bound=ReadTask)
Scanned = TypeVar("Scanned")


@dataclass(frozen=True)
class Selection:
    """The rows and columns that a task returns.

    ``schema`` has the columns to read, those of the predicate included. ``constants`` are columns that have one value
    for the whole task.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    predicate: pc.Expression | None = None
    limit: int | None = None
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @classmethod
    def of(cls, request: ReadRequest, schema: Schema) -> Selection:
        full = schema.to_arrow()
        columns = tuple(full.names) if request.columns is None else request.columns
        needed = columns_needed(full, columns, request.predicate)
        read = pa.schema([column for column in full if column.name in needed])
        return cls(read, columns, request.predicate, request.limit)

    @property
    def predicate_columns(self) -> set[str]:
        return columns_needed(self.schema, (), self.predicate)

    def apply(self, batches: Iterable[pa.RecordBatch], source: str) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows of ``batches`` in batches of moderate size; ``source`` names them in errors."""
        rows_left = self.limit
        for raw in batches:
            for batch in split_batch(self._selected(raw, source).slice(0, rows_left)):
                if batch.num_rows:
                    yield batch
                if rows_left is not None:
                    rows_left -= batch.num_rows
            if rows_left == 0:
                return

    def _selected(self, batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
        try:
            batch = conform_batch(normalize_batch(batch), self.schema)
        except ColumnMismatchError as exc:
            found, wanted = DataType(exc.found), DataType(exc.wanted)
            raise ReadError(
                f"Cannot read {source}: column {exc.column!r} is {found} there and does not become {wanted}, its type "
                f"in this scan; give schema={{{exc.column!r}: ...}} to choose another. {exc.__cause__}"
            ) from exc
        for name, value in self.constants.items():
            batch = batch.append_column(pa.field(name, value.type), pa.repeat(value, batch.num_rows))
        if self.predicate is not None:
            batch = batch.filter(self.predicate)
        return batch.select(list(self.columns))


def until_limit(
    read_tasks: Callable[[Scanned, ReadRequest], Iterable[Task]],
) -> Callable[[Scanned, ReadRequest], Iterator[Task]]:
    """Decorate ``Source.read_tasks`` to stop when its tasks have as many rows as the limit, if no row is filtered."""

    @functools.wraps(read_tasks)
    def limited(source: Scanned, request: ReadRequest) -> Iterator[Task]:
        found = 0
        for task in read_tasks(source, request):
            yield task
            found += task.num_rows or 0
            if request.limit is not None and request.predicate is None and found >= request.limit:
                return

    return limited


def columns_needed(schema: pa.Schema, columns: Sequence[str], predicate: pc.Expression | None) -> set[str]:
    """Return ``columns`` and those of the predicate: it cannot be bound without them."""
    needed = set(columns)
    if predicate is None or _can_bind(predicate, schema, needed):
        return needed
    every = set(schema.names)
    return needed | {name for name in every - needed if not _can_bind(predicate, schema, every - {name})}


def _can_bind(predicate: pc.Expression, schema: pa.Schema, names: set[str]) -> bool:
    empty = pa.schema([f for f in schema if f.name in names]).empty_table()
    try:
        empty.filter(predicate)
    except pa.ArrowInvalid:
        return False
    return True

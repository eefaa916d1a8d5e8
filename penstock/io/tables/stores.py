"""What the table stores share: the rows that their libraries give, made into what a scan was promised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ReadError
from penstock.io.batches import split_batch
from penstock.io.conform import ColumnMismatchError, conform_batch
from penstock.io.predicates import columns_needed
from penstock.protocols import ReadRequest
from penstock.types import DataType, Schema, normalize_batch


@dataclass(frozen=True)
class Wanted:
    """What a task reads and what it gives: ``schema`` has the columns to read, those of the predicate included."""

    schema: pa.Schema
    columns: tuple[str, ...]
    predicate: pc.Expression | None = None
    limit: int | None = None

    @classmethod
    def of(cls, request: ReadRequest, schema: Schema) -> Wanted:
        full = schema.to_arrow()
        columns = tuple(full.names) if request.columns is None else request.columns
        needed = columns_needed(full, columns, request.predicate)
        read = pa.schema([column for column in full if column.name in needed])
        return cls(read, columns, request.predicate, request.limit)

    @property
    def predicate_columns(self) -> set[str]:
        """The columns that the predicate uses."""
        return columns_needed(self.schema, (), self.predicate)

    def finished(self, batches: Iterable[pa.RecordBatch], source: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the types that were promised, filtered and cut; never larger than a batch should be."""
        left = self.limit
        for raw in batches:
            batch = _conformed(raw, self.schema, source)
            if self.predicate is not None:
                batch = batch.filter(self.predicate)
            for piece in split_batch(batch.select(list(self.columns)).slice(0, left)):
                if piece.num_rows:
                    yield piece
            if left is not None:
                left -= min(batch.num_rows, left)
                if not left:
                    return


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, source: str) -> pa.RecordBatch:
    try:
        return conform_batch(normalize_batch(batch), schema)
    except ColumnMismatchError as exc:
        raise ReadError(
            f"{source}: column {exc.column!r} holds {DataType(exc.found)} that does not become {DataType(exc.wanted)}, "
            f"its type in this scan; give schema={{{exc.column!r}: ...}} or cast it in the query. {exc.__cause__}"
        ) from exc


def groups_of(items: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield neighbours together, ``size`` of them.

    >>> list(groups_of([1, 2, 3], 2))
    [(1, 2), (3,)]
    """
    for start in range(0, len(items), size):
        yield tuple(items[start : start + size])

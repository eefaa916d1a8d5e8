"""Rows that are in memory already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.io.batches import split_batch
from penstock.protocols import ReadRequest
from penstock.types import Schema, normalize_batch
from penstock.types.ipc import from_ipc, to_ipc


class Part(Protocol):
    """A batch that lies elsewhere, such as in a file of this machine."""

    num_rows: int

    def read(self) -> pa.RecordBatch: ...


class MemoryTask:
    """One batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.num_rows: int | None = batch.num_rows
        self.nbytes: int | None = None  # to ask Arrow takes longer than to make the task

    def read(self) -> list[pa.RecordBatch]:
        return [self.batch] if self.batch.num_rows else []

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_task, (to_ipc(self.batch),)


def _unpickled_task(packed: pa.Buffer) -> MemoryTask:
    return MemoryTask(from_ipc(packed))


class MemorySource:
    """A ``Source`` over batches; they are held, never copied where their types are normal already."""

    can_filter = False

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str = "memory") -> None:
        self.name = name
        # Cut first: what is too much for the 31-bit offsets of a normal type is not in one batch any more.
        self._batches = [normalize_batch(piece) for batch in batches for piece in split_batch(batch)]
        self._schema = Schema.from_arrow(schema)

    @classmethod
    def from_table(cls, table: pa.Table, name: str = "memory") -> MemorySource:
        """Return the source for a table."""
        return cls(table.to_batches(), table.schema, name)

    def schema(self) -> Schema:
        return self._schema

    def read_tasks(self, request: ReadRequest) -> Iterator[MemoryTask]:
        left = request.limit
        for whole in self._batches:
            batch = whole if request.columns is None else whole.select(list(request.columns))
            yield MemoryTask(batch if left is None else batch.slice(0, left))
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return


class LateSource:
    """A ``Source`` over batches of normal types that are in memory or are read when their turn comes."""

    can_filter = False

    def __init__(self, parts: Iterable[pa.RecordBatch | Part], schema: pa.Schema, name: str) -> None:
        self.name = name
        self._parts = list(parts)
        self._schema = Schema.from_arrow(schema)

    def schema(self) -> Schema:
        return self._schema

    def read_tasks(self, request: ReadRequest) -> Iterator[LateTask]:
        left = request.limit
        for part in self._parts:
            yield LateTask(part, request.columns, part.num_rows, None)
            if left is not None:
                left -= part.num_rows
                if left <= 0:
                    return


@dataclass(slots=True)
class LateTask:
    """One batch, read by whoever wants it; to another process it goes as it is."""

    part: pa.RecordBatch | Part
    columns: tuple[str, ...] | None
    num_rows: int | None
    nbytes: int | None

    def read(self) -> list[pa.RecordBatch]:
        batch = self.part if isinstance(self.part, pa.RecordBatch) else self.part.read()
        return [batch if self.columns is None else batch.select(list(self.columns))]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_task, (to_ipc(self.read()[0]),)

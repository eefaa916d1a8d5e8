"""Rows that are in memory already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.io.batches import split_batch
from penstock.io.file_versions import content_version, file_versions
from penstock.io.files import DataFile
from penstock.protocols import ReadRequest
from penstock.types import Schema, normalize_batch
from penstock.types.ipc import from_ipc, to_ipc


class Part(Protocol):
    """A batch that lies elsewhere, such as in a file of this machine."""

    num_rows: int

    def read(self) -> pa.RecordBatch: ...


class MemoryTask:
    """One batch."""

    def __init__(self, batch: pa.RecordBatch, origin: tuple[str, str] = ("memory", "")) -> None:
        self.batch = batch
        self.origin = origin
        self.num_rows: int | None = batch.num_rows
        self.nbytes: int | None = None  # to ask Arrow takes longer than to make the task

    def read(self) -> list[pa.RecordBatch]:
        return [self.batch] if self.batch.num_rows else []

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_task, (to_ipc(self.batch), self.origin)


def _unpickled_task(packed: pa.Buffer, origin: tuple[str, str]) -> MemoryTask:
    return MemoryTask(from_ipc(packed), origin)


class MemorySource:
    """A ``Source`` over batches; they are held, never copied where their types are normal already.

    ``files`` are those that the rows name and that a later step reads, where that is known.
    """

    can_filter = False

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        name: str = "memory",
        files: Sequence[DataFile] = (),
    ) -> None:
        self.name = name
        self._files = files
        # Cut first: what is too much for the 31-bit offsets of a normal type is not in one batch any more.
        self._batches = [normalize_batch(piece) for batch in batches for piece in split_batch(batch)]
        self._schema = Schema.from_arrow(schema)

    @classmethod
    def from_table(cls, table: pa.Table, name: str = "memory", files: Sequence[DataFile] = ()) -> MemorySource:
        """Return the source for a table."""
        return cls(table.to_batches(), table.schema, name, files)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self.name: content_version(self._batches, self._schema.to_arrow()), **file_versions(self._files)}

    def options(self) -> Mapping[str, Any]:
        return {}

    def read_tasks(self, request: ReadRequest) -> Iterator[MemoryTask]:
        left, first = request.limit, 0
        for whole in self._batches:
            batch = whole if request.columns is None else whole.select(list(request.columns))
            yield MemoryTask(batch if left is None else batch.slice(0, left), (self.name, f"from row {first}"))
            first += batch.num_rows
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

    def versions(self) -> Mapping[str, str]:
        return {self.name: content_version(map(_read, self._parts), self._schema.to_arrow())}

    def options(self) -> Mapping[str, Any]:
        return {}

    def read_tasks(self, request: ReadRequest) -> Iterator[LateTask]:
        left, first = request.limit, 0
        for part in self._parts:
            yield LateTask(part, request.columns, part.num_rows, None, (self.name, f"from row {first}"))
            first += part.num_rows
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
    origin: tuple[str, str]

    def read(self) -> list[pa.RecordBatch]:
        batch = _read(self.part)
        return [batch if self.columns is None else batch.select(list(self.columns))]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_task, (to_ipc(self.read()[0]), self.origin)


def _read(part: pa.RecordBatch | Part) -> pa.RecordBatch:
    return part if isinstance(part, pa.RecordBatch) else part.read()

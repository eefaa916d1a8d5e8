"""Rows in memory, or read back one batch at a time."""

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


class StoredBatch(Protocol):
    """A batch outside memory, such as in a file of this machine; its types are normal."""

    num_rows: int

    def read(self) -> pa.RecordBatch: ...


@dataclass(slots=True)
class MemoryTask:
    """One batch. Pickling sends its rows."""

    part: pa.RecordBatch | StoredBatch
    origin: tuple[str, str] = ("memory", "")
    columns: tuple[str, ...] | None = None
    num_rows: int | None = None
    nbytes: int | None = None  # unknown: to ask Arrow takes longer than to make the task

    @property
    def batch(self) -> pa.RecordBatch:
        batch = _read(self.part)
        if self.columns is not None:
            batch = batch.select(list(self.columns))
        return batch.slice(0, self.num_rows)

    def read(self) -> list[pa.RecordBatch]:
        batch = self.batch
        return [batch] if batch.num_rows else []

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_task, (to_ipc(self.batch), self.origin)


def _unpickled_task(packed: pa.Buffer, origin: tuple[str, str]) -> MemoryTask:
    batch = from_ipc(packed)
    return MemoryTask(batch, origin, num_rows=batch.num_rows)


class MemorySource:
    """A ``Source`` over batches. It holds them, without a copy where their types are normal already.

    ``files`` are the files that the rows name and a later step reads, where they are known.
    """

    can_filter = False

    def __init__(
        self,
        parts: Iterable[pa.RecordBatch | StoredBatch],
        schema: pa.Schema,
        name: str = "memory",
        files: Sequence[DataFile] = (),
    ) -> None:
        self.name = name
        self._files = files
        self._parts = [piece for part in parts for piece in _pieces(part)]
        self._schema = Schema.from_arrow(schema)

    @classmethod
    def from_table(cls, table: pa.Table, name: str = "memory", files: Sequence[DataFile] = ()) -> MemorySource:
        """Return the source for a table."""
        return cls(table.to_batches(), table.schema, name, files)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        version = content_version(map(_read, self._parts), self._schema.to_arrow())
        return {self.name: version, **file_versions(self._files)}

    def options(self) -> Mapping[str, Any]:
        return {}

    def read_tasks(self, request: ReadRequest) -> Iterator[MemoryTask]:
        first = 0
        for part in self._parts:
            rows_left = part.num_rows if request.limit is None else request.limit - first
            num_rows = min(part.num_rows, rows_left)
            yield MemoryTask(part, (self.name, f"from row {first}"), request.columns, num_rows)
            first += num_rows
            if request.limit is not None and first >= request.limit:
                return


def _pieces(part: pa.RecordBatch | StoredBatch) -> Iterator[pa.RecordBatch | StoredBatch]:
    """Yield a batch in pieces of moderate size, which fit the 31-bit offsets of normal types."""
    if isinstance(part, pa.RecordBatch):
        yield from map(normalize_batch, split_batch(part))
    else:
        yield part


def _read(part: pa.RecordBatch | StoredBatch) -> pa.RecordBatch:
    return part if isinstance(part, pa.RecordBatch) else part.read()

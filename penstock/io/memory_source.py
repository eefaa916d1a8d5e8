"""Rows in memory, and ranges of integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.io.batch_sizes import BATCH_ROWS, TASK_ROWS, split_batch
from penstock.io.data_file import DataFile, file_versions, group_origin
from penstock.io.files import short_name
from penstock.protocols import ReadRequest
from penstock.types import DataType, Field, Schema, normalize_batch
from penstock.types.digests import ContentHash
from penstock.types.ipc import from_ipc, to_ipc
from penstock.types.plain import arrow_array, arrow_numbers
from penstock.types.row_numbers import ROW_NUMBER, RowPlace, numbered, numbered_inputs
from penstock.types.row_ranges import RowRange

ID = "id"  # the column of a range
FILES_PER_TASK = 256  # few, because a job reads them again if one of them has changed
UNNAMED_INPUT = "the input"  # in "row 3 of the input"


@dataclass(slots=True)
class MemoryTask:
    """One batch. Pickling sends its rows."""

    batch: pa.RecordBatch
    origin: tuple[str, str]
    num_rows: int | None
    first_row: int = 0
    nbytes: int | None = None  # unknown: asking Arrow takes longer than making the task

    @property
    def first_place(self) -> RowPlace:
        return RowPlace(UNNAMED_INPUT, self.first_row)

    def read(self) -> list[pa.RecordBatch]:
        return [self.batch] if self.num_rows else []

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_task, (to_ipc(self.batch), self.origin, self.first_row)


def _unpickled_task(packed: pa.Buffer, origin: tuple[str, str], first_row: int) -> MemoryTask:
    batch = from_ipc(packed)
    return MemoryTask(batch, origin, batch.num_rows, first_row)


class MemorySource:
    """A ``Source`` over batches. It holds them, without a copy where their types are normal already.

    ``files`` are the files that the rows name, one each, and that a later step reads.
    """

    can_filter = False

    def __init__(
        self,
        parts: Iterable[pa.RecordBatch],
        schema: pa.Schema | Schema,
        name: str = "memory",
        files: Sequence[DataFile] = (),
    ) -> None:
        self.name = name
        self._files = files
        paths = [file.url for file in files]
        self.short_name = short_name(paths, files) if files else name
        self._parts = [piece for part in parts for piece in _normalized(part)]
        self._schema = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)

    @classmethod
    def from_table(cls, table: pa.Table, name: str = "memory", files: Sequence[DataFile] = ()) -> MemorySource:
        return cls(table.to_batches(), table.schema, name, files)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        version = content_version(self._parts, self._schema.to_arrow())
        return {self.name: version, **file_versions(self._files)}

    def read_tasks(self, request: ReadRequest) -> Iterator[MemoryTask]:
        """Yield the requested columns in slices of moderate size."""
        columns = None if request.columns is None else list(request.columns)
        if columns is not None and request.first_input is not None:
            columns.append(ROW_NUMBER)
        first = 0
        for part in self._with_numbers(request.first_input):
            part = part if columns is None else part.select(columns)
            for batch in self._pieces(part if request.limit is None else part.slice(0, request.limit - first)):
                origin = (self.name, f"from row {first}")
                if self._files:
                    origin = group_origin(self._files[first : first + batch.num_rows])
                yield MemoryTask(batch, origin, batch.num_rows, first)
                first += batch.num_rows
            if request.limit is not None and first >= request.limit:
                return

    def _pieces(self, part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self._files:
            return split_batch(part)
        return (part.slice(start, FILES_PER_TASK) for start in range(0, part.num_rows, FILES_PER_TASK))

    def row_inputs(self) -> Sequence[object]:
        return self._files or [UNNAMED_INPUT]

    def _with_numbers(self, first_input: int | None) -> Iterable[pa.RecordBatch]:
        if first_input is None:
            return self._parts
        add = numbered_inputs if self._files else numbered  # an error about a file names it
        return add(self._parts, first_input)


def _normalized(part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch unchanged if its types are normal; otherwise convert it in slices, because the offsets of a
    large_string may not fit.
    """
    if normalize_batch(part.slice(0, 0)).schema.equals(part.schema, check_metadata=True):
        yield part
    else:
        yield from map(normalize_batch, split_batch(part))


def content_version(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Return the number of rows in memory and a digest of them as they are cut into batches."""
    hashed = ContentHash()
    hashed.add_all([arrow_array(schema.names, pa.string())])
    num_rows = 0
    for batch in batches:
        num_rows += batch.num_rows
        hashed.add_all(batch.columns)
    return f"{num_rows} rows, digest {hashed.digest().hex()[:32]}"


class RangeTask:
    """A part of a range of integers."""

    def __init__(
        self, numbers: range, columns: tuple[str, ...], first_row: int = 0, input_number: int | None = None
    ) -> None:
        self.numbers = numbers
        self.columns = columns
        self.first_row = first_row
        self.input_number = input_number
        self.num_rows: int | None = len(numbers)
        self.nbytes: int | None = 8 * len(numbers)

    @property
    def origin(self) -> tuple[str, str]:
        return "range", repr(self.numbers)

    @property
    def first_place(self) -> RowPlace:
        return RowPlace(UNNAMED_INPUT, self.first_row)

    def read(self) -> Iterator[pa.RecordBatch]:
        if self.input_number is None:
            return self._batches()
        return numbered(self._batches(), self.input_number, [RowRange(self.first_row, None)])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for offset in range(0, len(self.numbers), BATCH_ROWS):
            part = self.numbers[offset : offset + BATCH_ROWS]
            array = arrow_numbers(np.arange(part.start, part.stop, part.step, dtype=np.int64))
            yield pa.record_batch([array], [ID]).select(list(self.columns))


class RangeSource:
    """A ``Source`` of the numbers of a Python ``range``, in the column ``id``."""

    can_filter = False

    def __init__(self, numbers: range) -> None:
        if numbers and not (min(numbers[0], numbers[-1]) >= -(2**63) and max(numbers[0], numbers[-1]) < 2**63):
            raise InvalidArgumentError(f"{numbers} does not fit 64-bit integers.")
        self.name = str(numbers)
        self._numbers = numbers

    def schema(self) -> Schema:
        return Schema([Field(ID, DataType.int64())])

    def versions(self) -> Mapping[str, str]:
        return {"range": self.name}

    def read_tasks(self, request: ReadRequest) -> Iterator[RangeTask]:
        numbers = self._numbers if request.limit is None else self._numbers[: request.limit]
        columns = (ID,) if request.columns is None else request.columns
        for offset in range(0, len(numbers), TASK_ROWS):
            yield RangeTask(numbers[offset : offset + TASK_ROWS], columns, offset, request.first_input)

    def row_inputs(self) -> Sequence[str]:
        return [UNNAMED_INPUT]

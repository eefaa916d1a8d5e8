"""``Datasource`` and ``Datasink``: sources and sinks written for Ray Data, adapted to ``ps.Source`` and ``ps.Sink``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.protocols import ReadRequest
from penstock.types import Schema, to_batch

NUM_TASKS = 16  # the parallelism that a Datasource is asked for


class Datasource(ABC):
    """A source of rows; subclasses return their tasks."""

    def get_name(self) -> str:
        return type(self).__name__.removesuffix("Datasource")

    @abstractmethod
    def get_read_tasks(self, parallelism: int) -> Sequence[BlockReadTask]: ...


@dataclass
class BlockMetadata:
    """Facts of a block; the last two change nothing here."""

    num_rows: int | None = None
    size_bytes: int | None = None
    input_files: Any = None
    exec_stats: Any = None


@dataclass
class BlockReadTask:
    """Ray Data's ``ReadTask``: a function that returns the blocks of a part, tables of Arrow or pandas."""

    read_fn: Callable[[], Iterable[Any]]
    metadata: Any = None
    schema: Any = None
    per_task_row_limit: int | None = None

    def __post_init__(self) -> None:
        self.num_rows: int | None = getattr(self.metadata, "num_rows", None)
        self.nbytes: int | None = getattr(self.metadata, "size_bytes", None)

    def read(self) -> Iterator[pa.RecordBatch]:
        for block in self.read_fn():
            yield to_batch(block, "Datasource")


@dataclass
class DatasourceAsSource:
    """A Datasource as a ``ps.Source``; its first block determines the schema."""

    datasource: Datasource
    can_filter = False

    def __post_init__(self) -> None:
        self.name = self.datasource.get_name()

    def schema(self) -> Schema:
        for task in self.datasource.get_read_tasks(NUM_TASKS):
            for batch in task.read():
                return Schema.from_arrow(batch.schema)
        raise InvalidArgumentError(f"{self.name} has no blocks, so its columns are not known")

    def read_tasks(self, request: ReadRequest) -> Iterator[BlockReadTask]:
        yield from self.datasource.get_read_tasks(NUM_TASKS)


class Datasink(ABC):
    """A destination of rows; subclasses write blocks."""

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        return

    @abstractmethod
    def write(self, blocks: Iterable[pa.Table], ctx: Any) -> Any: ...

    def on_write_complete(self, write_result: WriteResult) -> None:
        return

    def on_write_failed(self, error: Exception) -> None:
        return


@dataclass
class WriteResult:
    """The argument of ``on_write_complete``: totals, and the results of all calls of ``write``."""

    num_rows: int
    size_bytes: int
    write_returns: list[Any]


@dataclass
class DatasinkAsSink:
    """A Datasink as a ``ps.Sink``: ``write`` is called with each batch."""

    datasink: Datasink
    num_calls: int = 0
    needs_one_writer = True  # sinks name files after the number of the call

    def start(self) -> None:
        self.datasink.on_write_start()

    def open(self) -> DatasinkAsSink:
        return self

    def write(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        self.num_calls += 1
        table = pa.Table.from_batches([batch])
        returned = self.datasink.write([table], SimpleNamespace(task_idx=self.num_calls - 1, kwargs={}))
        return [{"num_rows": batch.num_rows, "nbytes": batch.nbytes, "returned": returned}]

    def finish(self) -> None: ...

    def close(self) -> None: ...

    def commit(self, records: Sequence[dict[str, Any]]) -> None:
        num_rows, nbytes = (sum(record[name] for record in records) for name in ("num_rows", "nbytes"))
        self.datasink.on_write_complete(WriteResult(num_rows, nbytes, [record["returned"] for record in records]))

    def abort(self) -> None:
        self.datasink.on_write_failed(RuntimeError("The query failed; see its error"))

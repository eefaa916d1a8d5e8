"""Rows and columns that a scan selects: cast to the promised types, filtered, projected and cut to the limit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ReadError
from penstock.io.batch_sizes import split_batch
from penstock.io.match_schema import ColumnMismatchError, conform_batch
from penstock.protocols import Condition, ReadRequest, ReadTask
from penstock.types import DataType, Schema, normalize_batch
from penstock.types.plain import arrow_array, arrow_scalar

Task = TypeVar("Task", bound=ReadTask)
Scanned = TypeVar("Scanned")


@dataclass(frozen=True)
class Selection:
    """The rows and columns that a task returns.

    ``schema`` has the columns to read, including the predicate's. ``constants`` are columns that have one value for the
    whole task.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    predicate: pc.Expression | None = None
    limit: int | None = None
    conditions: tuple[Condition, ...] = ()  # the same as the predicate
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @classmethod
    def of(cls, request: ReadRequest, schema: Schema) -> Selection:
        full = schema.to_arrow()
        columns = tuple(full.names) if request.columns is None else request.columns
        needed = columns_needed(columns, request)
        read = pa.schema([column for column in full if column.name in needed])
        return cls(read, columns, request.predicate, request.limit, request.conditions)

    def apply(self, batches: Iterable[pa.RecordBatch], source: str) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows of ``batches`` in batches of moderate size; ``source`` names them in errors."""
        rows_left = self.limit
        for raw in batches:
            selected = self._selected(raw, source)
            for batch in split_batch(selected if rows_left is None else selected.slice(0, rows_left)):
                if batch.num_rows:
                    yield batch
                if rows_left is not None:
                    rows_left -= batch.num_rows
            if rows_left == 0:
                return

    def _selected(self, batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
        batch = batch.replace_schema_metadata()
        try:
            if not batch.schema.equals(self.schema, check_metadata=True):  # else it is normalized
                batch = conform_batch(normalize_batch(batch), self.schema)
        except ColumnMismatchError as exc:
            found, wanted = DataType(exc.found), DataType(exc.wanted)
            raise ReadError(
                f"Cannot read {source}: column {exc.column!r} is {found} there and does not become {wanted}, its type "
                f"in this scan; give schema={{{exc.column!r}: ...}} to choose another. {exc.__cause__}"
            ) from exc
        for name, value in self.constants.items():
            batch = batch.append_column(pa.field(name, value.type), pa.repeat(value, batch.num_rows))
        if self.conditions:
            batch = batch.filter(fulfilled(batch, self.conditions))  # Arrow's own filter would import pandas
        columns = list(self.columns)
        return batch if batch.schema.names == columns else batch.select(columns)


_KERNELS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def fulfilled(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.Array:
    """Return for each row of a batch whether all of one or more conditions are true; null is not true."""
    return functools.reduce(pc.and_kleene, (_fulfilled(batch.column(each.column), each) for each in conditions))


def _fulfilled(column: pa.Array, condition: Condition) -> pa.Array:
    match condition:
        case Condition(operator="is null"):
            return pc.is_null(column)
        case Condition(operator="is not null"):
            return pc.is_valid(column)
        case Condition(_, "in", options):
            return pc.is_in(column, value_set=arrow_array(options, column.type))
        case Condition(_, operator, value):
            return _KERNELS[operator](column, arrow_scalar(value, column.type))


def until_limit(
    read_tasks: Callable[[Scanned, ReadRequest], Iterable[Task]],
) -> Callable[[Scanned, ReadRequest], Iterator[Task]]:
    """Decorate ``Source.read_tasks`` to stop once its tasks have enough rows for the limit, if there is no filter."""

    @functools.wraps(read_tasks)
    def limited(source: Scanned, request: ReadRequest) -> Iterator[Task]:
        found = 0
        for task in read_tasks(source, request):
            yield task
            found += task.num_rows or 0
            if request.limit is not None and request.predicate is None and found >= request.limit:
                return

    return limited


def columns_needed(columns: Sequence[str], request: ReadRequest) -> set[str]:
    """Return ``columns`` and the columns that the conditions need."""
    return {*columns, *(each.column for each in request.conditions)}

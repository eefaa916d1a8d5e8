"""Iceberg: PyIceberg plans which data files a scan needs; each of them is a task, with the deletes that apply to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError, ReadError
from penstock.io.extras import load_extra
from penstock.io.tables.stores import Wanted
from penstock.protocols import Condition, ReadRequest
from penstock.types import Schema


@dataclass(eq=False)
class IcebergTask:
    """One data file. The file system's properties may hold credentials and are not shown."""

    table: str
    file: Any
    metadata: Any = field(repr=False)
    io: Any = field(repr=False)
    projection: Any
    row_filter: Any
    wanted: Wanted
    num_rows: int | None
    nbytes: int | None

    @property
    def origin(self) -> tuple[str, str]:
        deletes = sorted(str(each.file_path) for each in self.file.delete_files)
        return self.table, " without ".join([str(self.file.file.file_path), *deletes])

    def read(self) -> Iterator[pa.RecordBatch]:
        with _errors(self.table):
            yield from self.wanted.finished(self._batches(), f"read_iceberg({self.table})")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        from pyiceberg.io import pyarrow as files

        scan = files.ArrowScan(self.metadata, self.io, self.projection, self.row_filter)
        stream = getattr(scan, "_record_batches_from_scan_tasks_and_deletes", None)
        read_deletes = getattr(files, "_read_all_delete_files", None)
        if stream is None or read_deletes is None:
            return iter(scan.to_record_batches([self.file]))
        # The public method does the same, but holds all rows of a file in memory before it gives the first.
        return iter(stream([self.file], read_deletes(self.io, [self.file])))


class IcebergSource:
    """A ``Source`` over one snapshot of a table. Files that cannot hold a row of the filter are not opened."""

    can_filter = True

    def __init__(self, table: Any, snapshot_id: int | None) -> None:
        files = load_extra("pyiceberg.io.pyarrow", "iceberg", "read_iceberg")
        self._table = table
        self._snapshot_id = snapshot_id
        self._label = ".".join(table.name()) or str(table.metadata_location)
        with _errors(self._label):
            projection = table.scan(snapshot_id=snapshot_id).projection()
            self._schema = Schema.from_arrow(files.schema_to_pyarrow(projection, include_field_ids=False))
        self.name = f"read_iceberg({self._label})"

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        now = self._table.current_snapshot()
        number = self._snapshot_id if self._snapshot_id is not None or now is None else now.snapshot_id
        return {self._label: f"snapshot {number}"}

    def options(self) -> Mapping[str, Any]:
        return {}

    def read_tasks(self, request: ReadRequest) -> Iterator[IcebergTask]:
        wanted = Wanted.of(request, self._schema)
        names = tuple(wanted.schema.names) or (self._schema.names[0],)
        row_filter = _row_filter(request.conditions)
        found = 0
        with _errors(self._label):
            scan = self._table.scan(row_filter=row_filter, selected_fields=names, snapshot_id=self._snapshot_id)
            for task in scan.plan_files():
                is_exact = not task.delete_files
                num_rows = task.file.record_count if is_exact else None
                yield IcebergTask(
                    self._label, task, self._table.metadata, self._table.io, scan.projection(), row_filter, wanted,
                    num_rows, task.file.file_size_in_bytes,
                )  # fmt: skip
                found += num_rows or 0
                if request.limit is not None and request.predicate is None and found >= request.limit:
                    return


def iceberg_source(
    table: Any,
    *,
    snapshot_id: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> IcebergSource:
    """Return the source for a PyIceberg table, or for the path of a table's metadata file."""
    pyiceberg = load_extra("pyiceberg.table", "iceberg", "read_iceberg")
    if sum(given is not None for given in (snapshot_id, branch, tag)) > 1:
        raise InvalidArgumentError("read_iceberg takes one of snapshot_id, branch and tag.")
    if isinstance(table, str | os.PathLike):
        path = os.fspath(table)
        with _errors(path):
            table = pyiceberg.StaticTable.from_metadata(path, dict(storage_options or {}))
    if (ref := branch or tag) is not None:
        found = table.snapshot_by_name(ref)
        if found is None:
            known = ", ".join(sorted(table.refs()))
            raise InvalidArgumentError(f"The table has no branch or tag {ref!r}; known: {known}.")
        snapshot_id = found.snapshot_id
    return IcebergSource(table, snapshot_id)


def _row_filter(conditions: tuple[Condition, ...]) -> Any:
    """Return what is known of the rows as PyIceberg writes it; all that it leaves open is filtered again."""
    from pyiceberg import expressions as e

    operators: dict[str, Callable[..., Any]] = {
        "=": e.EqualTo,
        "<": e.LessThan,
        "<=": e.LessThanOrEqual,
        ">": e.GreaterThan,
        ">=": e.GreaterThanOrEqual,
        "in": e.In,
    }
    row_filter: Any = e.AlwaysTrue()
    for condition in conditions:
        if condition.operator == "is null":
            row_filter = e.And(row_filter, e.IsNull(condition.column))
        elif condition.operator == "is not null":
            row_filter = e.And(row_filter, e.NotNull(condition.column))
        elif condition.operator in operators and _has_literal(condition.value):
            row_filter = e.And(row_filter, operators[condition.operator](condition.column, condition.value))
    return row_filter


def _has_literal(value: Any) -> bool:
    """Return whether PyIceberg takes a constant for what it is."""
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(each, bool | int | float | str) for each in values)


@contextmanager
def _errors(label: str) -> Iterator[None]:
    """Translate what PyIceberg and Arrow raise."""
    try:
        yield
    except PenstockError:
        raise
    except FileNotFoundError as exc:
        raise PathNotFoundError(f"There is no Iceberg table at {label!r}: {exc}") from exc
    except (OSError, ValueError, pa.ArrowException) as exc:
        raise ReadError(f"Cannot read the Iceberg table {label!r}: {exc}") from exc

"""Iceberg: a task for each data file that PyIceberg plans, with the deletes that apply to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, OutputExistsError, WriteError, load_extra
from penstock.io.selection import Selection, until_limit
from penstock.io.tables.libraries import TableTask, store_errors
from penstock.protocols import Condition, ReadRequest
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import short_path
from penstock.types import Schema


@dataclass(frozen=True)
class FileAccess:
    """PyIceberg's reader of a table's files, without secrets in its pickle."""

    kind: type
    properties: StorageOptions

    def open(self) -> Any:
        return self.kind(dict(self.properties))


class IcebergSource:
    """A ``Source`` over one snapshot of a table. Skips files whose statistics rule out the filter."""

    can_filter = True

    def __init__(self, table: Any, snapshot_id: int | None) -> None:
        files = load_extra("pyiceberg.io.pyarrow", "iceberg", "read_iceberg")
        self._table = table
        self._snapshot_id = snapshot_id
        self._label = ".".join(table.name()) or str(table.metadata_location)
        with store_errors(f"Iceberg table {self._label!r}"):
            projection = table.scan(snapshot_id=snapshot_id).projection()
            self._schema = Schema.from_arrow(files.schema_to_pyarrow(projection, include_field_ids=False))
        self.name = f"read_iceberg({self._label})"
        self.short_name = short_path(self._label)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        now = self._table.current_snapshot()
        number = self._snapshot_id if self._snapshot_id is not None or now is None else now.snapshot_id
        return {self._label: f"snapshot {number}"}

    @until_limit
    def read_tasks(self, request: ReadRequest) -> Iterator[TableTask]:
        selection = Selection.of(request, self._schema)
        names = tuple(selection.schema.names) or (self._schema.names[0],)
        row_filter = _row_filter(request.conditions)
        io = FileAccess(type(self._table.io), StorageOptions.of(self._table.io.properties))
        with store_errors(f"Iceberg table {self._label!r}"):
            scan = self._table.scan(row_filter=row_filter, selected_fields=names, snapshot_id=self._snapshot_id)
            for task in scan.plan_files():
                deletes = sorted(str(each.file_path) for each in task.delete_files)
                yield TableTask(
                    (self._label, " without ".join([str(task.file.file_path), *deletes])),
                    f"read_iceberg({self._label})",
                    partial(_batches, self._label, task, self._table.metadata, io, scan.projection(), row_filter),
                    selection,
                    num_rows=None if task.delete_files else task.file.record_count,
                    nbytes=task.file.file_size_in_bytes,
                )


def _batches(
    label: str, task: Any, metadata: Any, access: FileAccess, projection: Any, row_filter: Any
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file without the deleted ones."""
    from pyiceberg.io import pyarrow as files

    with store_errors(f"Iceberg table {label!r}"):
        io = access.open()
        scan = files.ArrowScan(metadata, io, projection, row_filter)
        stream = getattr(scan, "_record_batches_from_scan_tasks_and_deletes", None)
        read_deletes = getattr(files, "_read_all_delete_files", None)
        if stream is None or read_deletes is None:
            yield from scan.to_record_batches([task])
        else:  # the public method does the same, but reads all rows of a file before it returns the first
            yield from stream([task], read_deletes(io, [task]))


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
        with store_errors(f"Iceberg table {path!r}"):
            table = pyiceberg.StaticTable.from_metadata(path, dict(storage_options or {}))
    if (ref := branch or tag) is not None:
        found = table.snapshot_by_name(ref)
        if found is None:
            known = ", ".join(sorted(table.refs()))
            raise InvalidArgumentError(f"The table has no branch or tag {ref!r}; known: {known}.")
        snapshot_id = found.snapshot_id
    return IcebergSource(table, snapshot_id)


def write_iceberg_table(table: Any, rows: pa.Table, mode: str) -> list[str]:
    """Write rows into a table of PyIceberg, in one commit, and return its new files."""

    def files() -> list[str]:
        return [str(path) for path in table.inspect.files().column("file_path").to_pylist()]

    label = ".".join(table.name())
    with store_errors(f"Iceberg table {label!r}", WriteError):
        before = set(files())
        if mode == "create" and before:
            raise OutputExistsError(f"The Iceberg table {label!r} has rows; use mode='append' or mode='overwrite'.")
        (table.overwrite if mode == "overwrite" else table.append)(rows)
        return [file for file in files() if file not in before]


def _row_filter(conditions: tuple[Condition, ...]) -> Any:
    """Return the conditions that PyIceberg can express; the selection filters the rows again."""
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
    """Return whether PyIceberg has a literal for a constant."""
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(each, bool | int | float | str) for each in values)

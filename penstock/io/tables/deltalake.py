"""Delta Lake: a task for each Parquet file that the log of the table names."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.errors import ReadError, WriteError, load_extra
from penstock.io.batch_sizes import rows_per_batch
from penstock.io.selection import Selection, columns_needed, until_limit
from penstock.io.tables.libraries import TableTask, store_errors
from penstock.protocols import ReadRequest
from penstock.storage.storage_options import StorageOptions, library_options, secrets_of
from penstock.storage.urls import short_path
from penstock.types import Schema

UNPACKED = 4  # a row in memory is about this much larger than in a Parquet file


class DeltaSource:
    """A ``Source`` over one version of a table. Skips files whose statistics rule out the filter."""

    can_filter = True

    def __init__(self, table: Any, uri: str, filesystem: Any = None) -> None:
        self._uri = uri
        with delta_errors(uri):
            self._dataset = table.to_pyarrow_dataset(filesystem=filesystem)
            files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self._sizes = {file["path"]: (file["num_records"], file["size_bytes"] * UNPACKED) for file in files}
        self._schema = Schema.from_arrow(self._dataset.schema)
        self._version = f"version {table.version()}"
        self.name = f"read_deltalake({uri}, {self._version})"
        self.short_name = short_path(uri, is_folder=True)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self._uri: self._version}

    @until_limit
    def read_tasks(self, request: ReadRequest) -> Iterator[TableTask]:
        selection = Selection.of(request, self._schema)
        columns = columns_needed((), request)
        with delta_errors(self._uri):
            matching = {fragment.path for fragment in self._dataset.get_fragments(filter=request.predicate)}
            for fragment in self._dataset.get_fragments():
                has_bounds = _has_bounds(fragment, columns)
                if fragment.path in matching or not has_bounds:
                    num_rows, nbytes = self._sizes.get(fragment.path, (None, None))
                    batch_rows = rows_per_batch(max(num_rows or 0, 1), nbytes or 0)
                    batches = partial(_batches, self._uri, fragment, selection, batch_rows, has_bounds)
                    origin, source = (self._uri, str(fragment.path)), f"read_deltalake({self._uri})"
                    yield TableTask(origin, source, batches, selection, num_rows, nbytes)


def _batches(
    uri: str, fragment: Any, selection: Selection, batch_rows: int, has_bounds: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file; Arrow's fragment has its partition values, statistics and columns."""
    with delta_errors(uri):
        scanner = fragment.scanner(
            schema=selection.schema, filter=selection.predicate if has_bounds else None,
            batch_size=batch_rows, batch_readahead=2,
        )  # fmt: skip
        yield from scanner.to_batches()


def _has_bounds(fragment: Any, columns: Iterable[str]) -> bool:
    """Return whether Arrow can trust the bounds of these columns.

    For a file without statistics of a column, such as one from before the column was added, deltalake states null as
    its least and greatest value, and no row would match.
    """
    bounds = str(fragment.partition_expression)
    return not any(f"({name} {sign} null[" in bounds for name in columns for sign in (">=", "<="))


def delta_source(
    table: Any,
    *,
    version: int | str | datetime.datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DeltaSource:
    """Return the source for a path or a ``deltalake.DeltaTable``."""
    deltalake = load_extra("deltalake", "deltalake", "read_deltalake")
    if isinstance(table, deltalake.DeltaTable):
        return DeltaSource(table, str(table.table_uri))
    uri = os.fspath(table)
    given = StorageOptions.of(storage_options)
    with delta_errors(uri, secrets_of(given)):
        opened = deltalake.DeltaTable(
            uri, version=version if isinstance(version, int) else None, storage_options=library_options(uri, given)
        )
        if version is not None and not isinstance(version, int):
            opened.load_as_version(version)
        sizes = opened._table.get_add_file_sizes() if given else None
    return DeltaSource(opened, uri, None if sizes is None else _filesystem(uri, given, sizes))


def _filesystem(uri: str, options: StorageOptions, sizes: Mapping[str, int]) -> Any:
    """Return the library's file system of a table, with the sizes of its files. A pickle of ours has no secrets."""
    import pyarrow.fs
    from deltalake.fs import DeltaStorageHandler

    class SealedHandler(DeltaStorageHandler):  # type: ignore[misc]
        def __reduce__(self) -> tuple[Any, ...]:
            return _handler, (uri, options, sizes)

    return pyarrow.fs.PyFileSystem(SealedHandler(uri, library_options(uri, options), dict(sizes)))


def _handler(uri: str, options: StorageOptions, sizes: Mapping[str, int]) -> Any:
    return _filesystem(uri, options, sizes).handler


def delta_errors(
    uri: str, secrets: tuple[str, ...] = (), kind: type[ReadError] | type[WriteError] = ReadError
) -> AbstractContextManager[None]:
    """Translate the errors of the library."""
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    also = (DeltaError, DeltaProtocolError)
    return store_errors(f"Delta table {uri!r}", kind, missing=TableNotFoundError, also=also, secrets=secrets)


def write_delta(
    table: Any,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    *,
    mode: str,
    partition_cols: Sequence[str] | None = None,
    schema_mode: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Stream rows into a table, which commits them at once, and return its new files.

    ``mode`` is one of the library's: ``error``, ``append``, ``overwrite`` or ``ignore``.
    """
    library = load_extra("deltalake", "deltalake", "write_deltalake")
    options = StorageOptions.of(storage_options)
    name = str(getattr(table, "table_uri", table))
    access, failed = library_options(name, options), list[Exception]()
    target = table if isinstance(table, library.DeltaTable) else name

    def files() -> list[str]:
        exists = isinstance(target, library.DeltaTable) or library.DeltaTable.is_deltatable(target, access)
        return library.DeltaTable(name, storage_options=access).file_uris() if exists else []

    def recorded() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as exc:
            failed.append(exc)
            raise

    with delta_errors(name, secrets_of(options), WriteError):
        try:
            before = set(files())
            library.write_deltalake(
                target, pa.RecordBatchReader.from_batches(schema, recorded()), mode=mode,
                partition_by=partition_cols, schema_mode=schema_mode, storage_options=access,
            )  # fmt: skip
            return [file for file in files() if file not in before]
        except Exception as exc:
            raise (failed or [exc])[0] from None  # the error of the query itself, not the library's text of it

"""Delta Lake: the log says which Parquet files are the table; each of them is a task."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import PathNotFoundError, PenstockError, ReadError
from penstock.io.batches import rows_per_batch
from penstock.io.extras import load_extra
from penstock.io.tables.stores import Wanted
from penstock.protocols import ReadRequest
from penstock.storage.options import library_options, scrubbed, secrets_of
from penstock.types import Schema

UNPACKED = 4  # how much larger rows are in memory than in a Parquet file, about


@dataclass(eq=False)
class DeltaTask:
    """One data file; Arrow's fragment knows its partition values and statistics, and where its columns are."""

    table: str
    fragment: Any
    wanted: Wanted
    num_rows: int | None
    nbytes: int | None

    @property
    def origin(self) -> tuple[str, str]:
        return self.table, str(self.fragment.path)

    def read(self) -> Iterator[pa.RecordBatch]:
        with _errors(self.table):
            is_misjudged = _is_misjudged(self.fragment, self.wanted.predicate_columns)
            scanner = self.fragment.scanner(
                schema=self.wanted.schema, filter=None if is_misjudged else self.wanted.predicate,
                batch_size=rows_per_batch(max(self.num_rows or 0, 1), self.nbytes or 0), batch_readahead=2,
            )  # fmt: skip
            yield from self.wanted.finished(scanner.to_batches(), f"read_deltalake({self.table})")


class DeltaSource:
    """A ``Source`` over one version of a table. Files that cannot hold a row of the filter are not opened."""

    can_filter = True

    def __init__(self, table: Any, name: str) -> None:
        self._uri = name
        with _errors(name):
            self._dataset = table.to_pyarrow_dataset()
            files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self._sizes = {file["path"]: (file["num_records"], file["size_bytes"] * UNPACKED) for file in files}
        self._schema = Schema.from_arrow(self._dataset.schema)
        self._version = f"version {table.version()}"
        self.name = f"read_deltalake({name}, {self._version})"

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self._uri: self._version}

    def options(self) -> Mapping[str, Any]:
        return {}

    def read_tasks(self, request: ReadRequest) -> Iterator[DeltaTask]:
        wanted = Wanted.of(request, self._schema)
        columns = wanted.predicate_columns
        found = 0
        with _errors(self._uri):
            kept = {fragment.path for fragment in self._dataset.get_fragments(filter=request.predicate)}
            for fragment in self._dataset.get_fragments():
                if fragment.path not in kept and not _is_misjudged(fragment, columns):
                    continue
                num_rows, nbytes = self._sizes.get(fragment.path, (None, None))
                yield DeltaTask(self._uri, fragment, wanted, num_rows, nbytes)
                found += num_rows or 0
                if request.limit is not None and request.predicate is None and found >= request.limit:
                    return


def _is_misjudged(fragment: Any, columns: Iterable[str]) -> bool:
    """Return whether Arrow was told of a column that it is at least, or at most, null; which no row is.

    deltalake says so of a file that has no statistics of a column, such as one from before the column was added.
    """
    told = str(fragment.partition_expression)
    return any(f"({name} {sign} null[" in told for name in columns for sign in (">=", "<="))


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
    options = library_options(uri, storage_options)
    with _errors(uri, secrets_of(storage_options)):
        opened = deltalake.DeltaTable(
            uri, version=version if isinstance(version, int) else None, storage_options=options
        )
        if version is not None and not isinstance(version, int):
            opened.load_as_version(version)
    return DeltaSource(opened, uri)


@contextmanager
def _errors(uri: str, secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Translate what deltalake and Arrow raise."""
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    try:
        yield
    except PenstockError:
        raise
    except TableNotFoundError as exc:
        raise PathNotFoundError(f"There is no Delta table at {uri!r}.") from exc
    except (DeltaError, DeltaProtocolError, OSError, pa.ArrowException) as exc:
        raise ReadError(f"Cannot read the Delta table {uri!r}: {scrubbed(str(exc), secrets)}") from exc

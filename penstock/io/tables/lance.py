"""Lance: tasks read fragments, and many workers write fragments into one commit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import (
    InvalidArgumentError,
    OutputExistsError,
    PathNotFoundError,
    ReadError,
    WriteError,
    check_choice,
    load_extra,
)
from penstock.io.batch_sizes import BATCH_NBYTES, BATCH_ROWS
from penstock.io.commit.output import WRITE_MODES, new_run_id
from penstock.io.match_schema import conform_rows
from penstock.io.selection import Selection, until_limit
from penstock.io.tables.libraries import TableTask, store_errors
from penstock.protocols import ReadRequest
from penstock.storage.storage_options import StorageOptions, library_options, secrets_of
from penstock.storage.urls import short_path
from penstock.types import Schema

NUM_VERSIONS_SEARCHED = 100  # versions to search for the commit of a killed run
FRAGMENT_NBYTES = 64 * 2**20  # of rows that a writer collects before it writes a fragment


def _lance(feature: str) -> Any:
    os.environ.setdefault("LANCE_LOG", "error")  # it would print a warning for each new dataset
    return load_extra("lance", "lance", feature)


@dataclass(frozen=True)
class LanceTable:
    """One version of a dataset, as a spec. Its repr hides the options, which may hold credentials."""

    uri: str
    version: int | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    given: StorageOptions = field(default_factory=StorageOptions)  # the ``storage_options`` of the user

    def open(self) -> Any:
        lance = _lance("read_lance")
        with self.errors(ReadError):
            try:
                options = {**self.options, "storage_options": self.storage_options}
                return lance.dataset(self.uri, version=self.version, **options)
            except (ValueError, OSError) as exc:
                if not isinstance(exc, FileNotFoundError) and "not found" not in str(exc).lower():
                    raise
                if self.version is not None:
                    newest = replace(self, version=None).open().version  # raises if the dataset itself is missing
                    raise ReadError(
                        f"The Lance dataset {self.uri!r} has no version {self.version!r}; its newest is {newest}."
                    ) from exc
                raise PathNotFoundError(f"There is no Lance dataset at {self.uri!r}.") from exc

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        return library_options(self.uri, self.given)

    def errors(self, kind: type[ReadError] | type[WriteError]) -> AbstractContextManager[None]:
        secrets = secrets_of(self.storage_options)
        return store_errors(f"Lance dataset {self.uri!r}", kind, secrets=secrets)


@dataclass(eq=False)
class LanceSource:
    """A ``Source`` over a dataset, in the version that is current when the source is made."""

    table: LanceTable
    can_filter: bool = True

    def __post_init__(self) -> None:
        dataset = self.table.open()
        self.table = replace(self.table, version=dataset.version)  # later commits do not change the rows
        self._schema = Schema.from_arrow(dataset.schema)
        self._fragments = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
        self.name = f"read_lance({self.table.uri}, version {dataset.version})"
        self.short_name = short_path(self.table.uri, is_folder=True)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self.table.uri: f"version {self.table.version}"}

    @until_limit
    def read_tasks(self, request: ReadRequest) -> Iterator[TableTask]:
        selection = Selection.of(request, self._schema)
        for number, num_rows in self._fragments.items():
            origin, source = (self.table.uri, f"fragments {number}"), f"read_lance({self.table.uri})"
            batches = partial(_batches, self.table, number, selection)
            yield TableTask(origin, source, batches, selection, num_rows)


def _batches(table: LanceTable, fragment: int, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fragment."""
    with table.errors(ReadError):
        dataset, columns, predicate = table.open(), selection.schema.names, selection.predicate
        # Without any column, row ids count the rows.
        options: dict[str, Any] = {"fragments": [dataset.get_fragment(fragment)], "with_row_id": not columns}
        options |= {"batch_size": BATCH_ROWS, "batch_size_bytes": piece_nbytes(BATCH_NBYTES)}
        if predicate is None:
            options["limit"] = selection.limit
        try:
            scanner = dataset.scanner(columns=columns, filter=predicate, **options)
        except (pa.ArrowException, ValueError, NotImplementedError):  # Lance cannot express the predicate
            scanner = dataset.scanner(columns=columns, **options)
        yield from scanner.to_batches()


def lance_source(
    uri: str | os.PathLike[str],
    *,
    version: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> LanceSource:
    """Return the source for the user's arguments; ``options`` go to ``lance.dataset``."""
    if version is not None:
        options.pop("asof", None)
    known = {name: value for name, value in options.items() if value is not None}
    table = LanceTable(os.fspath(uri), version, known, StorageOptions.of(storage_options))
    return LanceSource(table)


@dataclass(frozen=True)
class LanceSink:
    """A ``Sink`` into a dataset: workers write fragments, which one commit adds to it.

    No version contains the files of uncommitted fragments; Lance's ``cleanup_old_versions`` removes them.
    """

    table: LanceTable
    mode: str
    schema: Schema
    options: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = field(default_factory=new_run_id)

    @property
    def name(self) -> str:
        return f"lance to {self.table.uri}"

    @property
    def short_name(self) -> str:
        return short_path(self.table.uri, is_folder=True)

    def start(self) -> None:
        if self.mode == "append":
            columns = self.table.open().schema.names
            if sorted(columns) != sorted(self.schema.names):
                raise InvalidArgumentError(
                    f"The Lance dataset {self.table.uri!r} has the columns {', '.join(columns)}; "
                    f"the rows to append have {', '.join(self.schema.names)}."
                )
        elif self.mode == "create":
            self._check_absent()

    def open(self) -> LanceWriter:
        return LanceWriter(self)

    def open_part(self, first_row: int) -> LanceWriter:
        return LanceWriter(self, first_row)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        lance = _lance("write_lance")
        ordered = sorted(records, key=lambda record: int(record["first_row"]))
        fragments = [fragment for record in ordered for fragment in pickle.loads(record["fragments"])]
        with self.table.errors(WriteError):
            if self.mode == "append":
                operation, version = lance.LanceOperation.Append(fragments), self.table.open().version
            else:
                if self.mode == "create":  # another write may have created it meanwhile
                    self._check_absent()
                operation, version = lance.LanceOperation.Overwrite(self.schema.to_arrow(), fragments), None
            dataset = lance.LanceDataset.commit(
                self.table.uri,
                operation,
                read_version=version,
                storage_options=self.table.storage_options,
                commit_message=self._message,
            )
            stats = dataset.stats.dataset_stats()
        row = {name: [int(stats[name])] for name in ("num_fragments", "num_deleted_rows", "num_small_files")}
        return pa.table(row | {"version": [int(dataset.version)]})

    def discard(self, run_id: str) -> None:
        replace(self, run_id=run_id).abort()

    def abort(self) -> None:
        """Do nothing: no version refers to the fragments."""

    def marked(self, run_id: str) -> LanceSink:
        return replace(self, run_id=run_id)

    def has_committed(self, run_id: str) -> bool:
        try:
            latest = self.table.open().get_transactions(NUM_VERSIONS_SEARCHED)
        except PathNotFoundError:
            return False
        message = self.marked(run_id)._message
        return any(message in (each.transaction_properties or {}).values() for each in latest if each is not None)

    def forget(self, run_id: str) -> None:
        """Do nothing: the commit message of a version is permanent."""

    @property
    def _message(self) -> str:
        return f"penstock {self.run_id}"

    def _check_absent(self) -> None:
        try:
            self.table.open()
        except PathNotFoundError:
            return
        raise OutputExistsError(
            f"There is a Lance dataset at {self.table.uri!r} already; use mode='overwrite' to replace its rows or "
            "mode='append' to add to them."
        )


class LanceWriter:
    """Collects rows and writes a fragment whenever it has enough."""

    def __init__(self, sink: LanceSink, first_row: int = 0) -> None:
        self._sink = sink
        self._first_row = first_row
        self._batches: list[pa.RecordBatch] = []
        self._nbytes = 0
        self._schema: pa.Schema | None = None

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        if not batch.num_rows:
            return []
        if self._schema is None:  # an append takes the types of the dataset
            is_append = self._sink.mode == "append"
            self._schema = self._sink.table.open().schema if is_append else self._sink.schema.to_arrow()
        self._batches.append(conform_rows(batch, self._schema, self._sink.table.uri))
        self._nbytes += batch.nbytes
        return self._flush() if self._nbytes >= piece_nbytes(FRAGMENT_NBYTES) else []

    def finish(self) -> Iterable[dict[str, Any]]:
        return self._flush() if self._batches else []

    def close(self) -> None:
        self._batches.clear()

    def _flush(self) -> list[dict[str, Any]]:
        rows = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._nbytes = [], 0
        with self._sink.table.errors(WriteError):
            fragments = _lance("write_lance").fragment.write_fragments(
                rows, self._sink.table.uri, schema=self._schema, mode=self._sink.mode,
                storage_options=self._sink.table.storage_options, **self._sink.options,
            )  # fmt: skip
        return [{"fragments": pickle.dumps(fragments), "first_row": self._first_row}]


def lance_sink(
    uri: str | os.PathLike[str],
    *,
    mode: str,
    schema: Schema,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> LanceSink:
    """Return the sink for the user's arguments; ``options`` go to Lance's writer."""
    check_choice("mode", mode, WRITE_MODES)
    table = LanceTable(os.fspath(uri), given=StorageOptions.of(storage_options))
    return LanceSink(table, mode, schema, options)

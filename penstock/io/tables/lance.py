"""Lance: fragments are read one by one, and written by many workers into one commit."""

from __future__ import annotations

import datetime
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.errors import (
    InvalidArgumentError,
    OutputExistsError,
    PathNotFoundError,
    PenstockError,
    ReadError,
    WriteError,
    did_you_mean,
)
from penstock.io.batches import rows_per_batch
from penstock.io.commit.staging import new_run_id
from penstock.io.conform import ColumnMismatchError, conform_batch
from penstock.io.extras import load_extra
from penstock.io.tables.stores import Wanted, groups_of
from penstock.io.writer import MODES
from penstock.protocols import ReadRequest
from penstock.storage.options import library_options, scrubbed, secrets_of
from penstock.types import DataType, Schema

FRAGMENT_COLUMN = "fragment_id"
VERSIONS_LOOKED_AT = 100  # for one that a killed run may have made
HELD_NBYTES = 64 * 2**20  # what a writer gathers before it writes a fragment
_SAMPLE_ROWS = 100


def _lance(feature: str) -> Any:
    return load_extra("lance", "lance", feature)


@dataclass(frozen=True)
class LanceTable:
    """One version of a dataset, as data that travels. The options may hold credentials and are not shown."""

    uri: str
    version: int | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def open(self) -> Any:
        try:
            return _lance("read_lance").dataset(self.uri, version=self.version, **self.options)
        except (ValueError, OSError) as exc:
            if isinstance(exc, FileNotFoundError) or "not found" in str(exc).lower():
                if self.version is not None:
                    newest = replace(self, version=None).open().version  # raises if it is the dataset that is missing
                    raise ReadError(
                        f"The Lance dataset {self.uri!r} has no version {self.version!r}; its newest is {newest}."
                    ) from exc
                raise PathNotFoundError(f"There is no Lance dataset at {self.uri!r}.") from exc
            told = scrubbed(str(exc), self.secrets)
            raise ReadError(f"Cannot read the Lance dataset {self.uri!r}: {told}") from exc

    @property
    def secrets(self) -> tuple[str, ...]:
        return secrets_of(self.options.get("storage_options"))


@dataclass(eq=False)
class LanceTask:
    """Some fragments of one version."""

    table: LanceTable
    fragments: tuple[int, ...]
    wanted: Wanted
    batch_rows: int
    num_rows: int | None
    nbytes: int | None = None

    @property
    def origin(self) -> tuple[str, str]:
        return self.table.uri, f"fragments {', '.join(map(str, self.fragments))}"

    def read(self) -> Iterator[pa.RecordBatch]:
        where = f"read_lance({self.table.uri})"
        with _errors(ReadError, f"Cannot read the Lance dataset {self.table.uri!r}", self.table.secrets):
            dataset = self.table.open()
            for number in self.fragments:
                batches = self._batches(dataset, dataset.get_fragment(number))
                numbered = (_with_fragment(batch, number, self.wanted.schema) for batch in batches)
                yield from self.wanted.finished(numbered, where)

    def _batches(self, dataset: Any, fragment: Any) -> Iterator[pa.RecordBatch]:
        columns = [name for name in self.wanted.schema.names if name in dataset.schema.names]
        options = {"batch_size": self.batch_rows, "limit": self.wanted.limit, "fragments": [fragment]}
        if not columns:  # rows to count, or to number
            columns, options["with_row_id"] = [], True
        predicate = self.wanted.predicate if FRAGMENT_COLUMN not in self.wanted.schema.names else None
        try:
            scanner = dataset.scanner(columns=columns, filter=predicate, **options)
        except (pa.ArrowException, ValueError, NotImplementedError):
            # Lance has no word for some part of the predicate: it gives every row, and we filter.
            scanner = dataset.scanner(columns=columns, **options)
        return iter(scanner.to_batches())


@dataclass(eq=False)
class LanceSource:
    """A ``Source`` over a dataset, as of the version it has when the source is made."""

    table: LanceTable
    fragment_group_size: int | None = None
    include_fragment_id: bool = False
    can_filter: bool = True

    def __post_init__(self) -> None:
        dataset = self.table.open()
        # Whatever is committed from now on, every task reads the same version.
        self.table = LanceTable(self.table.uri, dataset.version, self.table.options)
        fields = [pa.field(FRAGMENT_COLUMN, pa.int64())] if self.include_fragment_id else []
        self._schema = Schema.from_arrow(pa.schema([*dataset.schema, *fields]))
        self._fragments = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
        self.name = f"read_lance({self.table.uri}, version {dataset.version})"

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self.table.uri: f"version {self.table.version}"}

    def options(self) -> Mapping[str, Any]:
        return {"include_fragment_id": self.include_fragment_id}

    def read_tasks(self, request: ReadRequest) -> Iterator[LanceTask]:
        wanted = Wanted.of(request, self._schema)
        batch_rows = self._batch_rows(wanted)
        found = 0
        for group in groups_of(list(self._fragments), self.fragment_group_size or 1):
            num_rows = sum(self._fragments[number] for number in group)
            yield LanceTask(self.table, group, wanted, batch_rows, num_rows)
            found += num_rows
            if request.limit is not None and found >= request.limit:
                return

    def _batch_rows(self, wanted: Wanted) -> int:
        """Return how many rows to read at a time, by the size of the first ones."""
        dataset = self.table.open()
        names = [name for name in wanted.schema.names if name in dataset.schema.names]
        sample = dataset.scanner(columns=names, limit=_SAMPLE_ROWS).to_table() if names else None
        return rows_per_batch(max(sample.num_rows, 1), sample.nbytes) if sample is not None else rows_per_batch(1, 8)


def lance_source(
    uri: str | os.PathLike[str],
    *,
    version: int | str | None = None,
    asof: datetime.datetime | datetime.date | str | None = None,
    block_size: int | None = None,
    index_cache_size: int | None = None,
    metadata_cache_size_bytes: int | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    fragment_group_size: int | None = None,
    include_fragment_id: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> LanceSource:
    """Return the source for a dataset as the user names it."""
    if fragment_group_size is not None and fragment_group_size < 1:
        raise InvalidArgumentError(f"fragment_group_size={fragment_group_size!r} must be at least 1.")
    given = {
        "asof": asof if version is None else None,
        "block_size": block_size,
        "index_cache_size": index_cache_size,
        "metadata_cache_size_bytes": metadata_cache_size_bytes,
        "default_scan_options": None if default_scan_options is None else dict(default_scan_options),
        "storage_options": library_options(os.fspath(uri), storage_options),
    }
    options = {name: value for name, value in given.items() if value is not None}
    return LanceSource(LanceTable(os.fspath(uri), version, options), fragment_group_size, include_fragment_id)


@dataclass(frozen=True)
class LanceSink:
    """A ``Sink`` into a dataset: workers write fragments, which one commit makes part of it.

    Files of fragments that are never committed are not part of any version; ``cleanup_old_versions`` removes them.
    """

    uri: str
    mode: str
    schema: Schema
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = field(default_factory=new_run_id)

    @property
    def name(self) -> str:
        return f"lance to {self.uri}"

    def start(self) -> None:
        if self.mode == "append":
            self._check_columns(self._existing())
        elif self.mode == "create":
            self._check_absent()

    def open(self) -> LanceWriter:
        return LanceWriter(self)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        lance = _lance("write_lance")
        fragments = [fragment for record in records for fragment in pickle.loads(record["fragments"])]
        with _errors(WriteError, f"Cannot write the Lance dataset {self.uri!r}", secrets_of(self.storage_options)):
            if self.mode == "append":
                operation, version = lance.LanceOperation.Append(fragments), self._existing().version
            else:
                if self.mode == "create":  # a write that began later may have been quicker
                    self._check_absent()
                operation, version = lance.LanceOperation.Overwrite(self.schema.to_arrow(), fragments), None
            dataset = lance.LanceDataset.commit(
                self.uri,
                operation,
                read_version=version,
                storage_options=self._storage_options,
                commit_message=self._message,
            )
            stats = dataset.stats.dataset_stats()
        row = {name: [int(stats[name])] for name in ("num_fragments", "num_deleted_rows", "num_small_files")}
        return pa.table(row | {"version": [int(dataset.version)]})

    def marked(self, run_id: str) -> LanceSink:
        return replace(self, run_id=run_id)

    def has_committed(self, run_id: str) -> bool:
        """Say whether a late version of the dataset is that write's."""
        try:
            latest = self._existing().get_transactions(VERSIONS_LOOKED_AT)
        except PathNotFoundError:
            return False
        message = self.marked(run_id)._message
        return any(message in (each.transaction_properties or {}).values() for each in latest if each is not None)

    def forget(self, run_id: str) -> None:
        """Do nothing: a version says for good whose it is."""

    def abort(self) -> None:
        """Nothing refers to the files of fragments that were not committed."""

    @property
    def _message(self) -> str:
        return f"penstock {self.run_id}"

    @property
    def _storage_options(self) -> dict[str, str] | None:
        return library_options(self.uri, self.storage_options)

    def _existing(self) -> Any:
        options = self._storage_options
        return LanceTable(self.uri, None, {} if options is None else {"storage_options": options}).open()

    def _check_absent(self) -> None:
        try:
            self._existing()
        except PathNotFoundError:
            return
        raise OutputExistsError(
            f"There is a Lance dataset at {self.uri!r} already; use mode='overwrite' to replace its rows or "
            "mode='append' to add to them."
        )

    def _check_columns(self, dataset: Any) -> None:
        if sorted(dataset.schema.names) != sorted(self.schema.names):
            raise InvalidArgumentError(
                f"The Lance dataset {self.uri!r} has the columns {', '.join(dataset.schema.names)}; "
                f"the rows to append have {', '.join(self.schema.names)}."
            )


class LanceWriter:
    """Gathers rows and writes a fragment whenever it has enough."""

    def __init__(self, sink: LanceSink) -> None:
        self._sink = sink
        self._held: list[pa.RecordBatch] = []
        self._nbytes = 0
        self._schema: pa.Schema | None = None

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        if not batch.num_rows:
            return []
        self._held.append(self._conformed(batch))
        self._nbytes += batch.nbytes
        return self._flush() if self._nbytes >= HELD_NBYTES else []

    def finish(self) -> Iterable[dict[str, Any]]:
        return self._flush() if self._held else []

    def close(self) -> None:
        self._held.clear()

    def _flush(self) -> list[dict[str, Any]]:
        fragment = _lance("write_lance").fragment
        rows = pa.Table.from_batches(self._held, self._target)
        self._held, self._nbytes = [], 0
        secrets = secrets_of(self._sink.storage_options)
        with _errors(WriteError, f"Cannot write the Lance dataset {self._sink.uri!r}", secrets):
            fragments = fragment.write_fragments(
                rows, self._sink.uri, schema=self._target, mode=self._sink.mode,
                storage_options=self._sink._storage_options, **self._sink.options,
            )  # fmt: skip
        return [{"fragments": pickle.dumps(fragments)}]

    @property
    def _target(self) -> pa.Schema:
        """The columns as the dataset has them; an append takes its types."""
        if self._schema is None:
            is_append = self._sink.mode == "append"
            self._schema = self._sink._existing().schema if is_append else self._sink.schema.to_arrow()
        return self._schema

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return conform_batch(batch, self._target, is_strict=True)
        except ColumnMismatchError as exc:
            raise WriteError(
                f"Cannot write the Lance dataset {self._sink.uri!r}: column {exc.column!r} is {DataType(exc.found)} "
                f"and cannot be made {DataType(exc.wanted)}, as the dataset has it."
            ) from exc


def lance_sink(
    uri: str | os.PathLike[str],
    *,
    mode: str,
    schema: Schema,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> LanceSink:
    """Return the sink for a dataset as the user names it; ``options`` go to Lance's writer."""
    if mode not in MODES:
        raise InvalidArgumentError(
            f"mode={mode!r} is not known; use one of {', '.join(MODES)}.{did_you_mean(str(mode), MODES)}"
        )
    return LanceSink(os.fspath(uri), mode, schema, storage_options, options)


def _with_fragment(batch: pa.RecordBatch, number: int, schema: pa.Schema) -> pa.RecordBatch:
    if FRAGMENT_COLUMN not in schema.names or FRAGMENT_COLUMN in batch.schema.names:
        return batch
    return batch.append_column(FRAGMENT_COLUMN, pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))


@contextmanager
def _errors(kind: type[ReadError] | type[WriteError], doing: str, secrets: tuple[str, ...]) -> Iterator[None]:
    """Translate what Lance raises, which is whatever suits the Rust error below."""
    try:
        yield
    except PenstockError:
        raise
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as exc:
        raise kind(f"{doing}: {scrubbed(str(exc), secrets)}") from exc

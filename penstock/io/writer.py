"""Write rows to files below a folder: ``FileSink`` for any format that has a ``FileEncoding``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, OutputExistsError, WriteError, check_choice
from penstock.io.commit.job_lock import job_lock
from penstock.io.commit.output import JOB_LEDGER, WRITE_MODES, Output, writing
from penstock.io.consistent_listing import JOB_FOLDER, STAGING_FOLDER
from penstock.io.hive import check_partition_column, split_by_partition
from penstock.io.match_schema import ColumnMismatchError, conform_rows, mismatch_error, widened_schema
from penstock.io.staged_file import FileEncoding, StagedFile, file_record, for_each_file
from penstock.storage.storage_options import StorageOptions
from penstock.storage.stores import no_bucket_named
from penstock.storage.urls import KINDS, local_path, redacted, scheme_of, short_path
from penstock.types import DataType, Schema
from penstock.types.plain import arrow_array
from penstock.types.row_ranges import Piece, rows_of_pieces

FILE_NBYTES = 512 * 2**20  # maximum data of a file, in memory; on disk it is smaller
HELD_NBYTES = 64 * 2**20  # maximum data that one writer's files hold back together
MAX_OPEN_FILES = 64  # open files of one writer to many partitions
REWRITE_THREADS = 4  # for files that need wider types before the commit


@runtime_checkable
class TypedEncoding(Protocol):
    """An encoding whose files store the types of their columns."""

    def stored_batches(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a finished file."""


@runtime_checkable
class RecordEncoding(Protocol):
    """An encoding whose files are sequences of records without types."""

    def copy_rows(self, target: str, pieces: Sequence[Piece]) -> None:
        """Copy ranges of rows of finished files to a new one."""


@dataclass(frozen=True)
class FileSink:
    """A ``Sink`` of files below ``root``, which become visible all at once at the end (see ``io.commit``).

    ``create`` needs an empty folder, ``append`` adds files under new names, ``overwrite`` replaces the files of the
    same format when the new ones are complete. ``partition_cols`` are stored in ``key=value`` folders, not in files.
    With a ``schema`` every batch is cast to it, and a result without rows is one empty file. Without it, types may
    differ between batches, and all files get the types that hold every value.
    """

    root: str
    encoding: FileEncoding
    mode: str = "create"
    partition_cols: tuple[str, ...] = ()
    rows_per_file: int | None = None
    schema: Schema | None = None
    storage_options: StorageOptions = field(default_factory=StorageOptions)
    output: Output = field(default=cast(Output, None), repr=False, compare=False)  # the transaction; made if not given

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, WRITE_MODES)
        limit: Any = self.rows_per_file
        if limit is not None and not (isinstance(limit, int) and limit >= 1):
            raise InvalidArgumentError(f"rows_per_file={limit!r} must be a whole number of at least 1.")
        if self.schema is not None:
            self.content_schema(self.schema.to_arrow())
        if self.output is None:
            object.__setattr__(self, "output", Output(self.root, self.storage_options))

    @property
    def run_id(self) -> str:
        return self.output.run_id

    @property
    def needs_one_writer(self) -> bool:
        return bool(self.partition_cols)

    @property
    def name(self) -> str:
        return f"{self.encoding.suffix[1:]} files to {self.root}"

    @property
    def short_name(self) -> str:
        return short_path(self.root, is_folder=True)

    def content_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the files; raise an error for columns that cannot be stored."""
        for name in self.partition_cols:
            if name not in schema.names:
                raise ColumnNotFoundError(name, schema.names, "partition_cols")
            check_partition_column(schema.field(name))
        content = pa.schema([column for column in schema if column.name not in self.partition_cols])
        if self.partition_cols and not len(content):
            raise InvalidArgumentError("partition_cols names every column; leave at least one to write into the files.")
        self.encoding.check(content)
        return content

    def start(self) -> None:
        if self.mode == "overwrite":
            job_lock(self.output.place).refuse_if_held()
        with writing(self.root):
            self._check_target()
        try:  # around `writing`, since an interrupt may come at its end
            with writing(self.root):
                self.output.begin()
                if self.mode != "append":  # two writes that begin at the same time see each other now
                    self.output.deletes.extend(self._check_target())
        except BaseException:
            with writing(self.root):
                self.output.abandon()
            raise

    def refuse_other_writes(self, alive: Sequence[str]) -> None:
        """Raise an error if another run is writing, unless both only add files."""
        if self.mode != "append" and alive:
            raise WriteError(
                f"Another write to {self.root!r} is in progress (run {alive[0]}); wait, or use mode='append'. "
                f"If it ran on another machine and is dead, remove {os.path.join(self.root, STAGING_FOLDER)!r}."
            )

    def _check_target(self) -> list[str]:
        """Refuse a folder that cannot be written to; return the files of the job that made the data to replace."""
        output = self.output
        self.refuse_other_writes(output.check())
        if self.mode == "create" and (found := next(output.files_below(), None)):
            raise OutputExistsError(
                f"Folder {self.root!r} already holds data, such as {found!r}; "
                "use mode='overwrite' to replace it or mode='append' to add to it."
            )
        names = () if self.mode == "append" else output.files_below(JOB_FOLDER)
        job_files = [name for name in names if not name.startswith(f"{JOB_FOLDER}/{JOB_LEDGER}/")]
        if self.mode == "create" and job_files:
            raise OutputExistsError(
                f"Folder {self.root!r} holds an unfinished job; "
                "use resume=True to finish it or mode='overwrite' to give it up."
            )
        return job_files

    def open(self) -> FileWriter:
        return FileWriter(self, secrets.token_hex(4))

    def open_part(self, first_row: int) -> FileWriter:
        return FileWriter(self, f"{first_row:010d}-{secrets.token_hex(2)}")

    def keep_errors(self, errors: pa.RecordBatchReader) -> None:
        with writing(self.root):
            self.output.stage_errors(errors)

    def completed(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the records of the files to commit, all with the same types; at least one if the schema is known.

        An empty file only keeps the columns, so it is left out if there are other files.
        """
        files = [file for file in records if file["rows"]] or list(records[:1])
        with writing(self.root):
            if not files and (content := self._content_without_rows()) is not None:
                name = f"{self.run_id}-empty-00000{self.encoding.suffix}"
                files = [self._staged(name, content, ())]
            return self._with_one_schema(files)

    def _content_without_rows(self) -> pa.Schema | None:
        """Return the columns for the empty file of a result without rows; None if it needs no file.

        If no row has reached the function that makes the columns, they are unknown. The file then has none, so that the
        folder can be read.
        """
        if self.schema is not None:
            return self.content_schema(self.schema.to_arrow())
        is_table = isinstance(self.encoding, TypedEncoding | RecordEncoding)
        return pa.schema([]) if is_table and self.mode != "append" else None

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        files = self.completed(records)
        with writing(self.root):
            output = self.output
            output.moves.extend(file["path"] for file in files)
            if self.mode == "overwrite":
                output.deletes.extend(name for name in output.files_below() if name.endswith(self.encoding.replaces))
                output.deletes.extend(output.error_files())
            output.deletes = sorted(set(output.deletes) - set(output.moves))
            output.commit()
        return file_table(self.root, files)

    def abort(self) -> None:
        self.output.abandon()

    def _with_one_schema(self, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rewrite files whose types differ, and return the records of all files, which now have the same types."""
        distinct = dict.fromkeys(file["schema"] for file in files)
        schemas = {packed: pa.ipc.read_schema(pa.py_buffer(packed)) for packed in distinct}
        if len(schemas) < 2:
            return files
        common = self._common_schema(list(schemas.values()))

        def rewritten(file: dict[str, Any]) -> dict[str, Any]:
            return file if schemas[file["schema"]].equals(common) else self._rewritten(file, common)

        with ThreadPoolExecutor(REWRITE_THREADS) as threads:
            return list(threads.map(rewritten, files))

    def _common_schema(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        common = schemas[0]
        for schema in schemas[1:]:
            if odd := sorted(set(schema.names) ^ set(common.names)):
                raise WriteError(
                    f"Cannot write to {self.root!r}: column {odd[0]!r} is in some batches and not in others; "
                    "give every row the same columns."
                )
            try:
                common = widened_schema(common, schema)
            except ColumnMismatchError as exc:
                raise WriteError(
                    f"Cannot write to {self.root!r}: column {exc.column!r} is {DataType(exc.wanted)} in some batches "
                    f"and {DataType(exc.found)} in others, which have no common type; cast the values to one type."
                ) from exc
        return common

    def assembled(self, stem: str, pieces: Sequence[tuple[dict[str, Any], int, int]]) -> dict[str, Any]:
        """Stage a file with ranges of rows of other files, one after another, and return its record."""
        output, name = self.output.files, f"{stem}{self.encoding.suffix}"
        sources = {path: output.read_back(path) for path in {file["path"] for file, _, _ in pieces}}
        rows = [(sources[file["path"]], start, stop) for file, start, stop in pieces]
        packed = dict.fromkeys(file["schema"] for file, _, _ in pieces)
        schema = self._common_schema([pa.ipc.read_schema(pa.py_buffer(each)) for each in packed])
        if isinstance(self.encoding, TypedEncoding):
            return self._staged(name, schema, rows_of_pieces(self.encoding.stored_batches, rows))
        assert isinstance(self.encoding, RecordEncoding)
        self.encoding.copy_rows(output.path_for(name), rows)
        num_rows = sum(stop - start for _, start, stop in rows)
        return file_record(name, num_rows, schema, *output.store([name]))

    def staged_file(self, name: str, schema: pa.Schema) -> StagedFile:
        return StagedFile(name, schema, self.encoding, self.output.files)

    def stored(self, files: Sequence[StagedFile]) -> list[dict[str, Any]]:
        """Close some files, store them durably, and return their records."""
        for_each_file(StagedFile.close, files)
        stored = self.output.files.store([file.name for file in files])
        return [file.record(each) for file, each in zip(files, stored, strict=True)]

    def _rewritten(self, file: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
        """Cast a staged file to ``schema`` and return its new record."""
        output = self.output.files
        if not isinstance(self.encoding, TypedEncoding):
            return file
        batches = self.encoding.stored_batches(output.read_back(file["path"]))
        record = self._staged(f"{file['path']}.wide", schema, batches)
        output.replace(file["path"], record["path"])
        return record | {"path": file["path"]}

    def _staged(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Stage a file of some batches and return its record."""
        file = self.staged_file(name, schema)
        try:
            for batch in batches:
                file.write(conform_rows(batch, schema, self.root))
            return self.stored([file])[0]
        except BaseException:
            file.discard()
            raise


def file_table(root: str, files: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the list of files that a write shows to the user."""
    columns = {
        "path": arrow_array([os.path.join(root, file["path"]) for file in files], pa.string()),
        "rows": arrow_array([file["rows"] for file in files], pa.int64()),
        "nbytes": arrow_array([file["nbytes"] for file in files], pa.int64()),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


class FileWriter:
    """A ``Writer`` of staged files: one unfinished file for each partition."""

    def __init__(self, sink: FileSink, part: str) -> None:
        self._sink = sink
        self._part = part
        self._num_files = 0
        self._files: dict[str, StagedFile] = {}  # by folder, the most recently used last
        self._nbytes_alive = 0  # of the batches that rows held back may keep alive
        self._schema = None if sink.schema is None else sink.schema.to_arrow()
        self._content_schema = None if self._schema is None else sink.content_schema(self._schema)

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        with writing(self._sink.root):
            if not batch.num_rows and (self._sink.schema is not None or not batch.num_columns):
                return []
            records = self._widen(batch.schema)
            if not batch.num_rows:  # the whole result: its columns are kept in one empty file
                self._files[""] = self._open_file("")
                return records
            batch = conform_rows(batch, self._schema, self._sink.root)
            columns = self._sink.partition_cols
            parts = split_by_partition(batch, columns) if columns else [("", batch)]
            records.extend(record for folder, rows in parts for record in self._write_rows(folder, rows))
            self._nbytes_alive += batch.nbytes
            if self._nbytes_alive > piece_nbytes(HELD_NBYTES):
                records.extend(self._release())
        return records

    def finish(self) -> Iterable[dict[str, Any]]:
        with writing(self._sink.root):
            return self._finish_files()

    def close(self) -> None:
        for file in self._files.values():
            file.discard()
        self._files.clear()

    def _widen(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """Widen the types to fit batches of ``schema``, and finish files of narrower types; not if the sink has a
        schema."""
        if self._sink.schema is not None:
            return []
        try:
            wider = schema if self._schema is None else widened_schema(self._schema, schema)
        except ColumnMismatchError as exc:
            raise mismatch_error(exc, self._sink.root) from exc
        if wider is self._schema:
            return []
        known, self._schema = self._content_schema, wider
        self._content_schema = self._sink.content_schema(wider)
        return [] if known is None or known.equals(self._content_schema) else self._finish_files()

    def _write_rows(self, folder: str, rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        limit = self._sink.rows_per_file
        while rows.num_rows:
            file = self._files.pop(folder, None) or self._open_file(folder)
            self._files[folder] = file
            fitting = rows if limit is None else rows.slice(0, limit - file.num_rows)
            file.write(fitting)
            rows = rows.slice(fitting.num_rows)
            if file.num_rows == limit or file.nbytes >= FILE_NBYTES:
                yield self._finish_file(folder)

    def _open_file(self, folder: str) -> StagedFile:
        name = f"{self._sink.run_id}-{self._part}-{self._num_files:05d}{self._sink.encoding.suffix}"
        self._num_files += 1
        return self._sink.staged_file(f"{folder}/{name}" if folder else name, self._content_schema)

    def _finish_files(self) -> list[dict[str, Any]]:
        records = self._sink.stored(list(self._files.values()))
        self._files.clear()
        return records

    def _finish_file(self, folder: str) -> dict[str, Any]:
        (record,) = self._sink.stored([self._files[folder]])
        del self._files[folder]
        return record

    def _release(self) -> Iterator[dict[str, Any]]:
        """Limit the data that all files hold back: write out the largest, and finish files if too many are open."""
        by_size = sorted(self._files.values(), key=lambda file: file.nbytes_held)
        held = sum(file.nbytes_held for file in by_size)
        while held > piece_nbytes(HELD_NBYTES) // 2:
            largest = [by_size.pop() for _ in range(min(MAX_OPEN_FILES, len(by_size)))]
            held -= sum(file.nbytes_held for file in largest)
            for_each_file(StagedFile.flush, largest)
            yield from self._close_oldest()
        if len(self._files) > 1:
            for file in self._files.values():
                file.copy_held()
        self._nbytes_alive = held

    def _close_oldest(self) -> Iterator[dict[str, Any]]:
        open_folders = [folder for folder, file in self._files.items() if file.is_open]
        for folder in open_folders[:-MAX_OPEN_FILES]:
            yield self._finish_file(folder)


def file_sink(
    path: str | os.PathLike[str],
    encoding: FileEncoding,
    *,
    mode: str = "create",
    partition_cols: Sequence[str] = (),
    rows_per_file: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    schema: Schema | None = None,
) -> FileSink:
    """Return the sink for a folder given by the user."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError(f"path={path!r} must name a folder, as a string or Path; got {type(path).__name__}.")
    name, options = os.fspath(path), StorageOptions.of(storage_options)
    local = local_path(name)
    if local is None and scheme_of(name) not in KINDS:
        raise InvalidArgumentError(
            f"Cannot write to {redacted(name)!r}: files are written to local folders and to s3://, gs:// and az://."
        )
    if local is None and not name.partition("://")[2].strip("/"):
        raise no_bucket_named(scheme_of(name))
    root = name.rstrip("/") if local is None else os.path.abspath(local)
    return FileSink(root, encoding, mode, tuple(partition_cols), rows_per_file, schema, storage_options=options)

"""Scan files of any format, with projection, filter, limit and columns taken from the path.

A ``FileFormat`` returns the columns and the parts of a file, and reads one part; the rest is here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from operator import methodcaller
from typing import Any

import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import CorruptFileError, InvalidArgumentError, ReadError
from penstock.events.metrics import note_skipped_file
from penstock.io.batch_sizes import BATCH_NBYTES, grouped
from penstock.io.data_file import DataFile, file_versions, is_small_local
from penstock.io.file_format import FileFormat, FilePart
from penstock.io.files import Paths, find_files, folder_of, path_list, short_name
from penstock.io.hive import partition_type, partition_values
from penstock.io.match_schema import ColumnMismatchError, widened_schema
from penstock.io.selection import Selection, columns_needed, fulfilled, until_limit
from penstock.protocols import Condition, DuckdbTable, ReadRequest
from penstock.types import DataType, Field, Schema, joined
from penstock.types.plain import arrow_scalar
from penstock.types.row_numbers import ROW_NUMBER, RowPlace, numbered

FOOTER_THREADS = 8  # read the columns of several files at once, since remote ones take round trips

logger = logging.getLogger(__name__)


def report_skipped(file: DataFile, error: CorruptFileError, num_rows_read: int = 0) -> None:
    """Warn about a corrupt file that is skipped, or about the unreadable rest of one, and note it for the
    statistics."""
    note_skipped_file(str(file), str(error), num_rows_read > 0)
    what = f"the rest of a corrupt file after {num_rows_read:,} rows" if num_rows_read else "a corrupt file"
    logger.warning("Skipped %s. %s", what, error)


@dataclass(eq=False)
class FileTask:
    num_rows: int | None
    nbytes: int | None
    format: FileFormat
    file: DataFile
    part: FilePart
    file_schema: pa.Schema
    selection: Selection
    ignores_corrupt: bool
    origin: tuple[str, str]
    input_number: int | None = None  # of the file, if its rows are numbered

    @property
    def is_small(self) -> bool:
        """True for small files on the local disk; a task reads several remote files at once."""
        return is_small_local(self.file)

    @property
    def first_place(self) -> RowPlace | None:
        """The first row of the task in its file, if its rows are consecutive."""
        rows, is_whole = self.part.rows, self.selection.predicate is None
        is_consecutive = bool(rows) and all(one.stop == other.start for one, other in pairwise(rows))
        return RowPlace(str(self.file), rows[0].start) if is_whole and is_consecutive else None

    def read(self) -> Iterator[pa.RecordBatch]:
        return self._selected(self._content())

    def read_with(self, others: Sequence[FileTask]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all tasks. Join batches that need no cast first, because each selection has a fixed
        cost."""
        wanted = self.selection.schema

        def can_join(content: tuple[FileTask, pa.RecordBatch]) -> bool:
            task, batch = content
            return task.selection is self.selection and batch.schema.equals(wanted)

        contents = ((task, batch) for task in (self, *others) for batch in task._content())
        for is_joined, run in groupby(contents, can_join):
            if is_joined:
                batches = (batch for _, batch in run)
                for some in grouped(batches, methodcaller("get_total_buffer_size"), piece_nbytes(BATCH_NBYTES)):
                    yield from self._selected([joined(some)])
            else:
                for task, batch in run:
                    yield from task._selected([batch])

    def _numbered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches if self.input_number is None else numbered(batches, self.input_number, self.part.rows)

    def _selected(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.selection.apply(batches, repr(str(self.file)))

    def _content(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the part as they are in the file."""
        num_rows = 0
        try:
            batches = self.format.read(self.file, self.part, self.file_schema)
            with closing(batches):  # type: ignore[type-var]
                for batch in self._numbered(batches):
                    num_rows += batch.num_rows
                    yield batch
        except CorruptFileError as exc:
            if not self.ignores_corrupt:
                raise
            report_skipped(self.file, exc, num_rows)


class FileSource:
    """A ``Source`` over files of one format. The constructor finds the files, so that it reports a wrong path.

    The first file that is not empty determines the columns. If a format can read types cheaply, they are widened to
    suit the next files too. ``schema`` replaces types and adds columns, and may be a
    function of the files. With ``infer_schema=False`` it is the whole schema.
    """

    can_filter = True
    can_count = True

    def __init__(
        self,
        format: FileFormat,
        path: Paths,
        *,
        columns: Sequence[str] | None = None,
        schema: Mapping[str, Any] | Callable[[Sequence[DataFile]], Mapping[str, Any]] | None = None,
        infer_schema: bool = True,
        path_column: str | None = None,
        hive_partitioning: bool | None = None,
        ignore_corrupt_files: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if schema is None and not infer_schema:
            raise InvalidArgumentError("infer_schema=False needs schema={column: type, ...} with every column.")
        self.format = format
        paths = path_list(path)
        self.files = find_files(paths, format.suffixes, storage_options)
        self.short_name = short_name(paths, self.files)
        self.name = f"read_{format.name}({self.files[0]}{f' and {len(self.files) - 1} more' * (len(self.files) > 1)})"
        hints = schema(self.files) if callable(schema) else schema or {}
        self._hints = {name: DataType.of(dtype).arrow for name, dtype in hints.items()}
        self._infers = infer_schema
        self._columns = columns
        self._path_column = path_column
        self._hive = hive_partitioning
        self._folders = [] if hive_partitioning is not None else [folder_of(name) for name in paths]
        self._ignores_corrupt = ignore_corrupt_files

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return file_versions(self.files)

    def sql_table(self, columns: Sequence[str]) -> DuckdbTable | None:
        if self._hints or self._ignores_corrupt or not set(columns) <= set(self._file_schema.names):
            return None
        return self.format.sql_table(self.files, pa.schema([self._file_schema.field(name) for name in columns]))

    def row_inputs(self) -> Sequence[DataFile]:
        return self.files

    def options(self) -> Mapping[str, Any]:
        """Return the options that determine the rows, without options that only locate the files."""
        return {
            "format": self.format,
            "columns": self._columns,
            "schema": {name: str(dtype) for name, dtype in self._hints.items()},
            "infer_schema": self._infers,
            "path_column": self._path_column,
            "hive_partitioning": bool(self._partition_types),
            "ignore_corrupt_files": self._ignores_corrupt,
        }

    @until_limit
    def read_tasks(self, request: ReadRequest) -> Iterator[FileTask]:
        full = self._schema.to_arrow()
        columns = tuple(full.names) if request.columns is None else request.columns
        needed = columns_needed(columns, request)
        in_files = set(self._file_schema.names)
        read = needed & in_files
        file_schema = full if len(read) == len(full) else pa.schema([f for f in full if f.name in read])
        if self._ignores_corrupt and not len(file_schema):
            # Metadata counts rows that cannot be read, and the skipped files must not depend on the columns selected.
            file_schema = pa.schema([f for f in full if f.name in in_files])
        selection = Selection(file_schema, columns, request.predicate, request.limit, request.conditions)
        if request.first_input is not None:
            with_numbers = file_schema.append(pa.field(ROW_NUMBER, pa.int64()))
            selection = replace(selection, schema=with_numbers, columns=(*columns, ROW_NUMBER))
            input_numbers = {id(file): number for number, file in enumerate(self.files, request.first_input)}
        times: Counter[str] = Counter()
        for file in self._files_for(request):
            name = str(file)
            times[name] += 1
            again = f", time {times[name]}" if times[name] > 1 else ""
            constants = {name: value for name, value in self._constants(file).items() if name in needed}
            selected = replace(selection, constants=constants) if constants else selection
            for part in self._parts(file, request):
                yield FileTask(
                    num_rows=None if self._ignores_corrupt else part.num_rows,
                    nbytes=part.nbytes,
                    format=self.format,
                    file=file,
                    part=part,
                    file_schema=file_schema,
                    selection=selected,
                    ignores_corrupt=self._ignores_corrupt,
                    origin=(name, part.label + again),
                    input_number=None if request.first_input is None else input_numbers[id(file)],
                )

    def _parts(self, file: DataFile, request: ReadRequest) -> Iterator[FilePart]:
        try:
            yield from self.format.parts(file, self._file_schema, request)
        except CorruptFileError:
            if not self._ignores_corrupt:
                raise
            yield FilePart()  # reading it fails too, and reports the file

    @cached_property
    def _schema(self) -> Schema:
        of_path = [Field(name, DataType(dtype)) for name, dtype in self._path_types.items()]
        full = Schema([*self._content, *of_path]) if of_path else self._content
        if self._columns is None:
            return full
        # path_column= adds its column to any choice of columns.
        return full.select(dict.fromkeys([*self._columns, *([self._path_column] if self._path_column else [])]))

    @cached_property
    def _file_schema(self) -> pa.Schema:
        return self._content.to_arrow()

    @cached_property
    def _content(self) -> Schema:
        """The columns in the content of the files."""
        found = self._columns_of_files
        fields = {name: dtype for name, dtype in (found | self._hints).items() if name not in self._partition_types}
        if self._path_column in fields:
            raise InvalidArgumentError(
                f"path_column={self._path_column!r} is already a column of {str(self.files[0])!r}; choose another name."
            )
        return Schema(map(Field, fields, map(DataType, fields.values())))

    @cached_property
    def _columns_of_files(self) -> dict[str, pa.DataType]:
        if not self._infers:
            return {}
        found = self._inferred()
        return dict(zip(found.names, found.types, strict=True))

    def _inferred(self) -> pa.Schema:
        error: CorruptFileError | None = None
        for number, file in enumerate(self.files):
            try:
                if schema := self.format.infer_schema(file):  # a result without rows may have no columns
                    _check_unique(schema.names, file)
                    return self._widened(schema, self.files[number + 1 : number + self.format.num_files_inferred])
            except CorruptFileError as exc:
                if not self._ignores_corrupt:
                    raise
                error = exc
        if error is not None:
            raise CorruptFileError(
                f"None of the {len(self.files)} files can be read; the last error: {error}"
            ) from error
        return pa.schema([])

    def _widened(self, schema: pa.Schema, files: Sequence[DataFile]) -> pa.Schema:
        """Return ``schema`` with types that also suit ``files``, where there is a common type."""
        if not files:
            return schema
        with ThreadPoolExecutor(FOOTER_THREADS) as threads:
            found = threads.map(self._schema_if_readable, files)
            others = [other for other in found if other is not None and not other.equals(schema)]
        common = {column.name: column for column in schema}
        for other in others:
            for name, column in common.items():
                with suppress(ColumnMismatchError):  # reading the column reports it, with the file
                    common[name] = widened_schema(pa.schema([column]), other).field(0)
        return pa.schema(list(common.values()))

    def _schema_if_readable(self, file: DataFile) -> pa.Schema | None:
        try:
            return self.format.infer_schema(file)
        except ReadError:  # reading the file raises it again, or skips the file
            return None

    @cached_property
    def _partition_types(self) -> dict[str, pa.DataType]:
        """The types of the columns in folders.

        Unless the user decides, these are the keys that the folders of all files have below the given path, and that no
        file contains.
        """
        if self._hive is False:
            return {}
        values: dict[str, set[str | None]] = {}
        is_in_all = True
        for file in self.files:
            found = self._partition_values(file)
            is_in_all &= not values or found.keys() == values.keys()
            for key, value in found.items():
                values.setdefault(key, set()).add(value)
        if self._hive is None:
            known = self._columns_of_files if values and is_in_all else {}
            is_free = is_in_all and (self._infers or values.keys() <= self._hints.keys())
            values = {key: found for key, found in values.items() if is_free and key not in known}
        return {key: self._hints.get(key) or partition_type(found) for key, found in values.items()}

    def _partition_values(self, file: DataFile) -> dict[str, str | None]:
        if self._hive is None:
            above = max((folder for folder in self._folders if file.path.startswith(folder)), key=len, default="")
            return partition_values(file.path[len(above) :]) if above else {}
        return partition_values(file.path) if self._hive else {}

    @property
    def _path_types(self) -> dict[str, pa.DataType]:
        return self._partition_types | ({self._path_column: pa.string()} if self._path_column else {})

    def _constants(self, file: DataFile) -> dict[str, pa.Scalar]:
        found = self._partition_values(file)
        types = self._partition_types.items()
        constants = {key: arrow_scalar(found.get(key), pa.string()).cast(dtype) for key, dtype in types}
        if self._path_column:
            constants[self._path_column] = arrow_scalar(file.url)
        return constants

    def _files_for(self, request: ReadRequest) -> Sequence[DataFile]:
        """Return the files whose paths fulfil the conditions on them."""
        of_path = self._path_types
        conditions = [each for each in request.conditions if each.column in of_path]
        if not conditions:
            return self.files
        return [file for file in self.files if _fulfils(self._constants(file), conditions)]


def _fulfils(constants: Mapping[str, pa.Scalar], conditions: Sequence[Condition]) -> bool:
    """Return True if the columns with one value for the whole file fulfil all conditions."""
    names = list(dict.fromkeys(each.column for each in conditions))
    row = pa.RecordBatch.from_arrays([pa.repeat(constants[name], 1) for name in names], names=names)
    return bool(fulfilled(row, conditions)[0].as_py())


def _check_unique(names: Sequence[str], file: DataFile) -> None:
    twice = sorted({name for name in names if list(names).count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise CorruptFileError(f"Cannot read {str(file)!r}: column {twice[0]!r} appears twice; names must be unique.")

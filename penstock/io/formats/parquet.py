"""Parquet: a task reads a run of row groups, so that one large file keeps all cores busy."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import piece_nbytes
from penstock.errors import CorruptFileError, InvalidArgumentError, PenstockError, TypeMismatchError, check_choice
from penstock.io.batch_sizes import TASK_NBYTES, TASK_ROWS, rows_alone, rows_per_batch
from penstock.io.data_file import DataFile, Storage, is_small_local
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.formats.parquet_sql import sql_table
from penstock.io.formats.row_groups import matching_groups
from penstock.protocols import DuckdbTable, ReadRequest
from penstock.storage.remote_file import RangeFile
from penstock.types import DataType
from penstock.types.plain import arrow_numbers
from penstock.types.row_ranges import RowRange

ROW_GROUP_ROWS = 2**20
COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")

_DICTIONARY_NBYTES = 2**20  # the default of Arrow
_SAMPLE_ROWS = 4096
_SMALL_NBYTES = 2**20  # too little for threads to pay off
_STREAM_NBYTES = 16 * 2**20  # read-ahead of a larger file
_WRITE_NBYTES = 16 * 2**10  # a small file is written by one call of the system instead of ten
_PREFETCH_NBYTES = 128 * 2**20  # over the network a task reads up to this at once, and more than this column by column


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Parquet files; the ``detail`` of a part is the numbers of its row groups, or None for all."""

    name: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq", ".parq")
    num_files_inferred: ClassVar[int] = 32  # a footer is small, and the types in it are certain

    def infer_schema(self, file: DataFile) -> pa.Schema:
        return _footer(file).schema

    def parts(self, file: DataFile, schema: pa.Schema, request: ReadRequest) -> Iterator[FilePart]:
        is_small = file.size is not None and not file.storage.is_local and file.size < TASK_NBYTES // 4
        if is_small or (request.predicate is None and is_small_local(file)):
            # The worker reads the footer of a file that is a single task: it takes a round trip, or half of the work.
            yield FilePart(nbytes=(file.size or 0) * 4)
            return
        metadata = _footer(file).metadata
        if request.predicate is None:
            yield from _runs(metadata, range(metadata.num_row_groups))
        else:
            yield from _runs(metadata, matching_groups(metadata, schema, request))

    def sql_table(self, files: Sequence[DataFile], schema: pa.Schema) -> DuckdbTable | None:
        return sql_table(files, schema, self.infer_schema)

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if not len(schema):
            yield rows_alone(_num_rows(file, part))
            return
        with _opened(file) as handle:
            footer = _footer(file) if _is_large_local(file) else None
            parquet = _parquet_file(handle, file, footer, len(schema))
            metadata = parquet.metadata
            groups = range(metadata.num_row_groups) if part.detail is None else part.detail
            sizes = [metadata.row_group(group) for group in groups]
            num_rows = sum(group.num_rows for group in sizes)
            nbytes = sum(group.total_byte_size for group in sizes)
            in_file = parquet.schema_arrow if footer is None else footer.schema
            # Arrow takes long to look up thousands of names.
            columns = None if in_file.names == schema.names else schema.names
            share = 1.0 if columns is None else _share(sizes, schema)
            batch_rows = rows_per_batch(num_rows, round(nbytes * share), len(schema))
            if isinstance(handle, RangeFile):
                _prefetch(handle, metadata, groups, set(schema.names))
            try:  # Arrow skips columns that the file lacks
                # Decoding whole row groups takes two thirds of the time of batches.
                if num_rows <= batch_rows or num_rows * _row_width(in_file, schema) <= piece_nbytes(TASK_NBYTES):
                    use_threads = nbytes >= _SMALL_NBYTES
                    yield from parquet.read_row_groups(list(groups), columns, use_threads=use_threads).to_batches()
                else:
                    yield from parquet.iter_batches(batch_rows, list(groups), columns)
            except PenstockError:
                raise
            except (OSError, pa.ArrowInvalid) as exc:
                place = f"row groups {groups[0]} to {groups[-1]} of {metadata.num_row_groups}"
                raise CorruptFileError(f"Cannot read {str(file)!r}, {place}: {exc}") from exc


@contextmanager
def _opened(file: DataFile) -> Iterator[Any]:
    """Open the handle of a Parquet file, and translate errors."""
    with reading(file), _handle(file) as handle:
        if _nbytes(handle) == 0:
            raise CorruptFileError(f"Cannot read {str(file)!r}: the file is empty and has no Parquet footer.")
        yield handle


def _handle(file: DataFile) -> Any:
    if is_small_local(file):  # Arrow would ask the system for each column, and twice for the footer
        with open(file.path, "rb", buffering=0) as small:
            return pa.BufferReader(small.read())
    return file.open_ranges() if file.storage.is_native else file.open_file()


def _nbytes(handle: Any) -> int:
    return int(handle.nbytes if isinstance(handle, RangeFile) else handle.size())


class _Footer(NamedTuple):
    metadata: Any
    schema: pa.Schema


def _footer(file: DataFile) -> _Footer:
    """Return the footer. A query asks for it several times, and parsing it takes long with thousands of columns."""
    if not _is_large_local(file):
        return _read_footer(file)
    with reading(file):
        status = os.stat(file.path)
    return _kept_footer(file.path, status.st_ino, status.st_mtime_ns, status.st_size)


def _is_large_local(file: DataFile) -> bool:
    return file.storage.is_local and not is_small_local(file)


@functools.lru_cache(maxsize=8)
def _kept_footer(path: str, *version: int) -> _Footer:
    return _read_footer(DataFile(Storage(), path, version[-1]))


def _read_footer(file: DataFile) -> _Footer:
    import pyarrow.parquet as pq

    with _opened(file) as handle:
        parquet = pq.ParquetFile(handle, pre_buffer=False)
        return _Footer(parquet.metadata, parquet.schema_arrow)


def _row_width(in_file: pa.Schema, schema: pa.Schema) -> float:
    """Return the bytes of a row with the columns of ``schema``; infinite if there is text or a list, whose size is
    unknown.
    """
    num_bits = 0
    for name in schema.names:
        if (position := in_file.get_field_index(name)) >= 0:
            dtype = in_file.field(position).type
            if not pa.types.is_primitive(dtype):
                return math.inf
            num_bits += dtype.bit_width
    return num_bits / 8


def _share(groups: Sequence[Any], schema: pa.Schema) -> float:
    """Estimate from the first row group which share of the bytes the columns of ``schema`` take."""
    if not groups or not groups[0].total_byte_size:
        return 1.0
    names = set(schema.names)
    chunks = map(groups[0].column, range(groups[0].num_columns))
    wanted = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.partition(".")[0] in names)
    return float(min(1.0, wanted / groups[0].total_byte_size))


def _num_rows(file: DataFile, part: FilePart) -> int:
    metadata = _footer(file).metadata
    if part.detail is None:
        return int(metadata.num_rows)
    return sum(metadata.row_group(group).num_rows for group in part.detail)


def _parquet_file(handle: Any, file: DataFile, footer: _Footer | None, num_columns: int) -> Any:
    """Return the Parquet file of a handle for streaming some columns; Arrow's defaults buffer whole row groups."""
    import pyarrow.parquet as pq

    metadata = None if footer is None else footer.metadata
    buffer_nbytes = 0
    if not file.storage.is_native and _nbytes(handle) > _STREAM_NBYTES:
        # Each column of a row group has its own buffer; together they stay small.
        buffer_nbytes = max(piece_nbytes(_STREAM_NBYTES) // num_columns, 64 * 1024)
    is_remote = not (file.storage.is_local or file.storage.is_native)
    return pq.ParquetFile(handle, metadata=metadata, pre_buffer=is_remote, buffer_size=buffer_nbytes)


def _prefetch(handle: RangeFile, metadata: Any, groups: Sequence[int], columns: set[str]) -> None:
    """Read the chunks of columns and row groups at once: over a network, latency costs more than bytes."""
    ranges = []
    for group in map(metadata.row_group, groups):
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema.partition(".")[0] in columns:
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                start = min(start, chunk.data_page_offset)
                ranges.append((start, start + chunk.total_compressed_size))
    if sum(end - start for start, end in ranges) <= piece_nbytes(_PREFETCH_NBYTES):
        handle.prefetch(ranges)


def _runs(metadata: Any, groups: Sequence[int]) -> Iterator[FilePart]:
    """Yield neighbouring row groups together, up to the size of a task; the last may be half as large again."""
    found = [metadata.row_group(group) for group in groups]
    sizes = [max(each.num_rows / TASK_ROWS, each.total_byte_size / TASK_NBYTES) for each in found]
    firsts = [0, *itertools.accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))]
    run, left = list[int](), sum(sizes)
    size = num_rows = nbytes = 0
    for group, each, weight in zip(groups, found, sizes, strict=True):
        if run and size + weight > 1 and left > 0.5:
            yield FilePart(num_rows, nbytes, tuple(run), _rows(firsts, run))
            run, size, num_rows, nbytes = [], 0, 0, 0
        run.append(group)
        size, left = size + weight, left - weight
        num_rows += each.num_rows
        nbytes += each.total_byte_size
    if run:
        yield FilePart(num_rows, nbytes, tuple(run), _rows(firsts, run))


def _rows(firsts: Sequence[int], groups: Sequence[int]) -> tuple[RowRange, ...]:
    """Return the rows of some row groups, given the first row of each group."""
    return tuple(RowRange(firsts[group], firsts[group + 1]) for group in groups if firsts[group] < firsts[group + 1])


@dataclass(frozen=True)
class ParquetEncoding:
    """An encoding as Parquet. A batch is a row group, unless it is very large."""

    compression: str | None = "snappy"
    suffix: ClassVar[str] = ".parquet"
    replaces: ClassVar[tuple[str, ...]] = ParquetFormat.suffixes

    def __post_init__(self) -> None:
        check_choice("compression", str(self.compression or "none").lower(), COMPRESSIONS)

    def check(self, schema: pa.Schema) -> None:
        if not len(schema):
            raise InvalidArgumentError("There are no columns to write; select at least one.")
        for field in schema:
            if any(pa.types.is_interval(dtype) for _, dtype in _leaves(field.name, field.type)):
                raise TypeMismatchError(
                    f"Column {field.name!r} of type {DataType(field.type)} does not fit into Parquet, which has no "
                    f"intervals; leave it out with exclude({field.name!r}), or make it text with cast('string')."
                )

    def open(self, path: str, schema: pa.Schema) -> ParquetEncoder:
        return ParquetEncoder(path, schema, self.compression)

    def stored_batches(self, path: str) -> Iterator[pa.RecordBatch]:
        file = DataFile(Storage(), path, None)
        return ParquetFormat().read(file, FilePart(), ParquetFormat().infer_schema(file))


class ParquetEncoder:
    """One open Parquet file."""

    def __init__(self, path: str, schema: pa.Schema, compression: str | None) -> None:
        self._file = pa.BufferedOutputStream(pa.OSFile(path, "wb"), _WRITE_NBYTES)
        self._schema = schema
        self._compression = compression or "none"
        self._writer: Any = None

    def write(self, block: pa.Table) -> None:
        self._opened(block).write_table(block, row_group_size=ROW_GROUP_ROWS)

    def close(self) -> None:
        self._opened(None).close()
        self._file.close()

    def _opened(self, first: pa.Table | None) -> Any:
        import pyarrow.parquet as pq

        if self._writer is None:
            columns = _repeating_columns(self._schema)
            if first is not None:
                names = set(first.schema.names)
                columns = [path for path in columns if path not in names or not _has_many_values(first.column(path))]
            options = {"compression": self._compression, "use_dictionary": columns}
            self._writer = pq.ParquetWriter(self._file, self._schema, **options)
        return self._writer


def _has_many_values(column: pa.ChunkedArray) -> bool:
    """Estimate from a sample whether the values are too many for a dictionary, before Arrow tries one in vain."""
    nbytes, num_rows = column.nbytes, len(column)
    if nbytes <= _DICTIONARY_NBYTES or num_rows < _SAMPLE_ROWS or pa.types.is_nested(column.type):
        return False
    if isinstance(column.type, pa.BaseExtensionType):
        return False
    sample = column.take(arrow_numbers(np.linspace(0, num_rows - 1, _SAMPLE_ROWS, dtype=np.int64)))
    num_repeated = _SAMPLE_ROWS - pc.count_distinct(sample, mode="all").as_py()
    if num_repeated > _SAMPLE_ROWS // 2:
        return False
    # If n values are drawn from m different values, about n * n / 2m repeat another.
    return bool(_SAMPLE_ROWS**2 * nbytes > 2 * num_repeated * _DICTIONARY_NBYTES * num_rows)


@functools.lru_cache(maxsize=64)  # the files of many partitions have one schema
def _repeating_columns(schema: pa.Schema) -> list[str]:
    """Return the leaf columns that a dictionary may compress.

    Floating-point values rarely repeat, and trying a dictionary on them takes as long as writing them.
    """
    leaves = (leaf for field in schema for leaf in _leaves(field.name, field.type))
    return [path for path, dtype in leaves if not pa.types.is_floating(dtype)]


def _leaves(path: str, dtype: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the leaf columns of a type with their Parquet paths."""
    if isinstance(dtype, pa.BaseExtensionType):
        yield from _leaves(path, dtype.storage_type)
    elif pa.types.is_struct(dtype):
        for field in dtype:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(dtype):
        yield from _leaves(f"{path}.key_value.key", dtype.key_type)
        yield from _leaves(f"{path}.key_value.value", dtype.item_type)
    elif pa.types.is_nested(dtype):
        yield from _leaves(f"{path}.list.element", dtype.value_type)
    else:
        yield path, dtype

"""ORC files: a task reads one stripe, and a block of rows is written as at least one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.io.data_file import DataFile, Storage
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.formats.lines import check_compression
from penstock.io.writer import FileSink, file_sink
from penstock.protocols import ReadRequest
from penstock.types import DataType

COMPRESSIONS = ("uncompressed", "snappy", "zlib", "lz4", "zstd")


@dataclass(frozen=True)
class OrcFormat(FileFormat):
    """Files of Apache ORC, read by Arrow."""

    name: ClassVar[str] = "orc"
    suffixes: ClassVar[tuple[str, ...]] = (".orc",)
    can_number_rows: ClassVar[bool] = False  # a stripe does not say how many rows are before it

    def infer_schema(self, file: DataFile) -> pa.Schema:
        with reading(file), file.open_file() as stream:
            return _open(stream).schema

    def parts(self, file: DataFile, schema: pa.Schema, request: ReadRequest) -> Iterator[FilePart]:
        with reading(file), file.open_file() as stream:
            num_stripes = _open(stream).nstripes
        nbytes = None if file.size is None else file.size // max(num_stripes, 1)
        yield from (FilePart(nbytes=nbytes, detail=stripe) for stripe in range(num_stripes))

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading(file, f"stripe {part.detail}"), file.open_file() as stream:
            opened = _open(stream)
            wanted = set(schema.names)
            names = [name for name in opened.schema.names if name in wanted]
            # Without any column the rows are counted by the first one.
            yield opened.read_stripe(part.detail, names or opened.schema.names[:1])


def _open(stream: Any) -> Any:
    from pyarrow import orc

    return orc.ORCFile(stream)


@dataclass(frozen=True)
class OrcEncoding:
    compression: str = "uncompressed"
    suffix: ClassVar[str] = ".orc"
    replaces: ClassVar[tuple[str, ...]] = OrcFormat.suffixes

    def __post_init__(self) -> None:
        check_compression(self.compression, COMPRESSIONS)

    def check(self, schema: pa.Schema) -> None:
        from pyarrow import orc

        if not len(schema):
            raise InvalidArgumentError("There are no columns to write; select at least one.")
        for column in schema:
            try:
                orc.write_table(pa.schema([column]).empty_table(), pa.BufferOutputStream())
            except (pa.ArrowException, TypeError) as exc:
                raise TypeMismatchError(
                    f"Column {column.name!r} of type {DataType(column.type)} does not fit into ORC; cast it, leave it "
                    f"out with exclude({column.name!r}), or use write_parquet."
                ) from exc

    def open(self, path: str, schema: pa.Schema) -> Any:
        from pyarrow import orc

        writer = orc.ORCWriter(path, compression=self.compression)
        writer.write(schema.empty_table())  # without it, a file without rows has no columns
        return writer

    def stored_batches(self, path: str) -> Iterator[pa.RecordBatch]:
        file, format = DataFile(Storage(), path, None), OrcFormat()
        schema = format.infer_schema(file)
        for part in format.parts(file, schema, ReadRequest()):
            yield from format.read(file, part, schema)


def orc_sink(path: str, *, compression: str = "uncompressed", **options: Any) -> FileSink:
    """Return the sink for ORC files below ``path``; it takes the options of ``file_sink``."""
    return file_sink(path, OrcEncoding(compression), **options)

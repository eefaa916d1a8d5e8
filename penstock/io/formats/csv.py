"""CSV, parsed by Arrow in blocks. A row must fit a block."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import CorruptFileError, InvalidArgumentError, TypeMismatchError
from penstock.io.data_file import DataFile
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.formats.lines import (
    COMPRESSIONS,
    check_compression,
    check_encoding,
    copy_records,
    exceeds_int64,
    in_utf8,
    with_compressed,
)
from penstock.types import DataType
from penstock.types.row_ranges import Piece

MAX_BLOCK_NBYTES = 16 * 2**20  # a row must fit; the first block determines the types, whatever the memory
READ_AHEAD = 40  # the number of blocks that Arrow's reader holds: its queue has 32
_CONVERSION_ERROR = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV (.*)", re.DOTALL)


@dataclass(frozen=True)
class CsvFormat(FileFormat):
    """CSV files. The first few megabytes determine the types; a column that is empty there is text.

    An empty field is null and ``""`` is the empty text.
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    has_headers: bool = True
    quote: str = '"'
    double_quote: bool = True
    escape_char: str | None = None
    null_values: tuple[str, ...] = ("",)
    strings_can_be_null: bool = True
    column_names: tuple[str, ...] | None = None  # for files without headers
    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = with_compressed(".csv", ".tsv")

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        for option in ("delimiter", "quote", "escape_char"):
            value = getattr(self, option)
            if value is not None and (len(value) != 1 or not value.isascii()):
                raise InvalidArgumentError(f"{option}={value!r} must be a single ASCII character.")

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        batches = self._sample(file, None)
        first = next(batches, None)
        if first is None:
            return None
        is_open = {c.name: pa.types.is_null(c.type) or pa.types.is_binary(c.type) for c in first.schema}
        schema = pa.schema([(c.name, pa.string() if is_open[c.name] else c.type) for c in first.schema])
        if any(map(pa.types.is_binary, first.schema.types)):  # Arrow infers bytes for text that is not UTF-8
            next(self._sample(file, schema))  # raises the error with its row
        if any(map(pa.types.is_float64, schema.types)):
            schema = self._with_uint64(file, schema, next(batches, first))
        return schema

    def _with_uint64(self, file: DataFile, schema: pa.Schema, rows: pa.RecordBatch) -> pa.Schema:
        """Return the schema with uint64 where Arrow infers floats because the integers exceed int64."""
        for number, column in enumerate(schema):
            if exceeds_int64(rows.column(number)):
                exact = pa.schema([(column.name, pa.uint64())])
                with suppress(CorruptFileError):
                    list(self._sample(file, exact))
                    schema = schema.set(number, exact.field(0))
        return schema

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield from self._batches(file, schema)

    def _first_row(self, file: DataFile) -> list[str]:
        """Return the first row that is not empty, or an empty list."""
        with reading(file), self._stream(file) as stream:
            csv.field_size_limit(2**31 - 1)  # Python's own limit is 128 kB
            rows = csv.reader(
                (line.decode("utf-8-sig") for line in io.BufferedReader(stream)),
                delimiter=self.delimiter,
                quotechar=self.quote,
                doublequote=self.double_quote,
                escapechar=self.escape_char,
            )
            return next(filter(None, rows), [])

    def _stream(self, file: DataFile) -> pa.NativeFile:
        """Return the content of a file in UTF-8."""
        return in_utf8(file.open_stream(), self.encoding)

    def _batches(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows. A row that exceeds a block makes the reader begin again with larger blocks."""
        num_given = 0
        for block_nbytes in _block_sizes():
            end = 0
            try:
                for batch in self._parsed(file, schema, block_nbytes):
                    end += batch.num_rows
                    if end > num_given:
                        yield batch.slice(max(0, batch.num_rows - (end - num_given)))
                        num_given = end
                return
            except LongRowError:
                if block_nbytes == MAX_BLOCK_NBYTES:
                    raise

    def _sample(self, file: DataFile, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """Yield an empty batch and the rows of the first block; nothing for an empty file."""
        return islice(self._parsed(file, schema, MAX_BLOCK_NBYTES, is_sample=True), 2)

    def _parsed(
        self, file: DataFile, schema: pa.Schema | None, block_nbytes: int, *, is_sample: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield an empty batch and then the rows; nothing for an empty file."""
        import pyarrow.csv

        first_row = self._first_row(file)
        if not first_row:
            return
        names = first_row
        if not self.has_headers:
            names = list(self.column_names or (f"column_{number}" for number in range(1, len(first_row) + 1)))
        try:
            with reading(file), self._stream(file) as content:
                if is_sample:  # else the reader would read ahead; only the first block, which is whole, is used
                    content = pa.BufferReader(content.read(2 * block_nbytes))
                reader = pyarrow.csv.open_csv(
                    content,
                    pyarrow.csv.ReadOptions(
                        use_threads=False, block_size=block_nbytes, column_names=None if self.has_headers else names
                    ),
                    pyarrow.csv.ParseOptions(
                        delimiter=self.delimiter,
                        quote_char=self.quote,
                        double_quote=self.double_quote,
                        escape_char=self.escape_char or False,
                        newlines_in_values=True,
                        # In a file of one column an empty line is a row with a null.
                        ignore_empty_lines=len(first_row) > 1,
                    ),
                    pyarrow.csv.ConvertOptions(
                        null_values=list(self.null_values),
                        strings_can_be_null=self.strings_can_be_null,
                        quoted_strings_can_be_null=False,
                        **_conversion(schema),
                    ),
                )
                # from_pylist([]) would import pandas
                yield pa.RecordBatch.from_arrays([pa.nulls(0, t) for t in reader.schema.types], schema=reader.schema)
                yield from reader
        except CorruptFileError as exc:
            if "straddling object" in str(exc):  # Arrow has no class for it
                raise LongRowError(
                    f"Cannot read {str(file)!r}: a row has over {block_nbytes:,} bytes, the most for CSV; keep "
                    "such values in Parquet, or in files of their own."
                ) from exc
            found = _CONVERSION_ERROR.search(str(exc))
            if found is None:
                raise
            number, row, problem = found.groups()
            name = names[int(number)]
            raise CorruptFileError(
                f"Cannot read {str(file)!r}, row {row}, column {name!r}: {problem}; "
                f"give schema={{{name!r}: 'string'}} to read the column as text, and encoding= if it is not UTF-8."
            ) from exc


class LongRowError(CorruptFileError):
    """A row is longer than a block."""


def _block_sizes() -> Iterator[int]:
    """Yield the block sizes to try. All blocks that Arrow's reader holds together are one piece of work."""
    nbytes = max(1, piece_nbytes(READ_AHEAD * MAX_BLOCK_NBYTES) // READ_AHEAD)
    while nbytes < MAX_BLOCK_NBYTES:
        yield nbytes
        nbytes *= 4
    yield MAX_BLOCK_NBYTES


def _conversion(schema: pa.Schema | None) -> dict[str, Any]:
    """Return the options that select the columns of ``schema``, or all columns if it has none."""
    if schema is None or not len(schema):
        return {}
    types = {column.name: _parsed_type(column.type) for column in schema}
    return {"column_types": types, "include_columns": list(types), "include_missing_columns": True}


def _parsed_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's parser gives a column before it is cast to ``dtype``."""
    if pa.types.is_float16(dtype):
        return pa.float32()
    return dtype if is_csv_type(dtype) and not pa.types.is_decimal256(dtype) else pa.string()


def is_csv_type(dtype: pa.DataType) -> bool:
    """Return whether a CSV field can hold values of this type as text."""
    is_nested = pa.types.is_nested(dtype) or isinstance(dtype, pa.BaseExtensionType) or pa.types.is_interval(dtype)
    return not (is_nested or pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype))


@dataclass(frozen=True)
class CsvEncoding:
    """An encoding as CSV: nulls are empty fields, the empty text is ``""``; a quote within a field is doubled."""

    compression: str | None = None
    delimiter: str = ","
    header: bool = True
    replaces: ClassVar[tuple[str, ...]] = CsvFormat.suffixes

    def __post_init__(self) -> None:
        check_compression(self.compression)
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise InvalidArgumentError(f"write_csv: delimiter={self.delimiter!r} must be one ASCII character")

    @property
    def suffix(self) -> str:
        return ".csv" + COMPRESSIONS[self.compression]

    def check(self, schema: pa.Schema) -> None:
        for column in schema:
            if not is_csv_type(column.type):
                raise TypeMismatchError(
                    f"Column {column.name!r} of type {DataType(column.type)} does not fit into CSV, which holds text, "
                    f"numbers and times; leave it out with exclude({column.name!r}), turn it into text first, "
                    "or use write_parquet or write_json."
                )

    def open(self, path: str, schema: pa.Schema) -> CsvEncoder:
        return CsvEncoder(path, schema, self)

    def copy_rows(self, target: str, pieces: Sequence[Piece]) -> None:
        copy_records(target, pieces, self.compression, is_csv=True, has_header=self.header)


class CsvEncoder:
    """One open CSV file."""

    def __init__(self, path: str, schema: pa.Schema, encoding: CsvEncoding) -> None:
        import pyarrow.csv

        options = pyarrow.csv.WriteOptions(include_header=encoding.header, delimiter=encoding.delimiter)
        self._stream: Any = pa.output_stream(path, compression=encoding.compression)
        self._writer = pyarrow.csv.CSVWriter(self._stream, schema, write_options=options)

    def write(self, block: pa.Table) -> None:
        self._writer.write_table(block)

    def close(self) -> None:
        self._writer.close()
        self._stream.close()

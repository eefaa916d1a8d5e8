"""NumPy's .npy files: the first dimension of an array becomes the rows of a column."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.config import piece_nbytes
from penstock.errors import CorruptFileError, InvalidArgumentError, WriteError
from penstock.io.batch_sizes import BATCH_NBYTES, TASK_NBYTES, rows_alone
from penstock.io.data_file import DataFile, Storage
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.protocols import ReadRequest
from penstock.types import EmbeddingType, ImageType, TensorType, default_numpy, to_arrow_array
from penstock.types.row_ranges import RowRange

COLUMN = "data"


@dataclass(frozen=True)
class Header:
    """The shape and type of a file's array, and the offset of its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    offset: int

    @property
    def num_rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_nbytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


@dataclass(frozen=True)
class NumpyFormat(FileFormat):
    """Files of one array each. Arrays of Python objects are refused, since loading them runs code."""

    name: ClassVar[str] = "numpy"
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)

    def infer_schema(self, file: DataFile) -> pa.Schema:
        with reading(file), file.open_file() as stream:
            header = _read_header(stream, file)
        empty = np.empty((0, *header.shape[1:]), header.dtype)
        return pa.schema([(COLUMN, to_arrow_array(empty, None, what=f"the array of {str(file)!r}").type)])

    def parts(self, file: DataFile, schema: pa.Schema, request: ReadRequest) -> Iterator[FilePart]:
        with reading(file), file.open_file() as stream:
            header = _read_header(stream, file)
        rows = header.num_rows if header.is_fortran else max(1, TASK_NBYTES // max(header.row_nbytes, 1))
        for start in range(0, header.num_rows, rows):
            stop = min(start + rows, header.num_rows)
            yield FilePart(stop - start, (stop - start) * header.row_nbytes, (start, stop), (RowRange(start, stop),))

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading(file), file.open_file() as stream:
            header = _read_header(stream, file)
            start, stop = part.detail or (0, header.num_rows)
            if not len(schema):
                yield rows_alone(stop - start)
                return
            if header.is_fortran:
                stream.seek(0)
                yield _batch(np.load(stream, allow_pickle=False))
                return
            step = max(1, piece_nbytes(BATCH_NBYTES) // max(header.row_nbytes, 1))
            stream.seek(header.offset + start * header.row_nbytes)
            for first in range(start, stop, step):
                num_rows = min(step, stop - first)
                content = stream.read(num_rows * header.row_nbytes)
                if len(content) < num_rows * header.row_nbytes:
                    raise CorruptFileError(
                        f"Cannot read {str(file)!r}: it ends within row {first + len(content) // header.row_nbytes} "
                        f"of {header.num_rows}."
                    )
                yield _batch(np.frombuffer(content, header.dtype).reshape(num_rows, *header.shape[1:]))


def _batch(array: np.ndarray[Any, Any]) -> pa.RecordBatch:
    values = to_arrow_array(np.atleast_1d(array), None, what=f"column {COLUMN!r}")
    return pa.RecordBatch.from_arrays([values], names=[COLUMN])


def _read_header(stream: Any, file: DataFile) -> Header:
    try:
        is_first_version = np.lib.format.read_magic(stream) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first_version else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(stream)
    except ValueError as exc:
        raise CorruptFileError(f"Cannot read {str(file)!r}: {exc}") from exc
    if dtype.hasobject:
        raise CorruptFileError(
            f"Cannot read {str(file)!r}: it holds Python objects, and loading them would run code from the file."
        )
    return Header(shape, dtype, is_fortran and len(shape) > 1, stream.tell())


@dataclass(frozen=True)
class NumpyEncoding:
    """An encoding of the column ``column``: numbers, or tensors, images and embeddings of one shape."""

    column: str = COLUMN
    suffix: ClassVar[str] = ".npy"
    replaces: ClassVar[tuple[str, ...]] = NumpyFormat.suffixes

    def check(self, schema: pa.Schema) -> None:
        for column in schema:
            if not _has_one_shape(column.type):
                raise InvalidArgumentError(
                    f"write_numpy: column {self.column!r} of type {column.type} is not an array of one shape; "
                    "cast it to a tensor or an embedding first."
                )

    def open(self, path: str, schema: pa.Schema) -> NumpyEncoder:
        return NumpyEncoder(path, schema, self.column)

    def stored_batches(self, path: str) -> Iterator[pa.RecordBatch]:
        return NumpyFormat().read(DataFile(Storage(), path, None), FilePart(), pa.schema([(COLUMN, pa.null())]))


class NumpyEncoder:
    """One open file. ``close`` writes the header, which states the number of rows."""

    def __init__(self, path: str, schema: pa.Schema, column: str) -> None:
        self._column = column
        self._file = open(path, "w+b")  # noqa: SIM115 - close() closes it
        self._num_rows = 0
        self._sample = default_numpy(schema.empty_table().column(0).combine_chunks())
        self._write_header()

    def write(self, block: pa.Table) -> None:
        for column in block.column(0).chunks:
            if column.null_count:
                raise WriteError(f"write_numpy: column {self._column!r} has nulls, which .npy files cannot hold.")
            self._sample = np.ascontiguousarray(default_numpy(column))
            self._num_rows += len(self._sample)
            self._file.write(self._sample.data)

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        """Write the header at the start of the file; NumPy pads it to the same length for any number of rows."""
        header = np.lib.format.header_data_from_array_1_0(self._sample)
        shape = (self._num_rows, *self._sample.shape[1:])
        np.lib.format.write_array_header_1_0(self._file, header | {"shape": shape, "fortran_order": False})


def _has_one_shape(dtype: pa.DataType) -> bool:
    if isinstance(dtype, EmbeddingType | TensorType | ImageType):
        return dtype.shape is not None
    values = dtype.value_type if pt.is_fixed_size_list(dtype) else dtype
    return bool(pt.is_integer(values) or pt.is_floating(values) or pt.is_boolean(values))

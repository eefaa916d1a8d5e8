"""TFRecord files, in which TensorFlow keeps examples, as rows: a format of Ray Data that Penstock itself lacks.

A record is its length, a checksum, an encoded ``tf.train.Example``, another checksum; a reader here does not verify
checksums. The types are those of Ray Data: numbers become int64 or float32, text and tensors become bytes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptFileError, TypeMismatchError, WriteError, load_extra
from penstock.io.writer import FileSink, file_sink
from penstock.storage.file import File
from penstock.types import DataType, EmbeddingType, ImageType, TensorType, default_numpy

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # fields of tf.train.Feature
_TENSOR_TYPES = {  # numbers of the types of tensorflow.TensorProto
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10,
    "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip


# Of bytes that are no records: a length may exceed the memory.
_FAILURES = (ValueError, IndexError, KeyError, EOFError, MemoryError, OverflowError, struct.error, zlib.error,
             gzip.BadGzipFile)  # fmt: skip


def examples(file: File) -> Iterator[dict[str, Any]]:
    """Yield the examples of a file, plain or compressed by gzip; a feature of one value is that value."""
    with file.open() as stream:
        is_compressed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        source: Any = gzip.GzipFile(fileobj=stream) if is_compressed else stream
        try:
            while header := source.read(12):
                length = struct.unpack("<QI", header)[0]
                content = source.read(length + 4)
                if len(content) < length + 4:
                    raise ValueError("the last record is cut off")
                yield _example(content[:-4])
        except _FAILURES as exc:
            raise CorruptFileError(
                f"{file} is not a TFRecord file of tf.train.Example: {str(exc) or type(exc).__name__}"
            ) from exc


def _example(content: bytes) -> dict[str, Any]:
    entries = [dict(_fields(entry)) for _, features in _fields(content) for _, entry in _fields(features)]
    return {entry[1].decode(): _values(entry.get(2, b"")) for entry in entries}


def _values(feature: bytes) -> Any:
    found: Any = []
    for kind, content in _fields(feature):
        parts = [part for _, part in _fields(content)]
        if kind == _BYTES:
            found = parts
        elif kind == _FLOATS:
            found = list(np.frombuffer(b"".join(parts), "<f4"))
        elif kind == _INTEGERS:
            numbers = [number for part in parts for number in ([part] if isinstance(part, int) else _varints(part))]
            found = np.array(numbers, np.uint64).astype(np.int64).tolist()
    return found[0] if len(found) == 1 else found


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a message of protobuf."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        value: Any
        match tag & 7:
            case 0:
                value, position = _varint(content, position)
            case 2:
                size, position = _varint(content, position)
                value, position = content[position : position + size], position + size
            case 5:
                value, position = content[position : position + 4], position + 4
            case unknown:
                raise ValueError(f"a field has the wire type {unknown}")
        yield tag >> 3, value


def _varints(content: bytes) -> Iterator[int]:
    position = 0
    while position < len(content):
        value, position = _varint(content, position)
        yield value


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while content[position] & 0x80:
        value |= (content[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | content[position] << shift, position + 1


@dataclass(frozen=True)
class TFRecordEncoding:
    """An encoding as TFRecord files of ``tf.train.Example``, one for each row."""

    suffix: ClassVar[str] = ".tfrecords"
    replaces: ClassVar[tuple[str, ...]] = (".tfrecords", ".tfrecord")

    def check(self, schema: pa.Schema) -> None:
        for column in schema:
            _stored_type(column)

    def open(self, path: str, schema: pa.Schema) -> TFRecordEncoder:
        return TFRecordEncoder(path)


class TFRecordEncoder:
    """One open TFRecord file."""

    def __init__(self, path: str) -> None:
        self._crc32c: Callable[[bytes], int] = load_extra("crc32c", "tfrecords", "write_tfrecords").crc32c
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115  # closed by close()

    def write(self, block: pa.Table) -> None:
        entries = [_entries(block.schema.field(index), column) for index, column in enumerate(block.columns)]
        for row in zip(*entries, strict=True):
            record = _message(1, b"".join(row))
            length = struct.pack("<Q", len(record))
            self._file.write(length + self._checksum(length) + record + self._checksum(record))

    def close(self) -> None:
        self._file.close()

    def _checksum(self, content: bytes) -> bytes:
        crc = self._crc32c(content)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecords_sink(path: str, **options: Any) -> FileSink:
    """Return the sink for TFRecord files below ``path``; the options are those of ``file_sink``."""
    return file_sink(path, TFRecordEncoding(), **options)


def _stored_type(column: pa.Field) -> pa.DataType | None:
    """Return the type that holds the values of a column in an example; None for tensors."""
    if isinstance(column.type, TensorType | EmbeddingType | ImageType):
        return None
    is_list = pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
    dtype = column.type.value_type if is_list else column.type
    if pa.types.is_integer(dtype):
        stored = pa.int64()
    elif pa.types.is_floating(dtype):
        stored = pa.float32()
    elif pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        stored = pa.binary()
    else:
        raise TypeMismatchError(
            f"Column {column.name!r} of type {DataType(column.type)} does not fit into a TFRecord, which holds "
            f"integers, floats, bytes and text, one or a list; cast it, or leave it out."
        )
    return pa.list_(stored) if is_list else stored


def _entries(column: pa.Field, values: pa.ChunkedArray) -> Iterator[bytes]:
    """Yield the entry of each row for ``column`` in the features of an example."""
    stored, name = _stored_type(column), _message(1, column.name.encode())
    for chunk in values.chunks:
        rows: Any
        if stored is None:
            present = zip(default_numpy(chunk), chunk.is_valid().to_pylist(), strict=True)  # a null may be NaN there
            kind, rows = _BYTES, [[_tensor(tensor)] if is_valid else None for tensor, is_valid in present]
        else:
            dtype = stored.value_type if pa.types.is_list(stored) else stored
            kind = _INTEGERS if pa.types.is_integer(dtype) else _FLOATS if pa.types.is_floating(dtype) else _BYTES
            # Floats lose digits, as they do in TensorFlow; any other loss is an error.
            rows = chunk.cast(stored, safe=kind != _FLOATS).to_pylist()
            if stored is dtype:
                rows = [None if value is None else [value] for value in rows]
            elif chunk.flatten().null_count:
                raise WriteError(f"Column {column.name!r} has a null in a list, which a TFRecord cannot hold.")
        for row in rows:
            yield _message(1, name + _message(2, _message(kind, _list(kind, row or ()))))


def _list(kind: int, values: Iterable[Any]) -> bytes:
    if kind == _BYTES:
        return b"".join(_message(1, value) for value in values)
    packed = np.array(values, "<f4").tobytes() if kind == _FLOATS else b"".join(map(_encoded_varint, values))
    return _message(1, packed) if packed else b""


def _tensor(array: Any) -> bytes:
    """Encode an array as ``tf.io.serialize_tensor`` does."""
    array = np.asarray(array)
    shape = b"".join(_message(2, b"\x08" + _encoded_varint(size)) for size in array.shape)
    dtype = b"\x08" + _encoded_varint(_TENSOR_TYPES[array.dtype.name])
    return dtype + _message(2, shape) + _message(4, np.ascontiguousarray(array).tobytes())


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _encoded_varint(len(content)) + content


def _encoded_varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers are stored in two's complement
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

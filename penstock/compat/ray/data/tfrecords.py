"""TFRecord files, in which TensorFlow keeps examples, as rows: the reader of Ray Data that Penstock lacks.

A record is its length, a checksum, an encoded ``tf.train.Example``, another checksum; checksums are not verified.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.errors import CorruptFileError
from penstock.storage.file import File

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # fields of tf.train.Feature


def examples(file: File) -> Iterator[dict[str, Any]]:
    """Yield the examples of a file, plain or compressed by gzip; a feature of one value is that value."""
    with file.open() as stream:
        is_compressed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        source: Any = gzip.GzipFile(fileobj=stream) if is_compressed else stream
        while header := source.read(12):
            try:
                length = struct.unpack("<QI", header)[0]
                content = source.read(length + 4)
                if len(content) < length + 4:
                    raise ValueError("the last record is cut off")
                yield _example(content[:-4])
            except (ValueError, IndexError, KeyError, struct.error) as exc:
                raise CorruptFileError(f"{file} is not a TFRecord file of tf.train.Example: {exc}") from exc


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

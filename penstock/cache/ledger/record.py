"""The layout of a record in a log: an entry of 48 bytes with its own checksum, then the value, padded to 8 bytes.

An entry contains its own position as its third word. So one comparison of arrays finds all entries after a damaged
part. The index of a log is a copy of its entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Entries: TypeAlias = np.ndarray[Any, np.dtype[np.void]]  # of ENTRY

ENTRY = np.dtype(
    [
        ("key0", "<u8"),
        ("key1", "<u8"),
        ("offset", "<u8"),  # of the value, in the log
        ("length", "<u4"),  # of the value as stored
        ("crc", "<u4"),  # of the value as stored, starting from its codec
        ("written", "<u4"),  # seconds since 1970
        ("codec", "<u4"),
        ("check", "<u8"),  # checksum of the fields above
    ]
)
ENTRY_NBYTES = ENTRY.itemsize
_FIELDS = struct.Struct("<16sQIIII")  # of an entry, without its check
_ENTRY = struct.Struct("<16sQIIIIQ")
_WORDS = struct.Struct("<5Q")
_GUARDS = struct.Struct("<16s12xI4xI")  # of an entry: key, crc, codec
MAX_VALUE_NBYTES = 2**31
PLAIN, ZSTD = 0, 1  # codecs; zstd halves the disk space of text, at 5 us a kilobyte
_COMPRESS_FROM_NBYTES = 2048
_ALIGNMENT = 8
_PADDING = [b"\0" * (-length % _ALIGNMENT) for length in range(_ALIGNMENT)]
_SEED, _PRIME = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD)


def checks(entries: Entries) -> npt.NDArray[np.uint64]:
    """Return the checksums of entries; the checksum of an entry of zeros is not 0."""
    words = np.ascontiguousarray(entries).view("<u8").reshape(-1, ENTRY_NBYTES // 8)
    mixed = np.full(len(entries), _SEED)
    for column in range(words.shape[1] - 1):
        mixed = (mixed ^ words[:, column]) * _PRIME
        mixed ^= mixed >> np.uint64(32)
    return mixed


def ends(entries: Entries) -> npt.NDArray[np.int64]:
    """Return the end of each record, padding included."""
    length = entries["length"].astype(np.int64)
    end: npt.NDArray[np.int64] = entries["offset"].astype(np.int64) + length + -length % _ALIGNMENT
    return end


def keys_of(entries: Entries) -> list[bytes]:
    raw = np.ascontiguousarray(entries).tobytes()
    return [raw[at : at + 16] for at in range(0, len(raw), ENTRY_NBYTES)]


def good(entries: Entries, log_nbytes: int) -> npt.NDArray[np.bool_]:
    """Return for each entry whether it is valid and its record lies in the log."""
    are_good: npt.NDArray[np.bool_] = (entries["check"] == checks(entries)) & (ends(entries) <= log_nbytes)
    return are_good


def record_of(key: bytes, value: bytes, start: int, now_s: int) -> tuple[bytes, bytes]:
    """Return the entry of a value and its whole record, to be written at ``start``."""
    stored, codec = _compressed(value)
    fields = key, start + ENTRY_NBYTES, len(stored), crc32(stored, codec), now_s, codec
    mixed = int(_SEED)
    for word in _WORDS.unpack(_FIELDS.pack(*fields)):
        mixed = (mixed ^ word) * int(_PRIME) % 2**64
        mixed ^= mixed >> 32
    entry = _ENTRY.pack(*fields, mixed)
    return entry, entry + stored + _PADDING[len(stored) % _ALIGNMENT]


def decoded_all(buffer: bytes, records: Sequence[tuple[bytes, int, int]], base: int) -> list[bytes | None]:
    """Return the values of records, given as key, start and length, from bytes at ``base`` in their log.

    A value is None if its record is damaged. One call decodes them all, because a call costs as much as checking a
    value.
    """
    values: list[bytes | None] = []
    guards, nbytes = _GUARDS.unpack_from, len(buffer)
    for key, start, length in records:
        begin = start - base + ENTRY_NBYTES
        end = begin + length
        if end <= nbytes:
            own_key, crc, codec = guards(buffer, begin - ENTRY_NBYTES)
            stored = buffer[begin:end]
            if own_key == key and crc == crc32(stored, codec):
                values.append(_restored(stored) if codec else stored)
                continue
        values.append(None)
    return values


def _compressed(value: bytes) -> tuple[bytes, int]:
    """Return a value as it is stored, and its codec. The length stands before a compressed value."""
    if len(value) >= _COMPRESS_FROM_NBYTES:
        stored: bytes = len(value).to_bytes(4, "little") + pa.compress(value, "zstd", asbytes=True)
        if len(stored) < len(value) * 7 // 8:
            return stored, ZSTD
    return value, PLAIN


def _restored(stored: bytes) -> bytes:
    value: bytes = pa.decompress(stored[4:], int.from_bytes(stored[:4], "little"), "zstd", asbytes=True)
    return value


def find_entries(buffer: bytes, start: int) -> Entries:
    """Return the valid entries in bytes at ``start`` (a multiple of 8) in a log.

    An entry whose end is not in ``buffer`` is not found.
    """
    words = np.frombuffer(buffer, "<u8", count=len(buffer) // 8)
    if len(words) < ENTRY_NBYTES // 8:
        return np.zeros(0, ENTRY)
    # The offset of an entry at word i is its third word, i + 2, and equals the end of the entry: word i + 6.
    own = np.arange(len(words), dtype=np.uint64) * np.uint64(8) + np.uint64(start + 4 * 8)
    first = np.flatnonzero(words == own) - 2
    first = first[(first >= 0) & (first <= len(words) - ENTRY_NBYTES // 8)]
    found = words[first[:, None] + np.arange(ENTRY_NBYTES // 8)].reshape(-1).view(ENTRY)
    entries: Entries = found[found["check"] == checks(found)]
    return entries


def not_inside_another(entries: Entries) -> Iterator[int]:
    """Yield the numbers of entries that do not lie in the value of an earlier entry: a value may contain bytes that
    look like one.
    """
    end = 0
    for position, (begin, after) in enumerate(
        zip((entries["offset"] - np.uint64(ENTRY_NBYTES)).tolist(), ends(entries).tolist(), strict=True)
    ):
        if begin >= end:
            yield position
            end = after

"""How finished calls lie in a file: an entry of 48 bytes that describes and guards itself, then the value, padded to 8.

An entry says where its value is, so an entry is recognised wherever one starts to read: its third word is its own
position. That is how records are found again behind damage, with one comparison of arrays. The index of a log is a copy
of its entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from penstock.cache.ledger.compression import COMPRESS_FROM_NBYTES, PLAIN, compressed, restored

Entries: TypeAlias = np.ndarray[Any, np.dtype[np.void]]  # of ENTRY

ENTRY = np.dtype(
    [
        ("key0", "<u8"),
        ("key1", "<u8"),
        ("offset", "<u8"),  # of the value, in the log
        ("length", "<u4"),  # of the value as stored
        ("crc", "<u4"),  # of the value as stored, begun with its codec
        ("written", "<u4"),  # seconds since 1970
        ("codec", "<u4"),  # how it is stored: see compression.py
        ("check", "<u8"),  # of all of the above
    ]
)
ENTRY_NBYTES = ENTRY.itemsize
_OPAQUE = np.dtype((np.void, ENTRY_NBYTES))
_GUARDS = struct.Struct("<16s12xI4xI")  # of an entry: key, crc, codec
MAX_VALUE_NBYTES = 2**31
_ALIGNMENT = 8
_PADDING = [b"\0" * (-length % _ALIGNMENT) for length in range(_ALIGNMENT)]
_SEED, _PRIME = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD)


def checks(entries: Entries) -> npt.NDArray[np.uint64]:
    """Return what the ``check`` of each entry must be; never 0 for an entry of zeros."""
    words = np.ascontiguousarray(entries).view("<u8").reshape(-1, ENTRY_NBYTES // 8)
    mixed = np.full(len(entries), _SEED)
    for column in range(words.shape[1] - 1):
        mixed = (mixed ^ words[:, column]) * _PRIME
        mixed ^= mixed >> np.uint64(32)
    return mixed


def ends(entries: Entries) -> npt.NDArray[np.int64]:
    """Return where each record ends, its padding included."""
    length = entries["length"].astype(np.int64)
    end: npt.NDArray[np.int64] = entries["offset"].astype(np.int64) + length + -length % _ALIGNMENT
    return end


def keys_of(entries: Entries) -> list[bytes]:
    """Return the key of each entry."""
    raw = np.ascontiguousarray(entries).tobytes()
    return [raw[at : at + 16] for at in range(0, len(raw), ENTRY_NBYTES)]


def good(entries: Entries, log_nbytes: int) -> npt.NDArray[np.bool_]:
    """Say of each entry whether it is as it was written, and its record lies in the log."""
    are_good: npt.NDArray[np.bool_] = (entries["check"] == checks(entries)) & (ends(entries) <= log_nbytes)
    return are_good


def packed(items: Mapping[bytes, bytes], start: int, now_s: int) -> tuple[Entries, bytes]:
    """Return entries for the values of keys, and the bytes that hold all of it, to be written at ``start``.

    Python's other threads stand still meanwhile, so there is little of it for each value.
    """
    values: Sequence[bytes] = list(items.values())
    codecs: Sequence[int] = (PLAIN,) * len(values)
    if max(map(len, values)) >= COMPRESS_FROM_NBYTES:
        values, codecs = zip(*map(compressed, values), strict=True)
    entries = np.empty(len(values), ENTRY)
    words = entries.view("<u8").reshape(-1, ENTRY_NBYTES // 8)
    words[:, :2] = np.frombuffer(b"".join(items), "<u8").reshape(-1, 2)
    entries["length"] = np.fromiter(map(len, values), np.uint32, len(values))
    entries["crc"] = np.fromiter(map(crc32, values, codecs), np.uint32, len(values))
    entries["codec"] = codecs
    entries["written"] = now_s
    return laid_out(entries, values, start)


def laid_out(entries: Entries, values: Sequence[bytes], start: int) -> tuple[Entries, bytes]:
    """Place records one after the other from ``start`` on; return their entries, and the bytes that hold all of it."""
    length = entries["length"].astype(np.int64)
    sizes = ENTRY_NBYTES + length + -length % _ALIGNMENT
    entries["offset"] = start + np.cumsum(sizes) - sizes + ENTRY_NBYTES
    entries["check"] = checks(entries)
    parts: list[bytes] = [b""] * (3 * len(entries))
    parts[::3] = entries.view(_OPAQUE).tolist()
    parts[1::3] = values
    parts[2::3] = map(_PADDING.__getitem__, (length % _ALIGNMENT).tolist())
    return entries, b"".join(parts)


def decoded_all(buffer: bytes, records: Sequence[tuple[bytes, int, int]], base: int) -> list[bytes | None]:
    """Return the values of records from what lies at ``base`` in their log: given key, where one begins, its length.

    None for one that is not what was written for the key. One function for all, as a call takes as long as a check.
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
                values.append(restored(stored, codec) if codec else stored)
                continue
        values.append(None)
    return values


def find_entries(buffer: bytes, start: int) -> Entries:
    """Return the entries in bytes that lie at ``start`` (a multiple of 8) in a log; what is no entry is passed over.

    An entry of which the end is not in ``buffer`` is not found.
    """
    words = np.frombuffer(buffer, "<u8", count=len(buffer) // 8)
    if len(words) < ENTRY_NBYTES // 8:
        return np.zeros(0, ENTRY)
    # The word "offset" of an entry at word i is the third one, i + 2, and says where the entry ends: at word i + 6.
    own = np.arange(len(words), dtype=np.uint64) * np.uint64(8) + np.uint64(start + 4 * 8)
    first = np.flatnonzero(words == own) - 2
    first = first[(first >= 0) & (first <= len(words) - ENTRY_NBYTES // 8)]
    found = words[first[:, None] + np.arange(ENTRY_NBYTES // 8)].reshape(-1).view(ENTRY)
    entries: Entries = found[found["check"] == checks(found)]
    return entries


def not_inside_another(entries: Entries) -> Iterator[int]:
    """Yield the positions of entries that do not lie in the value of one before: values may hold anything."""
    end = 0
    for position, (begin, after) in enumerate(
        zip((entries["offset"] - np.uint64(ENTRY_NBYTES)).tolist(), ends(entries).tolist(), strict=True)
    ):
        if begin >= end:
            yield position
            end = after

"""Files that end before they should, by what their container says of itself.

The libraries that decode them take the end of the file for the end of the sound or the video, and say nothing.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

from penstock.errors import CorruptFileError
from penstock.storage.ranges import RangeFile

_MISCOUNTED = 44  # some programs count a WAV file's header as sound
_OGG_PAGE = 27 + 255 + 255 * 255  # bytes of the largest
_BOXES = (b"mdat", b"moov", b"moof")  # of an MP4 file: what follows others may be no box at all
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def check_not_cut(stream: BinaryIO, name: str) -> None:
    """Raise an error for a file that tells that its end is missing."""
    missing = missing_nbytes(stream)
    if missing:
        raise CorruptFileError(f"{name} is cut short: at least {missing} bytes are missing at its end. Fetch it again.")


def missing_nbytes(stream: BinaryIO) -> int:
    """Return how many bytes are missing at the end of a file; 0 for one that is whole, or that does not tell.

    WAV, AIFF, AU, AVI, Ogg, MP4 and Matroska files tell, unless they were written as a stream, without going back to
    fill in their length. The position in the file stays as it is.
    """
    position = stream.tell()
    try:
        size = size_of(stream)
        stream.seek(0)
        end = _claimed_end(stream, stream.read(12), size)
    finally:
        stream.seek(position)
    return max(0, end - size)


def size_of(stream: BinaryIO) -> int:
    """Return the size of an open file; the position in it may change."""
    raw = getattr(stream, "raw", None)
    # To seek the end of a remote file drops what is buffered of it.
    return raw.nbytes if isinstance(raw, RangeFile) else stream.seek(0, io.SEEK_END)


def _claimed_end(stream: BinaryIO, start: bytes, size: int) -> int:
    """Return the position that a file must reach, 0 if it does not say."""
    magic, kind = start[:4], start[8:12]
    if magic in (b"RIFF", b"RF64", b"BW64") and kind == b"WAVE":
        return _end_of_chunk(stream, b"data", "little")
    if magic == b"FORM" and kind in (b"AIFF", b"AIFC"):
        return _end_of_chunk(stream, b"SSND", "big")
    if magic == b"RIFF" and kind == b"AVI ":
        return _if_known(8, int.from_bytes(start[4:8], "little"))
    if magic == b".snd":
        return _if_known(int.from_bytes(start[4:8], "big"), int.from_bytes(start[8:12], "big"))
    others: dict[bytes, Callable[[BinaryIO, int], int]] = {b"OggS": _end_of_ogg, _EBML: _end_of_matroska}
    if start[4:8] == b"ftyp":
        return _end_of_mp4(stream, size)
    return others[magic](stream, size) if magic in others else 0


def _if_known(start: int, length: int) -> int:
    """Return where something ends that begins at ``start``; 0 for a length that programs write that do not know it."""
    is_known = length and not 0x7FFFF000 <= length <= 0x80000000 and not 0xFFFFF000 <= length <= 0xFFFFFFFF
    return max(0, start + length - _MISCOUNTED) if is_known else 0


def _end_of_chunk(stream: BinaryIO, wanted: bytes, order: str) -> int:
    """Return where a chunk of a RIFF or IFF file ends; a large file has its length in a chunk before it."""
    wide = 0
    position = stream.seek(12)
    while len(header := stream.read(8)) == 8:
        name, length = header[:4], int.from_bytes(header[4:], "little" if order == "little" else "big")
        position += 8
        if name == wanted:
            return _if_known(position, wide if wide and length == 0xFFFFFFFF else length)
        if name == b"ds64":
            wide = int.from_bytes(stream.read(16)[8:], "little")
        position = stream.seek(position + length + length % 2)
    return 0


def _end_of_ogg(stream: BinaryIO, size: int) -> int:
    """Return where the last page ends."""
    begins = stream.seek(max(0, size - _OGG_PAGE))
    tail = stream.read(_OGG_PAGE)
    found = tail.rfind(b"OggS\0")
    if found < 0 or len(tail) < found + 27:
        return 0
    lengths = tail[found + 27 :][: tail[found + 26]]
    return begins + found + 27 + tail[found + 26] + sum(lengths)


def _end_of_mp4(stream: BinaryIO, size: int) -> int:
    """Return how far the boxes reach that hold the pictures and what is known of them."""
    position = end = 0
    while position + 16 <= size:
        stream.seek(position)
        header = stream.read(16)
        length = int.from_bytes(header[:4], "big")
        if length == 1:
            length = int.from_bytes(header[8:], "big")
        if length < 8:  # 0: all that follows
            break
        position += length
        end = position if header[4:8] in _BOXES else end
    return end


def _end_of_matroska(stream: BinaryIO, size: int) -> int:
    """Return where the segment ends, which is all but a header."""
    stream.seek(len(_EBML))
    header = stream.read(8)
    length, width = _vint(header)
    start = len(_EBML) + width + (length or 0)
    stream.seek(start)
    found = stream.read(12)
    if not found.startswith(_SEGMENT):
        return 0
    length, width = _vint(found[4:])
    return 0 if length is None else start + 4 + width + length


def _vint(data: bytes) -> tuple[int | None, int]:
    """Return a number of Matroska's, None where all its bits are set, which means unknown, and how many bytes it takes.

    >>> _vint(b"\\x82..."), _vint(b"\\x40\\x02"), _vint(b"\\xff")
    ((2, 1), (2, 2), (None, 1))
    """
    width = 9 - data[0].bit_length() if data and data[0] else 8
    number, unknown = int.from_bytes(data[:width], "big"), (1 << 7 * width) - 1
    return (None if number & unknown == unknown else number & unknown), width

"""The EXIF orientation of images."""

from __future__ import annotations

import struct

from penstock.types.arrays import NDArray

TAG = 0x0112


def jpeg_orientation(data: memoryview) -> int:
    """Return the orientation of a JPEG, 1 to 8; 1 (upright) if it is missing or invalid.

    This reads the segments before the pixels in a microsecond; the EXIF reader of a decoder takes fifty.
    """
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xDA:  # the pixels
            break
        if marker == 0xFF or 0xD0 <= marker <= 0xD9:  # padding, and markers without content
            position += 1 if marker == 0xFF else 2
            continue
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        content = data[position + 4 : position + 2 + max(length, 2)]
        if marker == 0xE1 and bytes(content[:6]) == b"Exif\0\0":
            return _tiff_orientation(content[6:])
        position += 2 + max(length, 2)
    return 1


def png_exif(data: memoryview) -> bytes | None:
    """Return the EXIF of a PNG, which may come after the pixels. Decompresses nothing."""
    position = 8
    while position + 8 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        if bytes(data[position + 4 : position + 8]) == b"eXIf":
            return bytes(data[position + 8 : position + 8 + length])
        position += 12 + length
    return None


def _tiff_orientation(tiff: memoryview) -> int:
    """Return the orientation in the first directory of EXIF, a TIFF structure."""
    order = {b"II": "<", b"MM": ">"}.get(bytes(tiff[:2]))
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", tiff, 4)
        (num_entries,) = struct.unpack_from(f"{order}H", tiff, start)
        for entry in range(min(num_entries, 512)):
            tag, kind, count, value = struct.unpack_from(f"{order}HHIH", tiff, start + 2 + 12 * entry)
            if tag == TAG:
                return value if (kind, count) == (3, 1) and 1 <= value <= 8 else 1
    except struct.error:  # truncated, or an invalid offset
        pass
    return 1


def is_sideways(orientation: int) -> bool:
    """Return whether turning the image upright swaps height and width."""
    return orientation >= 5


def upright(pixels: NDArray, orientation: int) -> NDArray:
    """Return a view of the pixels, rotated and mirrored by the orientation."""
    if is_sideways(orientation):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels

"""The size of a JPEG, read in Python.

libjpeg-turbo would release the GIL for the few microseconds that this takes. If other threads take it meanwhile, a
thread waits to be woken again, far longer than its work takes: on 16 cores, decoding threads waited half of the time.
"""

from __future__ import annotations

import struct

_SEGMENT = struct.Struct(">BBH")  # 0xFF, the kind, the length without the first two bytes
_FRAME = struct.Struct(">BHHB")  # bits of a sample, height, width, channels
START = b"\xff\xd8\xff"
FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
SKIPPED = frozenset(
    (0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0))
)  # tables, restart interval, comments, application data


def plain_frame(data: memoryview) -> tuple[int, int, int] | None:
    """Return height, width and channels (1 or 3) of a JPEG; None for other images and unusual JPEG."""
    if data[:3] != START:
        return None
    at = 2
    try:
        while True:
            start, kind, length = _SEGMENT.unpack_from(data, at)
            if start != 0xFF or length < 2:
                return None
            if kind in FRAMES:
                bits, height, width, channels = _FRAME.unpack_from(data, at + 4)
                is_plain = bits == 8 and height and width and channels in (1, 3)
                return (height, width, channels) if is_plain else None
            if kind not in SKIPPED:
                return None
            at += 2 + length
    except struct.error:  # the data ends
        return None

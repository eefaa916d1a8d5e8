"""The EXIF orientation of images."""

from __future__ import annotations

from typing import Any

from penstock.media.images.packages import pillow
from penstock.types.ndarrays import NDArray

TAG = 0x0112
EXIF_STARTS_BEFORE = 1024  # EXIF is the first segment of a JPEG, or follows the JFIF segment
MAX_EXIF_NBYTES = 2**16


def jpeg_orientation(data: memoryview) -> int:
    """Return the orientation of a JPEG."""
    start = bytes(data[:EXIF_STARTS_BEFORE]).find(b"Exif\0\0")
    if start < 0:
        return 1
    exif = pillow().Exif()
    try:
        exif.load(bytes(data[start : start + MAX_EXIF_NBYTES]))
    except Exception:  # invalid EXIF does not make the image invalid
        return 1
    return orientation_in(exif)


def orientation_in(exif: Any) -> int:
    """Return the orientation, 1 to 8, that EXIF states; 1 (upright) if it is missing or invalid."""
    try:
        noted = exif.get(TAG, 1)
    except Exception:  # of a tag that cannot be decoded
        return 1
    return noted if isinstance(noted, int) and 1 <= noted <= 8 else 1


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

"""Encode pixels as image files."""

from __future__ import annotations

import io

import numpy as np

from penstock.errors import check_choice
from penstock.media.images.packages import pillow, simplejpeg
from penstock.types.ndarrays import NDArray

ENCODINGS = {"png": "PNG", "jpeg": "JPEG", "jpg": "JPEG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF"}
WITH_QUALITY = ("JPEG", "WEBP")
DEFAULT_QUALITY = 90
_JPEG_COLOURS = {1: "GRAY", 3: "RGB"}


def encoding_of(name: str, what: str) -> str:
    """Return the format of a name or a file ending."""
    known = str(name).lower().lstrip(".")
    check_choice(what, known, ENCODINGS)
    return ENCODINGS[known]


def holds(encoding: str, channels: int) -> bool:
    """Return whether a format can hold this number of channels; JPEG and BMP have no transparency."""
    return channels in (1, 3) or encoding not in ("JPEG", "BMP")


def over_white(pixels: NDArray) -> NDArray:
    """Blend an image with alpha, its last channel, over white."""
    colours, alpha = pixels[:, :, :-1].astype(np.uint16), pixels[:, :, -1:].astype(np.uint16)
    blended: NDArray = ((colours * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return blended


def encoded(pixels: NDArray, encoding: str, quality: int) -> bytes:
    """Return an image as the bytes of a file; ``quality``, 1 to 100, applies to JPEG and WebP.

    If the format has no transparency, the image is blended over white.
    """
    pixels = pixels if holds(encoding, pixels.shape[2]) else over_white(pixels)
    channels = pixels.shape[2]
    if encoding == "JPEG":
        data: bytes = simplejpeg().encode_jpeg(
            np.ascontiguousarray(pixels), quality, _JPEG_COLOURS[channels], "Gray" if channels == 1 else "420"
        )
        return data
    image = pillow().fromarray(np.ascontiguousarray(pixels[:, :, 0] if channels == 1 else pixels))
    file = io.BytesIO()
    image.save(file, encoding, **({"quality": quality} if encoding in WITH_QUALITY else {}))
    return file.getvalue()

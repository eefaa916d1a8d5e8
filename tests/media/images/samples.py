"""Small images, made here, and their bytes in every format."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

Pixels = np.ndarray[Any, Any]


def picture(height: int = 48, width: int = 64, channels: int = 3) -> Pixels:
    """Return a smooth picture without symmetry, of which JPEG keeps nearly everything."""
    rows, columns = np.mgrid[0:height, 0:width]
    planes = [255 * columns // width, 255 * rows // height, (255 * (rows + columns) // (rows + columns).max())]
    grey = (np.asarray(planes[0]) + np.asarray(planes[1])) // 2
    chosen = {1: [grey], 2: [grey, planes[2]], 3: planes, 4: [*planes, 255 - planes[0]]}[channels]
    return np.stack(chosen, axis=2).astype(np.uint8)


def as_pil(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def encoded(image: Image.Image | Pixels, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    (as_pil(image) if isinstance(image, np.ndarray) else image).save(file, format, **options)
    return file.getvalue()


def jpeg(pixels: Pixels, **options: Any) -> bytes:
    return encoded(pixels, "JPEG", quality=95, subsampling=0, **options)


def oriented(pixels: Pixels, orientation: int, format: str) -> bytes:
    """Return an image with a note, in EXIF, of how it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95, "subsampling": 0} if format == "JPEG" else {"lossless": True} if format == "WEBP" else {}
    return encoded(pixels, format, exif=exif, **options)


def png_claiming(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header claims a size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def jpeg_claiming(width: int, height: int) -> bytes:
    """Return a JPEG whose header claims a size."""
    data = bytearray(jpeg(picture()))
    start = data.index(b"\xff\xc0")
    data[start + 5 : start + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def difference(left: Pixels, right: Pixels) -> float:
    """Return by how many shades two images differ, on average."""
    assert left.shape == right.shape
    return float(np.abs(left.astype(int) - right.astype(int)).mean())

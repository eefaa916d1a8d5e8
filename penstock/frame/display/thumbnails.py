"""Images as thumbnails inside a page, without files or requests."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from penstock.errors import MissingExtraError
from penstock.media.images.encode import encoded, holds
from penstock.media.images.pixels import resize_into

MAX_SIDE = 100  # pixels
MIN_SIDE = 32  # smaller images are enlarged, with visible pixels
QUALITY = 85


def thumbnail_html(pixels: np.ndarray[Any, Any], title: str) -> str | None:
    """Return an ``<img>`` with embedded data, None if the image packages are not installed. ``title`` is HTML."""
    try:
        small = _scaled_down(pixels)
        is_photo = max(small.shape[:2]) > MIN_SIDE and holds("JPEG", small.shape[2])
        encoding = "JPEG" if is_photo else "PNG"
        content = base64.b64encode(encoded(small, encoding, QUALITY)).decode()
    except MissingExtraError:
        return None
    height, width = small.shape[:2]
    factor = max(1, MIN_SIDE // max(height, width))
    look = "display:block;max-width:none;margin:0;border-radius:3px" + ";image-rendering:pixelated" * (factor > 1)
    return (
        f'<img src="data:image/{encoding.lower()};base64,{content}" width="{factor * width}" '
        f'height="{factor * height}" alt="{title}" title="{title}" style="{look}">'
    )


def _scaled_down(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    height, width, channels = pixels.shape
    scale = MAX_SIDE / max(height, width)
    if scale >= 1:
        return pixels
    small = np.empty((max(1, round(height * scale)), max(1, round(width * scale)), channels), np.uint8)
    resize_into(pixels, small)
    return small

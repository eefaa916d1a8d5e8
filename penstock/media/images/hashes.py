"""Perceptual hashes: images that look alike have hashes that differ in few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.media.images.packages import opencv
from penstock.media.images.pixels import converted, resize_into
from penstock.types.ndarrays import NDArray

METHODS = ("phash", "dhash", "ahash")
_DCT_FACTOR = 4  # size of the scaled image relative to the hash, which has its low frequencies


def image_hash(pixels: NDArray, method: str, hash_size: int) -> bytes:
    """Return ``hash_size`` squared bits as bytes, the first bit highest."""
    grey = converted(converted(pixels, 1 if pixels.shape[2] < 3 else 3), 1)
    return np.packbits(_bits(grey, method, hash_size)).tobytes()


def _bits(grey: NDArray, method: str, size: int) -> NDArray:
    values, level = _compared(grey, method, size)
    bits: NDArray = values > level
    return bits


def _compared(grey: NDArray, method: str, size: int) -> tuple[NDArray, Any]:
    """Return the values that make the bits, and the thresholds that they are compared with."""
    match method:
        case "dhash":
            small = _scaled(grey, size, size + 1)
            return small[:, 1:], small[:, :-1]
        case "phash":
            low = opencv().dct(_scaled(grey, _DCT_FACTOR * size, _DCT_FACTOR * size))[:size, :size]
            return low, np.median(low)
        case _:
            small = _scaled(grey, size, size)
            return small, small.mean()


def _scaled(grey: NDArray, height: int, width: int) -> NDArray:
    out = np.empty((height, width, 1), np.uint8)
    resize_into(grey, out)
    return out[:, :, 0].astype(np.float32)

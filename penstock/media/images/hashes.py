"""Perceptual hashes: images that look alike have hashes that differ in few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.media.images.packages import opencv, pillow
from penstock.media.images.pixels import converted, resize_into
from penstock.types.arrays import NDArray

METHODS = ("phash", "phash_simple", "dhash", "dhash_vertical", "ahash", "whash", "crop_resistant", "colorhash")
_DCT_FACTOR = 4  # size of the scaled image relative to the hash, which has its low frequencies


def image_hash(pixels: NDArray, method: str, hash_size: int, segments: int, binbits: int = 3) -> bytes:
    """Return ``hash_size`` squared bits as bytes, the first bit highest; ``crop_resistant`` has as many per segment."""
    if method == "colorhash":
        return _colour_hash(converted(pixels, 3), binbits)
    grey = converted(converted(pixels, 1 if pixels.shape[2] < 3 else 3), 1)
    if method != "crop_resistant":
        return np.packbits(_bits(grey, method, hash_size)).tobytes()
    rows, columns = (np.linspace(0, length, segments + 1).astype(int) for length in grey.shape[:2])
    tiles = [
        grey[top : max(bottom, top + 1), left : max(right, left + 1)]
        for top, bottom in zip(np.minimum(rows[:-1], grey.shape[0] - 1), rows[1:], strict=True)
        for left, right in zip(np.minimum(columns[:-1], grey.shape[1] - 1), columns[1:], strict=True)
    ]
    return np.packbits(np.concatenate([_bits(tile, "dhash", hash_size).ravel() for tile in tiles])).tobytes()


def num_hash_bytes(method: str, hash_size: int, segments: int, binbits: int = 3) -> int:
    """Return the length of the hashes.

    >>> num_hash_bytes("phash", 8, 3), num_hash_bytes("colorhash", 8, 3)
    (8, 6)
    """
    if method == "colorhash":
        return -(-14 * binbits // 8)
    return -(-(hash_size**2) * (segments**2 if method == "crop_resistant" else 1) // 8)


def _colour_hash(pixels: NDArray, binbits: int) -> bytes:
    """Return the shares of black, grey, and six hues of faint and of bright colours, with ``binbits`` bits each."""
    image = pillow().fromarray(pixels)
    hue, saturation, _ = np.asarray(image.convert("HSV")).reshape(-1, 3).T
    is_black = np.asarray(image.convert("L")).ravel() < 256 // 8
    is_grey = ~is_black & (saturation < 256 // 3)
    is_colour = ~is_black & ~is_grey
    bounds = (is_colour & (saturation < 256 * 2 // 3), is_colour & (saturation > 256 * 2 // 3))
    hues = [np.histogram(hue[chosen], np.linspace(0, 255, 7))[0] for chosen in bounds]
    shares = [is_black.mean(), is_grey.mean(), *np.concatenate(hues) / max(1, is_colour.sum())]
    levels = np.minimum(2**binbits - 1, (np.array(shares) * 2**binbits).astype(np.int64))
    bits = (levels[:, None] >> np.arange(binbits)[::-1]) & 1
    return np.packbits(bits.astype(bool).ravel()).tobytes()


def _bits(grey: NDArray, method: str, size: int) -> NDArray:
    values, level = _compared(grey, method, size)
    bits: NDArray = values > level
    return bits


def _compared(grey: NDArray, method: str, size: int) -> tuple[NDArray, Any]:
    """Return values of an image, and the values to compare them with."""
    match method:
        case "dhash":
            small = _scaled(grey, size, size + 1)
            return small[:, 1:], small[:, :-1]
        case "dhash_vertical":
            small = _scaled(grey, size + 1, size)
            return small[1:], small[:-1]
        case "phash":
            low = opencv().dct(_scaled(grey, _DCT_FACTOR * size, _DCT_FACTOR * size))[:size, :size]
            return low, np.median(low)
        case "phash_simple":
            fine = _scaled(grey, _DCT_FACTOR * size, _DCT_FACTOR * size)
            low = opencv().dct(fine, flags=opencv().DCT_ROWS)[:size, 1 : size + 1]
            return low, low.mean()
        case "whash":
            low = _haar_low(_scaled(grey, _DCT_FACTOR * size, _DCT_FACTOR * size), size)
            return low, np.median(low)
        case _:
            small = _scaled(grey, size, size)
            return small, small.mean()


def _scaled(grey: NDArray, height: int, width: int) -> NDArray:
    out = np.empty((height, width, 1), np.uint8)
    resize_into(grey, out)
    return out[:, :, 0].astype(np.float32)


def _haar_low(values: NDArray, size: int) -> NDArray:
    """Return the low band of a Haar wavelet transform, of ``size``."""
    low: NDArray = values
    while len(low) > size:
        low = low.reshape(len(low) // 2, 2, -1, 2).mean(axis=(1, 3))
    return low

"""Resize, crop and convert pixels."""

from __future__ import annotations

import numpy as np

from penstock.media.images.packages import opencv
from penstock.types.ndarrays import NDArray


def resize_into(pixels: NDArray, out: NDArray, is_smooth: bool = False) -> None:
    """Write ``pixels`` into ``out``, scaled to its size.

    A side that shrinks is averaged (INTER_AREA), without blur or jagged edges; a side that grows is interpolated
    (INTER_LINEAR). ``is_smooth`` means that a filter already scaled the image down: then shrinking to no less than half
    is interpolated too, which is several times faster and skips no pixel.
    """
    cv2 = opencv()
    wanted, given = out.shape[:2], pixels.shape[:2]
    if given == wanted:
        out[:] = pixels
        return
    is_small_step = 2 * wanted[0] >= given[0] and 2 * wanted[1] >= given[1]
    shrunk = (min(wanted[0], given[0]), min(wanted[1], given[1]))
    if (is_smooth and is_small_step) or shrunk == given:
        _scale(pixels, out, cv2.INTER_LINEAR)
    elif shrunk == wanted:
        _scale(pixels, out, cv2.INTER_AREA)
    else:  # one side shrinks, the other grows
        between = np.empty((*shrunk, pixels.shape[2]), np.uint8)
        _scale(pixels, between, cv2.INTER_AREA)
        _scale(between, out, cv2.INTER_LINEAR)


def _scale(pixels: NDArray, out: NDArray, interpolation: int) -> None:
    height, width, channels = out.shape
    # OpenCV takes one channel as a matrix, and writes in place only into arrays that it need not convert.
    target = out[:, :, 0] if channels == 1 else out
    source = np.ascontiguousarray(pixels[:, :, 0] if channels == 1 else pixels)
    given = opencv().resize(source, (width, height), dst=target, interpolation=interpolation)
    if given is not target and not np.may_share_memory(given, target):
        target[...] = given


def cropped(pixels: NDArray, box: tuple[int, int, int, int]) -> NDArray:
    """Return a view of the part of an image in ``box`` (x, y, width, height); empty if it is outside."""
    x, y, width, height = box
    return pixels[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)]


def converted(pixels: NDArray, channels: int) -> NDArray:
    """Return an image with other channels: grey by ITU-R 601, alpha removed, or added as opaque."""
    if pixels.shape[2] == channels:
        return pixels
    cv2 = opencv()
    num_colours, wanted = (1 if count < 3 else 3 for count in (pixels.shape[2], channels))
    colours = np.ascontiguousarray(pixels[:, :, :num_colours])
    if num_colours > wanted:
        colours = cv2.cvtColor(colours, cv2.COLOR_RGB2GRAY)[:, :, np.newaxis]
    elif num_colours < wanted:
        colours = np.repeat(colours, 3, axis=2)
    if wanted == channels:
        return colours
    has_alpha = pixels.shape[2] in (2, 4)
    alpha = pixels[:, :, -1:] if has_alpha else np.full((*pixels.shape[:2], 1), 255, np.uint8)
    return np.concatenate([colours, alpha], axis=2)

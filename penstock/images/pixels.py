"""Pixels to pixels: resize, crop, change the mode."""

from __future__ import annotations

import numpy as np

from penstock.images.packages import opencv
from penstock.types.arrays import NDArray


def resize_into(pixels: NDArray, out: NDArray, is_smooth: bool = False) -> None:
    """Write ``pixels`` into ``out``, scaled to its size.

    A side that shrinks is averaged over the pixels that fall together (INTER_AREA), which neither blurs nor leaves
    jagged edges; one that grows is interpolated (INTER_LINEAR). ``is_smooth`` says that the image was scaled down by a
    filter before: then less than a half more is interpolated too, which is several times faster and skips no pixel.
    """
    cv2 = opencv()
    height, width = out.shape[:2]
    if pixels.shape[:2] == (height, width):
        out[:] = pixels
        return
    shrunk = (min(height, pixels.shape[0]), min(width, pixels.shape[1]))
    is_small_step = 2 * shrunk[0] >= pixels.shape[0] and 2 * shrunk[1] >= pixels.shape[1]
    if is_smooth and is_small_step:
        _scale(cv2, pixels, out, cv2.INTER_LINEAR)
    elif shrunk == (height, width):
        _scale(cv2, pixels, out, cv2.INTER_AREA)
    elif shrunk == pixels.shape[:2]:
        _scale(cv2, pixels, out, cv2.INTER_LINEAR)
    else:  # one side shrinks, the other grows
        between = np.empty((*shrunk, pixels.shape[2]), np.uint8)
        _scale(cv2, pixels, between, cv2.INTER_AREA)
        _scale(cv2, between, out, cv2.INTER_LINEAR)


def _scale(cv2: object, pixels: NDArray, out: NDArray, interpolation: int) -> None:
    height, width, channels = out.shape
    # OpenCV takes one channel as a matrix, and writes in place only into what it takes as it is.
    target = out[:, :, 0] if channels == 1 else out
    source = np.ascontiguousarray(pixels[:, :, 0] if channels == 1 else pixels)
    given = cv2.resize(source, (width, height), dst=target, interpolation=interpolation)  # type: ignore[attr-defined]
    if given is not target and not np.shares_memory(given, target):
        target[...] = given


def cropped(pixels: NDArray, box: tuple[int, int, int, int]) -> NDArray:
    """Return the part of an image in ``box`` (x, y, width, height), as far as the image goes; a view, perhaps empty."""
    x, y, width, height = box
    return pixels[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)]


def converted(pixels: NDArray, channels: int) -> NDArray:
    """Return an image with so many channels: colour to grey by ITU-R 601, alpha dropped, or added as opaque."""
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

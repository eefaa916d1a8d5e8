"""Resize, crop and convert pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.media.images.packages import opencv
from penstock.types.arrays import NDArray


def resize_into(
    pixels: NDArray, out: NDArray, is_smooth: bool = False, covered: tuple[float, float] | None = None
) -> None:
    """Write ``pixels`` into ``out``, scaled to its size.

    A side that shrinks is averaged (INTER_AREA), without blur or jagged edges; a side that grows is interpolated
    (INTER_LINEAR). ``is_smooth`` means that a filter already scaled the image down: then shrinking to no less than half
    is interpolated too, which is several times faster and skips no pixel.

    ``covered`` is the height and width of the image in ``pixels``, if the last row and column are partly outside it.
    """
    cv2 = opencv()
    wanted, given = out.shape[:2], pixels.shape[:2]
    covered = covered or given
    if covered == given == wanted:
        out[:] = pixels
        return
    grows = [length > cover for length, cover in zip(wanted, covered, strict=True)]
    is_small_step = all(2 * length >= cover for length, cover in zip(wanted, covered, strict=True))
    shrunk = tuple(given[axis] if grows[axis] else wanted[axis] for axis in (0, 1))
    if (is_smooth and is_small_step) or shrunk == given:
        _scale(cv2, pixels, out, cv2.INTER_LINEAR, covered)
    elif not any(grows):
        _scale(cv2, pixels, out, cv2.INTER_AREA, covered)
    else:  # one side shrinks, the other grows
        between = np.empty((*shrunk, pixels.shape[2]), np.uint8)
        height, width = (given[axis] if grows[axis] else covered[axis] for axis in (0, 1))
        _scale(cv2, pixels, between, cv2.INTER_AREA, (height, width))
        height, width = (covered[axis] if grows[axis] else shrunk[axis] for axis in (0, 1))
        _scale(cv2, between, out, cv2.INTER_LINEAR, (height, width))


def _scale(cv2: Any, pixels: NDArray, out: NDArray, interpolation: int, covered: tuple[float, float]) -> None:
    height, width, channels = out.shape
    # OpenCV takes one channel as a matrix, and writes in place only into arrays that it need not convert.
    target = out[:, :, 0] if channels == 1 else out
    source = np.ascontiguousarray(pixels[:, :, 0] if channels == 1 else pixels)
    if covered != pixels.shape[:2]:
        target[...] = _scaled_by(cv2, source, width / covered[1], height / covered[0], interpolation)[:height, :width]
        return
    given = cv2.resize(source, (width, height), dst=target, interpolation=interpolation)
    if given is not target and not np.shares_memory(given, target):
        target[...] = given


def _scaled_by(cv2: Any, pixels: NDArray, by_x: float, by_y: float, interpolation: int) -> NDArray:
    """Return an image scaled by exactly these factors, up to a pixel larger."""
    height, width = pixels.shape[:2]
    if (round(width * by_x), round(height * by_y)) != (width, height):
        scaled: NDArray = cv2.resize(pixels, None, fx=by_x, fy=by_y, interpolation=interpolation)
        return scaled
    # OpenCV would copy. Map the centre of each pixel to its place before instead.
    before = np.array([[1 / by_x, 0, 0.5 / by_x - 0.5], [0, 1 / by_y, 0.5 / by_y - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    moved: NDArray = cv2.warpAffine(pixels, before, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return moved


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

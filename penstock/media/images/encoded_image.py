"""Encoded images: read the header first, decode the pixels later.

The first bytes determine the format, and each format has one decoder. The size is checked before memory is allocated: a
file of a few kilobytes may state an image of gigabytes.
"""

from __future__ import annotations

import io
from typing import Any, Protocol

import numpy as np

from penstock.errors import ComputeError
from penstock.media.images.jpeg_header import plain_frame
from penstock.media.images.orientation import is_sideways, jpeg_orientation, orientation_in, upright
from penstock.media.images.packages import pillow, simplejpeg
from penstock.media.images.pixels import resize_into
from penstock.storage.mime import SNIFF_NBYTES, sniff
from penstock.types.extension import IMAGE_CHANNELS
from penstock.types.ndarrays import NDArray

FORMATS = ("JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF")
_JPEG_COLOURS = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGBA"}  # simplejpeg's names of our modes
SMALL = 32  # pixels; below this blur is visible, so the whole image is decoded
_ALREADY_UPRIGHT = ("GIF", "BMP", "TIFF")  # the first two have no orientation, and Pillow turns the third itself


class EncodedImage(Protocol):
    """An image whose header was read. Height and width are measured upright."""

    height: int
    width: int
    mode: str  # the mode that loses the least

    def resize_into(self, mode: str, out: NDArray, is_scaled: bool) -> None:
        """Decode into an array of another height and width; ``is_scaled`` allows decoding at a reduced size."""

    def read_into(self, mode: str, out: NDArray) -> None:
        """Decode into an array with the shape of the image."""


def open_image(data: memoryview, max_pixels: int) -> EncodedImage:
    """Read the header of an encoded image; raises ComputeError if it is invalid."""
    if (frame := plain_frame(data)) is not None:
        height, width, channels = frame
        _check_size("JPEG", width, height, max_pixels)
        return _JpegImage(data, height, width, "L" if channels == 1 else "RGB")
    mime_type = sniff(bytes(data[:SNIFF_NBYTES]))
    kind = next((each for each in FORMATS if mime_type == f"image/{each.lower()}"), None)
    if kind is None:
        begins = f"begins with {bytes(data[:8])!r}" if len(data) else "is empty"
        raise ComputeError(f"not an image: it {begins}; known are {', '.join(FORMATS)}")
    return _PillowImage(data, kind, max_pixels)


def _check_size(kind: str, width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise ComputeError(
            f"the {kind} states {width} x {height} pixels, more than max_image_pixels={max_pixels}; "
            "if you trust its origin, raise the limit with ps.set_config(max_image_pixels=...)"
        )
    if not width or not height:
        raise ComputeError(f"the {kind} has no pixels: it is {width} x {height}")


def _damaged(kind: str, exc: Exception) -> ComputeError:
    return ComputeError(f"damaged {kind}: {str(exc) or type(exc).__name__}")


class _JpegImage:
    """A JPEG, by libjpeg-turbo."""

    def __init__(self, data: memoryview, height: int, width: int, mode: str) -> None:
        self._data = data
        self._orientation = jpeg_orientation(data)
        self.height, self.width = (width, height) if is_sideways(self._orientation) else (height, width)
        self.mode = mode

    def resize_into(self, mode: str, out: NDArray, is_scaled: bool) -> None:
        own, wanted = (self.height, self.width), out.shape[:2]
        if is_sideways(self._orientation):
            own, wanted = own[::-1], wanted[::-1]
        height, width = wanted if is_scaled and min(wanted) >= SMALL else (0, 0)
        decoded = self._decoded(mode, height, width, None)
        # Rotate after resizing, when the image is small.
        target = out if self._orientation == 1 else np.empty((*wanted, out.shape[2]), np.uint8)
        resize_into(decoded, target, decoded.shape[:2] != own)
        if target is not out:
            out[:] = upright(target, self._orientation)

    def read_into(self, mode: str, out: NDArray) -> None:
        if self._orientation == 1 and mode in _JPEG_COLOURS:
            decoded = self._decoded(mode, 0, 0, out)
            if np.may_share_memory(decoded, out):
                return
        else:
            decoded = upright(self._decoded(mode, 0, 0, None), self._orientation)
        out[:] = decoded

    def _decoded(self, mode: str, min_height: int, min_width: int, memory: NDArray | None) -> NDArray:
        if mode == "LA":
            grey = self._decoded("L", min_height, min_width, None)
            return np.concatenate([grey, np.full_like(grey, 255)], axis=2)
        try:
            decoded: NDArray = simplejpeg().decode_jpeg(
                self._data, _JPEG_COLOURS[mode], min_height=min_height, min_width=min_width, buffer=memory
            )
        except ValueError:
            # libjpeg-turbo is strict; Pillow accepts harmless errors, such as extra bytes, and refuses truncated files.
            decoded = _PillowImage(self._data, "JPEG", is_turned=False).decoded(mode)
        return decoded


class _PillowImage:
    """An image of another format, or an unusual JPEG, by Pillow. Only the first frame of an animation is used."""

    def __init__(self, data: memoryview, kind: str, max_pixels: int | None = None, is_turned: bool = True) -> None:
        self._kind = kind
        try:
            # Image.open would try all formats, and has size limits of its own.
            self._image = _file_class(kind)(io.BytesIO(data))
        except Exception as exc:  # decoders raise many kinds of exceptions on damaged bytes
            raise _damaged(kind, exc) from exc
        width, height = self._image.size
        if max_pixels is not None:
            _check_size(kind, width, height, max_pixels)
        # The method of the base class, because PNG's decodes all pixels to find EXIF.
        is_turned = is_turned and kind not in _ALREADY_UPRIGHT
        self._orientation = orientation_in(pillow().Image.getexif(self._image)) if is_turned else 1
        self.height, self.width = (width, height) if is_sideways(self._orientation) else (height, width)
        self.mode = _natural_mode(self._image)

    def resize_into(self, mode: str, out: NDArray, is_scaled: bool) -> None:
        resize_into(upright(self.decoded(mode), self._orientation), out)

    def read_into(self, mode: str, out: NDArray) -> None:
        out[:] = upright(self.decoded(mode), self._orientation)

    def decoded(self, mode: str) -> NDArray:
        try:
            self._image.load()
            pixels = np.asarray(_in_mode(self._image, mode))
        except Exception as exc:
            raise _damaged(self._kind, exc) from exc
        self._image = None  # it holds the pixels a second time
        return pixels[:, :, np.newaxis] if pixels.ndim == 2 else pixels


def _file_class(kind: str) -> Any:
    """Return Pillow's class for a format."""
    name = {"JPEG": "Jpeg", "PNG": "Png", "WebP": "WebP", "GIF": "Gif", "BMP": "Bmp", "TIFF": "Tiff"}[kind]
    return getattr(pillow(f"{name}ImagePlugin"), f"{name}ImageFile")


def _natural_mode(image: Any) -> str:
    """Return the mode that loses the least of an image."""
    if image.mode in IMAGE_CHANNELS:
        return str(image.mode)
    if image.mode in ("P", "PA"):
        return "RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB"
    if image.mode in ("1", "I", "F") or image.mode.startswith("I;16"):
        return "L"
    return {"La": "LA", "RGBa": "RGBA"}.get(image.mode, "RGB")


def _in_mode(image: Any, mode: str) -> Any:
    if image.mode.startswith("I;16"):
        image = pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == mode:
        return image
    natural = _natural_mode(image)
    # Via the natural mode: Pillow would treat the transparency of a palette as a colour.
    return image.convert(natural).convert(mode) if natural != mode else image.convert(mode)

"""Convert images, files and bytes to parts of a request."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from penstock.ai.conversation import Audio, Document, Image, Part, Text
from penstock.config import get_config
from penstock.errors import ComputeError, TypeMismatchError
from penstock.media.images.encoded_image import open_image
from penstock.media.images.encoder import encoded, over_white
from penstock.media.images.packages import pillow
from penstock.storage.file import File
from penstock.storage.mime import UNKNOWN, sniff
from penstock.types.extension import IMAGE_CHANNELS
from penstock.types.ndarrays import NDArray

MAX_ATTACHMENT_NBYTES = 50 * 2**20
"""The limit for one image, document or recording. No provider accepts more in a request."""

LOSSLESS_PIXELS = 2**20
"""Larger images are sent as JPEG: a PNG would take megabytes, and providers shrink large images anyway."""

JPEG_QUALITY = 90
ACCEPTED = (
    "text, numbers, dates, images, files and bytes (images, PDF, sound, video, any text in UTF-8), "
    "and lists of messages with 'role' and 'content'"
)
_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_OFFICE = ("application/vnd.openxmlformats-officedocument", "application/vnd.oasis.opendocument", "application/epub")
_TEXTS = ("text/html", "image/svg+xml", "application/xml", None)  # results of ``sniff`` for text


def part_of_bytes(data: bytes, name: str = "", claimed: str | None = None) -> Part:
    """Return the part for some content, by its first bytes, else by its claimed type or its name."""
    shown = repr(name) if name else f"{len(data):,} bytes"
    check_size(len(data), shown)
    kind = sniff(data)
    if kind in _IMAGES:
        return Image(data, str(kind))
    if kind == "application/zip" and (office := _office(name, claimed)):
        return Document(data, office, name)
    if kind in _TEXTS and (text := _text(data)) is not None:
        return Text(f"[File: {name}]\n{text}" if name else text)
    if kind is None:
        kind = claimed or _by_name(name)
    group = kind.partition("/")[0]
    if group == "audio":
        return Audio(data, kind)
    if kind == "application/pdf" or group == "video":
        return Document(data, kind, name or ("document.pdf" if group == "application" else "video"))
    if group == "image":
        return Image(_as_png(data, shown), "image/png")
    what = (
        "text that is not UTF-8" if group == "text" else kind if kind != UNKNOWN else "binary data of an unknown type"
    )
    raise TypeMismatchError(f"prompt: {shown} is {what}, which models cannot read; accepted are {ACCEPTED}.")


def check_size(nbytes: int, shown: str) -> None:
    """Raise TypeMismatchError for an attachment that no provider accepts, before it is read or encoded."""
    if nbytes > MAX_ATTACHMENT_NBYTES:
        raise TypeMismatchError(
            f"prompt: {shown} has {nbytes:,} bytes, more than the {MAX_ATTACHMENT_NBYTES:,} that one attachment may "
            "have; resize images, split documents and recordings, or send the text extracted from them."
        )


def part_of_file(file: File) -> Part:
    check_size(file.size(), repr(str(file)))
    claimed = None if file.media is None else _by_name(file.name)
    return part_of_bytes(file.read(), file.name, claimed if claimed != UNKNOWN else None)


def _by_name(name: str) -> str:
    import mimetypes

    return mimetypes.guess_type(name)[0] or UNKNOWN


def _office(name: str, claimed: str | None) -> str | None:
    kind = claimed or _by_name(name)
    return kind if kind.startswith(_OFFICE) else None


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


# --- images -----------------------------------------------------------------------------------------------------------


def part_of_pixels(values: NDArray) -> Image:
    pixels = values[:, :, np.newaxis] if values.ndim == 2 else values
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 2, 3, 4) or not pixels.size or pixels.dtype.kind not in "buif":
        raise TypeMismatchError(
            f"prompt: an array of shape {values.shape} and {values.dtype} is not an image; an image has shape "
            "(height, width) or (height, width, 1 to 4 channels)."
        )
    pixels = _bytes_of_pixels(pixels)
    height, width, channels = pixels.shape
    if height * width <= LOSSLESS_PIXELS:
        return Image(encoded(pixels, "PNG", JPEG_QUALITY), "image/png")
    opaque = over_white(pixels) if channels in (2, 4) else pixels
    data = encoded(opaque, "JPEG", JPEG_QUALITY)
    check_size(len(data), f"an image of {width} x {height} pixels")
    return Image(data, "image/jpeg")


def _bytes_of_pixels(pixels: NDArray) -> NDArray:
    """Return pixels as uint8: the upper byte of 16-bit values, and 255 times a fraction from 0 to 1."""
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind == "b":
        return pixels.astype(np.uint8) * 255
    if pixels.dtype == np.uint16:
        return (pixels >> 8).astype(np.uint8)
    values = np.nan_to_num(pixels.astype(np.float32))
    is_fraction = pixels.dtype.kind == "f" and values.min() >= 0 and values.max() <= 1
    whole: NDArray = np.clip(np.rint(values * 255 if is_fraction else values), 0, 255).astype(np.uint8)
    return whole


def part_of_pil(image: Any) -> Image:
    mode = "RGBA" if image.has_transparency_data else "L" if image.mode in ("1", "L") else "RGB"
    if image.mode.startswith("I") or image.mode == "F":
        return part_of_pixels(np.asarray(image))
    return part_of_pixels(np.asarray(image.convert(mode)))


def _as_png(data: bytes, shown: str) -> bytes:
    """Convert an image of a type that providers do not accept to PNG."""
    try:
        opened = open_image(memoryview(data), get_config().max_image_pixels)
        pixels = np.empty((opened.height, opened.width, IMAGE_CHANNELS[opened.mode]), np.uint8)
        opened.read_into(opened.mode, pixels)
    except ComputeError as exc:
        raise TypeMismatchError(f"prompt: {shown} cannot be sent as an image: {exc}") from exc
    file = io.BytesIO()
    pillow().fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)).save(file, "PNG")
    check_size(file.tell(), shown)
    return file.getvalue()

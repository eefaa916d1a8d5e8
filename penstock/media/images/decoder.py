"""Decode a column of encoded images to a column of pixels."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import MAX_IMAGE_PIXELS, get_config, piece_nbytes
from penstock.errors import ComputeError, InvalidArgumentError, MissingExtraError, did_you_mean
from penstock.media.images.decode_threads import decode_turns
from penstock.media.images.encoded_image import EncodedImage, open_image
from penstock.media.images.jpeg_header import plain_frame
from penstock.media.images.packages import require_images
from penstock.types import DataType, PartialColumn, Series
from penstock.types.extension import IMAGE_CHANNELS
from penstock.types.image_columns import ImageBuffer, Shape
from penstock.types.ndarrays import NDArray

MAX_BATCH_NBYTES = 32 * 2**20  # of decoded images; a larger image is a batch of its own
FILES_AT_ONCE = 8  # files that are read at a time and decoded together
Found = EncodedImage | Exception | None  # an image, its error, or null


@dataclass(frozen=True, slots=True)
class ImageDecoder:
    """Decode images. As data it can be sent to workers, and the optimizer can change it.

    A ``mode`` of None keeps the mode of each image. With ``size``, height and width, images are resized in the same
    step; with ``is_scaled`` a JPEG is first decoded at the smallest eighth of its size that is not below ``size``,
    which is several times faster. ``max_pixels`` limits the size that a header may state.
    """

    mode: str | None = "RGB"
    size: tuple[int, int] | None = None
    is_scaled: bool = True
    max_pixels: int = MAX_IMAGE_PIXELS

    @property
    def dtype(self) -> DataType:
        return DataType.image(self.mode, *(self.size or (None, None)))

    def resizing(self, height: int, width: int) -> ImageDecoder:
        return replace(self, size=(height, width))

    def __call__(self, encoded: Series) -> PartialColumn:
        if encoded.dtype.is_file():
            with ThreadPoolExecutor(FILES_AT_ONCE) as threads:  # remote files mostly wait
                return self.decode(list(threads.map(self._open_file, encoded.to_pylist())))
        return self.decode([self.open(data) for data in binary_views(encoded.to_arrow())])

    def cut(self, encoded: Series) -> list[int]:
        """Return how many rows to decode at a time, so that the pixels stay bounded: 1 MB may become 50 or 500.

        Files are cut by their number, since measuring one would mean fetching it twice.
        """
        if encoded.dtype.is_file():
            return _lengths(len(encoded), FILES_AT_ONCE)
        if self.size is not None and self.mode is not None:  # one shape, without a look at the images
            nbytes = math.prod(self.size) * IMAGE_CHANNELS[self.mode]
            return _lengths(len(encoded), max(1, piece_nbytes(MAX_BATCH_NBYTES) // nbytes))
        lengths, nbytes, most = [0], 0, piece_nbytes(MAX_BATCH_NBYTES)
        for data in binary_views(encoded.to_arrow()):
            size = self._nbytes_of(data)
            if lengths[-1] and nbytes + size > most:
                lengths.append(0)
                nbytes = 0
            lengths[-1] += 1
            nbytes += size
        return lengths

    def open(self, data: memoryview | None) -> Found:
        """Read the header of an image."""
        try:
            return None if data is None else open_image(data, self.max_pixels)
        except ComputeError as exc:
            return _without_frames(exc)

    def _open_file(self, file: Any) -> Found:
        try:
            data = None if file is None else memoryview(file.read())
        except MissingExtraError:  # this is not an error of the row
            raise
        except Exception as exc:  # from a store, a disk or a setting: the error of the row
            return _without_frames(exc)
        return self.open(data)

    def _nbytes_of(self, data: memoryview | None) -> int:
        frame = None if data is None else plain_frame(data)
        if frame is None or self.size is not None:
            return self.nbytes(self.open(data))
        height, width, channels = frame
        nbytes = height * width * (channels if self.mode is None else IMAGE_CHANNELS[self.mode])
        return nbytes if height * width <= self.max_pixels else 0

    def nbytes(self, image: Found) -> int:
        """Return the size of the decoded image; 0 for null and for an error."""
        if image is None or isinstance(image, Exception):
            return 0
        height, width, channels = self._shape(image)
        return height * width * channels

    def decode(self, images: Sequence[Found]) -> PartialColumn:
        """Decode all images into one column; failed images are null and listed in ``failures``."""
        failures = {row: image for row, image in enumerate(images) if isinstance(image, Exception)}
        shapes = [None if image is None or isinstance(image, Exception) else self._shape(image) for image in images]
        room = ImageBuffer(shapes, self.dtype)
        with decode_turns().turn():
            for row, image in enumerate(images):
                if image is None or isinstance(image, Exception):
                    continue
                try:
                    self._fill(image, room[row])
                except MissingExtraError:  # this is not an error of the row
                    raise
                except Exception as exc:
                    room.clear(row)
                    failures[row] = _without_frames(exc)
        return PartialColumn(room.column(), failures)

    def _shape(self, image: EncodedImage) -> Shape:
        height, width = self.size or (image.height, image.width)
        return height, width, IMAGE_CHANNELS[self.mode or image.mode]

    def _fill(self, image: EncodedImage, out: NDArray) -> None:
        mode = self.mode or image.mode
        if self.size is None:
            image.read_into(mode, out)
        else:
            image.resize_into(mode, out, self.is_scaled)


def _lengths(num_rows: int, most: int) -> list[int]:
    return [min(most, num_rows - start) for start in range(0, num_rows, most)]


def _without_frames(exc: Exception) -> Exception:
    """Return a caught exception without the local variables of its frames, which may hold pixels."""
    if exc.__traceback__ is not None:
        exc.__traceback__ = exc.__traceback__.tb_next  # the frame that caught it still runs and cannot be cleared
    link: BaseException | None = exc
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    return exc


def checked_decoder(what: str, mode: str | None, size: Any = None, *, is_scaled: bool = True) -> ImageDecoder:
    """Return a decoder with the options of a user; raises InvalidArgumentError."""
    require_images(what)
    check_mode(what, mode)
    if size is not None:
        lengths = tuple(size) if isinstance(size, (tuple, list)) else ()
        if len(lengths) != 2:
            raise InvalidArgumentError(f"{what}: size={size!r} must be two whole numbers, height and width")
        check_size(what, **dict(zip(("height", "width"), lengths, strict=True)))
        size = lengths
    return ImageDecoder(mode, size, is_scaled, get_config().max_image_pixels)


def check_mode(what: str, mode: str | None) -> None:
    """Refuse an unknown mode; None is allowed."""
    if mode is not None and mode not in IMAGE_CHANNELS:
        known = ", ".join(IMAGE_CHANNELS)
        hint = did_you_mean(str(mode).upper(), IMAGE_CHANNELS)
        raise InvalidArgumentError(f"{what}: mode={mode!r} is not known; use one of {known}.{hint}")


def check_size(what: str, **lengths: Any) -> None:
    """Refuse sizes, passed by name, that no image can have."""
    for name, length in lengths.items():
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise InvalidArgumentError(f"{what}: {name}={length!r} must be a whole number of at least 1")
    if 4 * math.prod(lengths.values()) > np.iinfo(np.int32).max:
        listing = " x ".join(map(str, lengths.values()))
        raise InvalidArgumentError(f"{what}: {listing} pixels are more than an image can have")


def binary_views(column: pa.Array) -> Iterable[memoryview | None]:
    """Yield a view of each value of a binary column, None for null."""
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_null(column.type):
        yield from (None if value is None else memoryview(value) for value in column.to_pylist())
        return
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    if not len(column) or offsets is None:
        return
    bounds = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].tolist()
    content = memoryview(data or b"").cast("B")  # Arrow's buffers hold signed bytes; decoders need unsigned ones
    for row, is_valid in enumerate(column.is_valid().to_pylist()):
        yield content[bounds[row] : bounds[row + 1]] if is_valid else None

"""Columns of images: their shapes, and memory to decode them into."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.types.datatype import DataType
from penstock.types.ndarrays import NDArray, fixed_rows, too_large
from penstock.types.plain import arrow_numbers

Shape = tuple[int, int, int]  # height, width, channels


def image_shapes(images: pa.Array) -> list[Shape | None]:
    """Return height, width and channels of each image, None for null."""
    if images.type.shape is not None:
        shape: Shape = images.type.shape
        return [shape if is_valid else None for is_valid in images.is_valid().to_pylist()]
    columns = [images.storage.field(i).to_pylist() for i in (1, 2, 3)]
    rows = zip(images.storage.is_valid().to_pylist(), *columns, strict=True)
    return [(height, width, channels) if is_valid else None for is_valid, height, width, channels in rows]


class ImageBuffer:
    """One block of memory for a column of images of known shapes, filled row by row.

    A decoder writes each image directly into its final place. ``shapes`` has None for a null row; ``clear`` makes a row
    null later. ``column`` frees the memory of null rows, unless ``dtype`` fixes one shape for all rows.

    >>> buffer = ImageBuffer([(1, 2, 3), None], DataType.image("RGB"))
    >>> buffer[0][:] = 7
    >>> buffer.column().to_pylist()[0].shape
    (1, 2, 3)
    """

    def __init__(self, shapes: Sequence[Shape | None], dtype: DataType) -> None:
        self._dtype = dtype
        self._shapes = [dtype.shape] * len(shapes) if dtype.shape is not None else [s or (0, 0, 0) for s in shapes]
        self._is_null = np.fromiter((shape is None for shape in shapes), np.bool_, len(shapes))
        self._offsets = np.zeros(len(shapes) + 1, np.int64)
        np.cumsum([math.prod(shape) for shape in self._shapes], out=self._offsets[1:])
        if dtype.shape is not None and self._offsets[-1] > np.iinfo(np.int32).max:
            raise too_large("image column")
        self._pixels = np.empty(int(self._offsets[-1]), np.uint8)
        if dtype.shape is not None:
            for row in np.flatnonzero(self._is_null):
                self.clear(int(row))

    def __getitem__(self, row: int) -> NDArray:
        """Return the memory of one image, for writing."""
        return self._pixels[self._offsets[row] : self._offsets[row + 1]].reshape(self._shapes[row])

    def clear(self, row: int) -> None:
        """Make a row null, and erase its memory where it stays part of the column."""
        self._is_null[row] = True
        if self._dtype.shape is not None:
            self[row][:] = 0

    def column(self) -> pa.Array:
        """Return the column, which then owns the memory."""
        mask = arrow_numbers(self._is_null) if self._is_null.any() else None
        if self._dtype.shape is not None:
            return fixed_rows(arrow_numbers(self._pixels), self._dtype.arrow, mask)
        self._free_null_rows()
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._pixels)]
        data = pa.Array.from_buffers(pa.large_binary(), len(self._shapes), buffers)
        sizes = np.array(self._shapes, np.uint32).reshape(-1, 3)
        columns = [
            data,
            *(arrow_numbers(np.ascontiguousarray(sizes[:, axis])) for axis in (0, 1)),
            arrow_numbers(sizes[:, 2].astype(np.uint8)),
        ]
        storage = pa.StructArray.from_arrays(columns, fields=list(self._dtype.arrow.storage_type), mask=mask)
        return pa.ExtensionArray.from_storage(self._dtype.arrow, storage)

    def _free_null_rows(self) -> None:
        """Free the memory of rows that are null now: a failed image may have claimed gigabytes."""
        sizes = np.where(self._is_null, 0, np.diff(self._offsets))
        if sizes.sum() == self._offsets[-1]:
            return
        kept = [self[row].reshape(-1) for row in np.flatnonzero(sizes).tolist()]
        self._pixels = np.concatenate([np.empty(0, np.uint8), *kept])
        np.cumsum(sizes, out=self._offsets[1:])
        for row in np.flatnonzero(self._is_null):
            self._shapes[row] = (0, 0, 0)


def image_column(images: Sequence[NDArray | None], dtype: DataType) -> pa.Array:
    """Return ``(height, width, channels)`` arrays of uint8 as a column of ``dtype``, None as null."""
    buffer = ImageBuffer([None if image is None else (*image.shape,) for image in images], dtype)
    for row, image in enumerate(images):
        if image is not None:
            buffer[row][:] = image
    return buffer.column()

"""Images: decode, encode, resize, crop, convert, hash, and their attributes.

``decode_image`` is planned like a UDF: its batches take a fraction of a second, its workers share the cores, and the
engine raises or records failed rows. The other functions are kernels on image columns.
"""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa

from penstock import types
from penstock.errors import ComputeError, InvalidArgumentError, check_choice
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import BINARY, STRING, UINT32, Kind
from penstock.expr.public_functions import method
from penstock.expr.signatures import strict, takes
from penstock.functions.calls import decode_call
from penstock.functions.table import Builder
from penstock.media.images.decoder import check_mode, check_size, checked_decoder
from penstock.media.images.encoder import DEFAULT_QUALITY, encoded, encoding_of
from penstock.media.images.hashes import METHODS, image_hash as hash_of
from penstock.media.images.packages import require_images
from penstock.media.images.pixels import converted, cropped, resize_into
from penstock.types import DataType
from penstock.types.extension import IMAGE_CHANNELS, IMAGE_MODES
from penstock.types.image_columns import ImageBuffer, image_column, image_shapes
from penstock.types.plain import arrow_array

IMAGE = Kind("an image", DataType.is_image, 'make one of bytes with .decode_image(), of arrays with .cast("image")')
BOX = Kind("a list of x, y, width and height", lambda d: d.is_list() and d.inner.is_integer())

_ATTRIBUTES = ("width", "height", "channel", "mode")


# --- decode and encode ------------------------------------------------------------------------------------------------


@method
def decode_image(
    bytes: Expression,
    on_error: Literal["raise", "null", "log", "ignore"] = "raise",
    mode: str | None = "RGB",
    *,
    scaled: bool = True,
) -> Expression:
    """Decode JPEG, PNG, WebP, GIF, BMP and TIFF files, or their bytes, to images, rotated according to EXIF.

    ``mode`` is ``L``, ``LA``, ``RGB`` or ``RGBA``, or None to keep the mode of each image. An animation gives its first
    frame. Bytes that are not an image, or a file that cannot be read, stop the query; with ``on_error="null"`` they
    give null and ``df.errors()`` lists them. If a ``resize`` follows, a JPEG is decoded at a reduced size, which is
    faster and changes pixels by a few shades; ``scaled=False`` decodes it in full.
    ``ps.set_config(max_image_pixels=...)`` limits the size.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df = df.select(encode_image(ps.col("image"), "png")).select(decode_image(ps.col("image")))
    >>> df.to_pydict()["image"][0].shape
    (2, 3, 3)
    """
    return decode_call(bytes, checked_decoder("decode_image", mode, is_scaled=scaled), on_error)


@method
def encode_image(image: Expression, image_format: str, *, quality: int = DEFAULT_QUALITY) -> Expression:
    """Encode images as the bytes of ``png``, ``jpeg``, ``webp``, ``gif``, ``bmp`` or ``tiff`` files.

    ``quality``, from 1 to 100, applies to JPEG and WebP. JPEG and BMP have no transparency: transparent images get a
    white background. To drop transparency instead, use ``convert_image("RGB")`` first.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df.select(encode_image(ps.col("image"), "png")).to_pydict()["image"][0][:4]
    b'\x89PNG'
    """
    require_images("encode_image")
    encoding = encoding_of(image_format, "encode_image: image_format")
    given: Any = quality
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= 100:
        raise InvalidArgumentError(f"encode_image: quality={quality!r} must be a whole number from 1 to 100")
    return call("encode_image", image, encoding=encoding, quality=quality)


@strict("encode_image", takes(IMAGE, returns=BINARY))
@on_arrays
def _encode_image(images: pa.Array, *, encoding: str, quality: int) -> pa.Array:
    views = images.to_pylist()
    return arrow_array([None if view is None else encoded(view, encoding, quality) for view in views], pa.binary())


# --- size and mode ----------------------------------------------------------------------------------------------------


@method
def resize(image: Expression, w: int, h: int) -> Expression:
    """Scale images to ``w`` by ``h`` pixels, ignoring their proportions.

    Shrinking averages pixels, enlarging interpolates them. If all images have one mode, a batch function gets the
    result as one ``(n, height, width, channels)`` array without a copy.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df.select(resize(ps.col("image"), 8, 4)).schema["image"].dtype
    image[RGB; 4x8]
    """
    require_images("resize")
    check_size("resize", w=w, h=h)
    return call("resize", image, w=w, h=h)


def _resized_type(dtype: DataType, *, w: int, h: int) -> DataType:
    return DataType.image(dtype.mode if dtype.is_image() else None, h, w)


@strict("resize", takes(IMAGE, returns=_resized_type))
@on_arrays
def _resize(images: pa.Array, *, w: int, h: int) -> pa.Array:
    shapes = [None if shape is None else (h, w, shape[2]) for shape in image_shapes(images)]
    buffer = ImageBuffer(shapes, _resized_type(DataType(images.type), w=w, h=h))
    for row, view in enumerate(images.to_pylist()):
        if view is not None:
            resize_into(view, buffer[row])
    return buffer.column()


@method
def crop(image: Expression, bbox: tuple[int, int, int, int] | Expression) -> Expression:
    """Cut out the box ``(x, y, width, height)``, given once or as a column of lists of four.

    A box that extends beyond the image is cut; the result is null for a box outside the image.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((20, 30, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df.select(crop(ps.col("image"), (25, 5, 10, 10))).to_pydict()["image"][0].shape
    (10, 5, 3)
    """
    require_images("crop")
    if isinstance(bbox, Expression):
        return call("crop", image, bbox)
    given: Any = bbox
    box = list(given) if isinstance(given, (tuple, list)) else []
    if len(box) != 4 or not all(isinstance(length, int) for length in box):
        raise InvalidArgumentError(f"crop: bbox={given!r} must be four whole numbers: x, y, width, height")
    if min(box[2:]) < 1:
        raise InvalidArgumentError(f"crop: bbox={given!r} must have a width and height of at least 1")
    return call("crop", image, lit(box))


def _cropped_type(dtype: DataType, _: DataType) -> DataType:
    return DataType.image(dtype.mode if dtype.is_image() else None)


@strict("crop", takes(IMAGE, BOX, returns=_cropped_type))
@on_arrays
def _crop(images: pa.Array, boxes: pa.Array) -> pa.Array:
    views = [
        None if view is None or box is None else cropped(view, box)
        for view, box in zip(images.to_pylist(), map(_box, boxes.to_pylist()), strict=True)
    ]
    dtype = _cropped_type(DataType(images.type), BINARY)
    return image_column([None if view is None or not view.size else view for view in views], dtype)


def _box(row: list[int] | None) -> tuple[int, int, int, int] | None:
    if row is None or None in row:
        return None
    if len(row) != 4:
        raise ComputeError(f"crop: a box has four numbers, x, y, width and height; got {row!r}")
    x, y, width, height = row
    return (x, y, width, height) if min(width, height) > 0 else None


@method
def convert_image(image: Expression, mode: str) -> Expression:
    """Convert to the mode ``L``, ``LA``, ``RGB`` or ``RGBA``: grey is weighted, an added alpha channel is opaque.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df.select(convert_image(ps.col("image"), "L")).to_pydict()["image"][0].shape
    (2, 3, 1)
    """
    require_images("convert_image")
    if mode is None:
        raise InvalidArgumentError(f"convert_image: the mode is missing; use one of {', '.join(IMAGE_CHANNELS)}")
    check_mode("convert_image", mode)
    return call("convert_image", image, mode=mode)


def _converted_type(dtype: DataType, *, mode: str) -> DataType:
    return DataType.image(mode, *((dtype.arrow.height, dtype.arrow.width) if dtype.is_image() else (None, None)))


@strict("convert_image", takes(IMAGE, returns=_converted_type))
@on_arrays
def _convert_image(images: pa.Array, *, mode: str) -> pa.Array:
    views = [None if view is None else converted(view, IMAGE_CHANNELS[mode]) for view in images.to_pylist()]
    return image_column(views, _converted_type(DataType(images.type), mode=mode))


# --- attributes --------------------------------------------------------------------------------------------


@method
def image_to_tensor(image: Expression) -> Expression:
    """Return images as tensors of uint8; without a copy if all images have one shape.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df.select(image_to_tensor(ps.col("image").resize(4, 4))).schema["image"].dtype
    tensor[uint8; 4x4x3]
    """
    return call("image_to_tensor", image)


def _tensor_type(dtype: DataType) -> DataType:
    return DataType.tensor(DataType.uint8(), dtype.shape if dtype.is_image() else None)


@strict("image_to_tensor", takes(IMAGE, returns=_tensor_type))
@on_arrays
def _image_to_tensor(images: pa.Array) -> pa.Array:
    dtype = _tensor_type(DataType(images.type))
    if dtype.shape is not None:
        return pa.ExtensionArray.from_storage(dtype.arrow, images.storage)
    return types.cast(images, dtype)


@method
def image_attribute(image: Expression, name: Literal["width", "height", "channel", "mode"]) -> Expression:
    """Return the ``width``, ``height``, ``channel`` (number of channels) or ``mode`` of images.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> df.select(image_attribute(ps.col("image"), "mode")).to_pydict()
    {'image': ['RGB']}
    """
    check_choice("image_attribute: name", name, _ATTRIBUTES)
    return call("image_attribute", image, name=name)


def _attribute(name: str, doc: str, result: object) -> Builder:
    """Define ``image_<name>``, for an image of 3 by 2 pixels in its example."""

    def build(image: Expression) -> Expression:
        return image_attribute(image, name)  # type: ignore[arg-type]

    build.__name__ = build.__qualname__ = f"image_{name}"
    image = 'ps.from_pydict({"image": [np.zeros((2, 3, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))'
    example = (
        f'>>> import numpy as np\n    >>> df = {image}\n    >>> df.select(image_{name}(ps.col("image"))).to_pydict()'
    )
    build.__doc__ = f"{doc}\n\n    {example}\n    {{'image': [{result!r}]}}\n    "
    return method(build)


image_width = _attribute("width", "Return the width of images in pixels.", 3)
image_height = _attribute("height", "Return the height of images in pixels.", 2)
image_channel = _attribute("channel", "Return the number of channels of images, from 1 to 4.", 3)
image_mode = _attribute("mode", "Return the mode of images: ``L``, ``LA``, ``RGB`` or ``RGBA``.", "RGB")


def _attribute_type(dtype: DataType, *, name: str) -> DataType:
    return STRING if name == "mode" else UINT32


@strict("image_attribute", takes(IMAGE, returns=_attribute_type))
@on_arrays
def _image_attribute(images: pa.Array, *, name: str) -> pa.Array:
    shapes = image_shapes(images)
    if name == "mode":
        return arrow_array([None if shape is None else IMAGE_MODES[shape[2]] for shape in shapes], pa.string())
    axis = {"height": 0, "width": 1, "channel": 2}[name]
    return arrow_array([None if shape is None else shape[axis] for shape in shapes], pa.uint32())


@method
def image_hash(
    image: Expression, *, method: Literal["phash", "dhash", "ahash"] = "phash", hash_size: int = 8
) -> Expression:
    """Return a perceptual hash of each image as bytes: the fewer bits differ, the more alike two images look.

    ``phash`` keeps the low frequencies of the image and is the most robust, ``dhash`` compares neighbours,
    and ``ahash`` compares each part with the mean. A hash has ``hash_size`` squared bits.

    >>> import numpy as np
    >>> df = ps.from_pydict({"image": [np.zeros((9, 9, 3), np.uint8)]}).select(ps.col("image").cast("image[RGB]"))
    >>> len(df.select(image_hash(ps.col("image"))).to_pydict()["image"][0])
    8
    """
    require_images("image_hash")
    check_choice("image_hash: method", method, METHODS)
    if isinstance(hash_size, bool) or hash_size not in range(1, 257):
        raise InvalidArgumentError(f"image_hash: hash_size={hash_size!r} must be a whole number from 1 to 256")
    return call("image_hash", image, method=method, hash_size=hash_size)


def _hash_type(_: DataType, *, method: str, hash_size: int) -> DataType:
    return DataType.fixed_size_binary(-(-(hash_size**2) // 8))


@strict("image_hash", takes(IMAGE, returns=_hash_type))
@on_arrays
def _image_hash(images: pa.Array, **options: Any) -> pa.Array:
    hashes = [None if view is None else hash_of(view, **options) for view in images.to_pylist()]
    return arrow_array(hashes, _hash_type(BINARY, **options).arrow)

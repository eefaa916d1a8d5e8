"""Functions of image columns: sizes, modes, formats, constants, nulls, and what is refused."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

import penstock as ps
from penstock import functions
from penstock.errors import InvalidArgumentError, MissingExtraError, TypeMismatchError
from penstock.media.images.encoder import over_white
from penstock.types.image_columns import ImageBuffer
from tests.expr.evaluating import batch_of, evaluate, resolved, run
from tests.media.images.samples import Pixels, difference, encoded, jpeg, picture

IMAGE = ps.col("i")


def images(*rows: Pixels | None, dtype: str = "image") -> pa.Array:
    return ps.Series.from_pylist(list(rows), dtype=dtype).to_arrow()


RAGGED = images(picture(), None, picture(5, 7, 1), picture(9, 2, 4))
FIXED = images(picture(), None, picture()[::-1], dtype="image[RGB; 48x64]")


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        (IMAGE.resize(6, 4), "image"),
        (IMAGE.crop((1, 0, 5, 3)), "image"),
        (IMAGE.crop(ps.lit([0, 0, 1, 1])), "image"),
        (IMAGE.convert_image("RGBA"), "image[RGBA]"),
        (IMAGE.image_to_tensor(), "tensor[uint8]"),
        (IMAGE.image_width(), "uint32"),
        (IMAGE.image_mode(), "string"),
        (IMAGE.image_hash(), "fixed_size_binary[8]"),
        (IMAGE.encode_image("png"), "binary"),
    ],
)
def test_every_function_on_slices_constants_and_nulls(expression: ps.Expression, dtype: str) -> None:
    for column in (RAGGED, FIXED):
        values = evaluate(expression, i=column)
        assert [value is None for value in values] == [row is None for row in column.to_pylist()]
    assert str(resolved(expression, i=RAGGED)).startswith(dtype)


def test_image_attributes() -> None:
    assert evaluate(IMAGE.image_width(), i=RAGGED) == [64, None, 7, 2]
    assert evaluate(IMAGE.image_height(), i=RAGGED) == [48, None, 5, 9]
    assert evaluate(IMAGE.image_channel(), i=RAGGED) == [3, None, 1, 4]
    assert evaluate(IMAGE.image_mode(), i=RAGGED) == ["RGB", None, "L", "RGBA"]
    assert evaluate(functions.image_attribute(IMAGE, "width"), i=FIXED) == [64, None, 64]


lengths = st.integers(1, 40)


@settings(max_examples=60, deadline=None)
@given(lengths, lengths, st.integers(1, 4), lengths, lengths, st.booleans())
def test_resize_gives_the_size(height: int, width: int, channels: int, w: int, h: int, is_fixed: bool) -> None:
    flat = np.full((height, width, channels), 77, np.uint8)
    mode = ["L", "LA", "RGB", "RGBA"][channels - 1]
    dtype = f"image[{mode}; {height}x{width}]" if is_fixed else f"image[{mode}]"
    column = run(IMAGE.resize(w, h), batch_of(i=images(flat, None, dtype=dtype)))
    image, null = column.to_pylist()
    assert null is None
    assert image.shape == (h, w, channels)
    assert str(ps.DataType(column.type)) == f"image[{mode}; {h}x{w}]"
    assert (image == 77).all()


@settings(max_examples=60, deadline=None)
@given(lengths, lengths, st.data())
def test_crop_cuts_where_the_image_ends(height: int, width: int, data: st.DataObject) -> None:
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(lengths), data.draw(lengths)
    pixels = picture(41, 41)[:height, :width]
    expected = pixels[y : y + h, x : x + w]
    for column in (images(pixels), images(pixels, dtype=f"image[RGB; {height}x{width}]")):
        for box in ((x, y, w, h), ps.lit([x, y, w, h])):
            (cropped,) = run(IMAGE.crop(box), batch_of(i=column)).to_pylist()
            np.testing.assert_array_equal(cropped, expected)


def test_boxes_may_be_a_column() -> None:
    boxes = pa.array([[1, 2, 3, 4], [0, 0, 9, 9], None], pa.list_(pa.int64()))
    column = images(picture(), picture(5, 7), picture())
    shapes = [None if image is None else image.shape for image in evaluate(IMAGE.crop(ps.col("b")), i=column, b=boxes)]
    assert shapes == [(4, 3, 3), (5, 7, 3), None]


def test_shrinking_averages_and_growing_interpolates() -> None:
    stripes = np.zeros((64, 64, 1), np.uint8)
    stripes[:, ::2] = 200
    (small,) = evaluate(IMAGE.resize(16, 16), i=images(stripes))
    assert (small == 100).all()  # nearest or bilinear sampling would show stripes that are not there
    (wide,) = evaluate(IMAGE.resize(16, 128), i=images(stripes))
    assert wide.shape == (128, 16, 1)
    assert (wide == 100).all()
    step = np.array([[[0], [200]]], np.uint8)
    (grown,) = evaluate(IMAGE.resize(8, 1), i=images(step))
    assert (np.diff(grown.ravel().astype(int)) >= 0).all()
    assert len(np.unique(grown)) > 2


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_convert_is_as_pillow_has_it(channels: int, mode: str) -> None:
    pixels = picture(channels=channels)
    (converted,) = evaluate(IMAGE.convert_image(mode), i=images(pixels))
    source = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
    expected = np.asarray(source.convert("RGBA").convert(mode) if mode == "LA" else source.convert(mode))
    assert difference(converted, expected.reshape(48, 64, -1)) <= 1


@pytest.mark.parametrize("format", ["png", "bmp", "tiff", "PNG", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_lossless_files_hold_the_pixels(format: str, channels: int) -> None:
    (data,) = evaluate(IMAGE.encode_image(format), i=images(picture(channels=channels)))
    image = Image.open(io.BytesIO(data))
    assert image.format == format.strip(".").upper()
    np.testing.assert_array_equal(np.asarray(image).reshape(48, 64, channels), picture(channels=channels))


@pytest.mark.parametrize(("format", "channels"), [("jpeg", 3), ("jpeg", 1), ("webp", 3), ("webp", 4), ("gif", 3)])
def test_lossy_files_are_near(format: str, channels: int) -> None:
    frame = ps.from_arrow(pa.table({"i": images(picture(channels=channels))}))
    frame = frame.select(IMAGE.encode_image(format)).select(IMAGE.decode_image(mode=None))
    image = frame.to_pydict()["i"][0]
    assert difference(image[:, :, :channels], picture(channels=channels)) < 8


def test_quality_makes_files_larger() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for format in ("jpeg", "webp"):
        sizes = [len(evaluate(IMAGE.encode_image(format, quality=q), i=images(noise))[0]) for q in (20, 95)]
        assert 2 * sizes[0] < sizes[1]


@pytest.mark.parametrize("format", ["jpeg", "bmp"])
@pytest.mark.parametrize("channels", [2, 4])
def test_transparency_is_laid_over_white_where_a_format_has_none(format: str, channels: int) -> None:
    pixels = np.full((16, 32, channels), 100, np.uint8)
    pixels[:, :16, -1], pixels[:, 16:, -1] = 0, 255
    for dtype in ("image", f"image[{'LA' if channels == 2 else 'RGBA'}]"):
        data, nothing = evaluate(IMAGE.encode_image(format), i=images(pixels, None, dtype=dtype))
        assert nothing is None
        image = Image.open(io.BytesIO(data))
        assert image.mode == ("L" if channels == 2 else "RGB")
        shades = np.asarray(image.convert("L"))
        assert (shades[:, :8] > 250).all()
        assert (abs(shades[:, 24:].astype(int) - 100) < 5).all()


def test_half_transparent_is_half_white() -> None:
    pixels = np.full((4, 4, 4), 128, np.uint8)
    assert set(over_white(pixels).ravel().tolist()) == {191}


def test_tensors_of_one_shape_share_the_memory() -> None:
    tensors = run(IMAGE.image_to_tensor(), batch_of(i=FIXED))
    assert str(ps.DataType(tensors.type)) == "tensor[uint8; 48x64x3]"
    assert tensors.storage.values.buffers()[1].address == FIXED.storage.values.buffers()[1].address


@pytest.mark.one_machine
def test_a_batch_function_gets_resized_images_as_one_array_without_a_copy() -> None:
    seen: list[Any] = []

    @ps.func.batch(return_dtype=ps.DataType.float64())
    def mean(images: ps.Series) -> Any:
        array = images.to_numpy()
        buffer = images.to_arrow().storage.flatten().buffers()[1]
        seen.append((array.shape, array.__array_interface__["data"][0] - buffer.address, array.flags.c_contiguous))
        return array.mean(axis=(1, 2, 3))

    data = [encoded(picture(), "PNG"), jpeg(picture()), encoded(picture(channels=1), "PNG")]
    for image in (ps.col("b").decode_image().resize(20, 10), ps.col("b").decode_image(scaled=False).resize(20, 10)):
        means = ps.from_pydict({"b": data}).select(mean(image)).to_pydict()["b"]
        assert means[:2] == pytest.approx([127, 127], abs=6)
    assert seen == [((3, 10, 20, 3), 0, True)] * 2


def test_room_is_filled_in_place() -> None:
    room = ImageBuffer([(2, 2, 3), (2, 2, 3)], ps.DataType.image("RGB", 2, 2))
    address = room[0].__array_interface__["data"][0]
    room[0][:] = 1
    room.clear(1)
    column = room.column()
    column.validate(full=True)
    assert column.storage.values.buffers()[1].address == address
    assert column.null_count == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: IMAGE.resize(0, 5), "resize: w=0 must be a whole number of at least 1"),
        (lambda: IMAGE.resize(5, 1.5), "h=1.5"),
        (lambda: IMAGE.resize(10**5, 10**5), "more than an image can have"),
        (lambda: IMAGE.crop((1, 2, 3)), "four whole numbers"),
        (lambda: IMAGE.crop((1, 0, 0, 3)), "a width and height of at least 1"),
        (lambda: IMAGE.convert_image("CMYK"), "mode='CMYK' is not known; use one of L, LA, RGB, RGBA"),
        (lambda: IMAGE.convert_image("rgb"), "Did you mean 'RGB'"),
        (lambda: IMAGE.encode_image("jpeeg"), "Did you mean 'jpeg'"),
        (lambda: IMAGE.encode_image("jpeg", quality=0), "quality=0"),
        (lambda: IMAGE.encode_image("jpeg", quality=50.5), "quality=50.5 must be a whole number"),
        (lambda: IMAGE.encode_image("jpeg", quality="x"), "quality='x' must be a whole number"),
        (lambda: IMAGE.decode_image(mode="YUV"), "decode_image: mode='YUV' is not known"),
        (lambda: IMAGE.decode_image("skip"), "on_error='skip' is not known"),
        (lambda: IMAGE.image_attribute("depth"), "use one of width, height, channel, mode"),
    ],
)
def test_arguments_are_checked_on_the_spot(build: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        build()
    assert message in str(caught.value)


def test_types_are_checked_when_the_plan_is_built() -> None:
    frame = ps.from_pydict({"t": ["text"], "b": [b"bytes"]})
    with pytest.raises(TypeMismatchError, match=r"expected binary or a file, got string; .*\.download\(\) first"):
        frame.select(ps.col("t").decode_image())
    with pytest.raises(TypeMismatchError, match=r"expected an image, got binary; make one of bytes with .decode_image"):
        frame.select(ps.col("b").resize(4, 4))


def test_a_box_without_a_pixel_of_its_image_gives_null() -> None:
    for box in ((64, 0, 5, 5), (0, 48, 5, 5), (-9, 0, 9, 9), (3, -20, 9, 9)):
        for column in (images(picture(), None), FIXED):
            assert set(run(IMAGE.crop(box), batch_of(i=column)).to_pylist()) == {None}
    boxes = pa.array(
        [[70, 0, 5, 5], [60, 40, 50, 50], [1, 1, 0, 5], [-5, -5, 8, 7], [1, 1, 5, -5]], pa.list_(pa.int64())
    )
    cut = evaluate(IMAGE.crop(ps.col("b")), i=images(*[picture()] * 5), b=boxes)
    assert [None if image is None else image.shape for image in cut] == [None, (8, 4, 3), None, (2, 3, 3), None]
    np.testing.assert_array_equal(cut[3], picture()[:2, :3])


def test_a_box_that_begins_outside_is_cut_to_the_image() -> None:
    for column in (images(picture()), FIXED):
        cut = run(IMAGE.crop((-4, -6, 10, 10)), batch_of(i=column)).to_pylist()[0]
        np.testing.assert_array_equal(cut, picture()[:4, :6])


@pytest.mark.parametrize("package", ["PIL", "simplejpeg", "cv2"])
def test_the_packages_are_an_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r'decode_image needs .* pip install "penstock\[images\]"'):
        IMAGE.decode_image()


def test_images_survive_parquet(tmp_path: Any) -> None:
    frame = ps.from_arrow(pa.table({"i": RAGGED, "j": pa.concat_arrays([FIXED, FIXED.slice(0, 1)])}))
    frame.write_parquet(str(tmp_path / "out"))
    back = ps.read_parquet(tmp_path / "out")
    assert back.schema == frame.schema
    for left, right in zip(back.to_pydict()["i"], RAGGED.to_pylist(), strict=True):
        np.testing.assert_array_equal(left, right)

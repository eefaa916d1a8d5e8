"""Every format, mode and orientation; and what happens to bytes that are no image."""

from __future__ import annotations

import io
import json
import traceback
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import penstock as ps
from penstock.errors import ComputeError, UdfError
from penstock.media.images.decoder import ImageDecoder
from penstock.media.images.encoded_image import open_image
from penstock.media.images.orientation import jpeg_orientation
from tests.media.images.samples import (
    Pixels,
    as_pil,
    difference,
    encoded,
    jpeg,
    jpeg_claiming,
    oriented,
    picture,
    png_claiming,
)

LOSSLESS = {"PNG": {}, "WEBP": {"lossless": True, "exact": True}, "BMP": {}, "TIFF": {}}


def decode(*data: bytes | None, **options: Any) -> list[Pixels | None]:
    return ps.from_pydict({"b": list(data)}).select(ps.col("b").decode_image(**options)).to_pydict()["b"]


def failure(data: bytes, **options: Any) -> str:
    with pytest.raises(UdfError) as caught:
        decode(jpeg(picture()), data, **options)
    assert "decode_image failed on row 1 of the input" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("format", LOSSLESS)
def test_lossless_formats_give_the_pixels_back(format: str) -> None:
    (image,) = decode(encoded(picture(), format, **LOSSLESS[format]))
    np.testing.assert_array_equal(image, picture())


def test_jpeg_is_near_the_pixels() -> None:
    (image,) = decode(jpeg(picture()))
    assert image is not None
    assert difference(image, picture()) < 1


@pytest.mark.parametrize("size", [None, (20, 30)])
def test_jpeg_is_left_to_libjpeg_turbo(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] | None) -> None:
    from PIL import JpegImagePlugin

    data = jpeg(picture())
    monkeypatch.delattr(JpegImagePlugin, "JpegImageFile")  # Pillow would do as well, several times slower
    frame = ps.from_pydict({"b": [data]}).select(ps.col("b").decode_image())
    image = (frame if size is None else frame.select(ps.col("b").resize(*size))).to_pydict()["b"][0]
    assert image.shape == (48, 64, 3) if size is None else (30, 20, 3)


def test_gif_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    (image,) = decode(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    np.testing.assert_array_equal(image, np.full((4, 6, 3), [255, 0, 0], np.uint8))


def test_animated_webp_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    (image,) = decode(encoded(frames[0], "WEBP", lossless=True, save_all=True, append_images=frames[1:]))
    np.testing.assert_array_equal(image, np.full((4, 6, 3), [255, 0, 0], np.uint8))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_modes_become_one_another_as_pillow_has_it(channels: int, mode: str) -> None:
    data = encoded(picture(channels=channels), "PNG")
    (image,) = decode(data, mode=mode)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    np.testing.assert_array_equal(image, expected.reshape(48, 64, -1))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_jpeg_in_every_mode(channels: int, mode: str) -> None:
    data = jpeg(picture(channels=channels))
    (image,) = decode(data, mode=mode)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert(mode)).reshape(48, 64, -1)
    assert image is not None
    assert difference(image, expected) < 1


def test_without_a_mode_each_image_keeps_its_own() -> None:
    data = [encoded(picture(channels=channels), "PNG") for channels in (1, 2, 3, 4)]
    images = decode(*data, jpeg(picture(channels=1)), mode=None)
    assert [image is not None and image.shape[2] for image in images] == [1, 2, 3, 4, 1]
    np.testing.assert_array_equal(images[1], picture(channels=2))


def test_16_bits_are_cut_to_the_upper_8() -> None:
    deep = (picture(channels=1)[:, :, 0].astype(np.uint16) << 8) + 77
    for format in ("PNG", "TIFF"):
        (image,) = decode(encoded(Image.fromarray(deep), format), mode="L")
        np.testing.assert_array_equal(image, picture(channels=1))


def test_other_numbers_of_tiff_are_clipped() -> None:
    for values in (np.array([[-5, 100, 254, 70_000]], np.int32), np.array([[-5.0, 100.2, 254.0, 4000.0]], np.float32)):
        (image,) = decode(encoded(Image.fromarray(values), "TIFF"), mode="L")
        assert image is not None
        assert image.ravel().tolist() == [0, 100, 254, 255]


def test_cmyk_jpeg_is_converted() -> None:
    cmyk = as_pil(picture()).convert("CMYK")
    (image,) = decode(encoded(cmyk, "JPEG", quality=95))
    assert image is not None
    assert difference(image, np.asarray(cmyk.convert("RGB"))) < 2


def test_palettes_with_and_without_transparency() -> None:
    palette = as_pil(picture()).quantize(16)
    plain, clear = encoded(palette, "PNG"), encoded(palette, "PNG", transparency=3)
    first, second = decode(plain, clear, mode=None)
    np.testing.assert_array_equal(first, np.asarray(palette.convert("RGB")))
    np.testing.assert_array_equal(second, np.asarray(Image.open(io.BytesIO(clear)).convert("RGBA")))
    assert second is not None
    assert 0 in second[:, :, 3]


def test_black_and_white() -> None:
    (image,) = decode(encoded(as_pil(picture()).convert("1"), "PNG"), mode=None)
    assert image is not None
    assert image.shape == (48, 64, 1)
    assert set(np.unique(image)) == {0, 255}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_come_upright(orientation: int, format: str) -> None:
    data = oriented(picture(), orientation, format)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    for scaled_to in (None, (expected.shape[1], expected.shape[0])):
        frame = ps.from_pydict({"b": [data]}).select(ps.col("b").decode_image())
        image = (frame if scaled_to is None else frame.select(ps.col("b").resize(*scaled_to))).to_pydict()["b"][0]
        assert difference(image, expected) < 1


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_turned_jpeg_is_scaled_to_the_right_side(orientation: int) -> None:
    data = oriented(picture(480, 640), orientation, "JPEG")
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    (image,) = ps.from_pydict({"b": [data]}).select(ps.col("b").decode_image().resize(30, 100)).to_pydict()["b"]
    assert difference(image, np.asarray(upright.resize((30, 100), Image.Resampling.BOX))) < 3


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize(
    ("height", "width", "to"),
    [(131, 131, (16, 16)), (135, 137, (50, 50)), (447, 447, (224, 224)), (241, 963, (45, 40)), (9, 5, (1, 1))],
)
def test_a_scaled_decode_is_near_a_full_one(height: int, width: int, to: tuple[int, int], orientation: int) -> None:
    frame = ps.from_pydict({"b": [oriented(picture(height, width), orientation, "JPEG")]})
    (scaled,) = frame.select(ps.col("b").decode_image().resize(*to)).to_pydict()["b"]
    (exact,) = frame.select(ps.col("b").decode_image(scaled=False).resize(*to)).to_pydict()["b"]
    assert difference(scaled, exact) < 1.5
    assert np.abs(scaled.astype(int) - exact).max() <= 6


@pytest.mark.parametrize(
    "exif",
    [b"", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"XX*\0\x08\0\0\0", b"II*\0\x08\0\0\0\x01\0\x12"],
)
def test_broken_exif_is_no_orientation(exif: bytes) -> None:
    content = b"Exif\0\0" + exif
    segment = b"\xff\xe1" + (len(content) + 2).to_bytes(2, "big") + content
    data = jpeg(picture())
    assert jpeg_orientation(memoryview(data[:2] + segment + data[2:])) == 1
    assert decode(data[:2] + segment + data[2:])[0] is not None


def test_null_stays_null() -> None:
    assert decode(None, None) == [None, None]
    images = decode(None, jpeg(picture()), None)
    assert images[0] is None
    assert images[1] is not None
    assert images[2] is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"hello world, I am text", "begins with b'hello wo'; known are JPEG, PNG, WebP, GIF, BMP, TIFF"),
        (jpeg(picture())[:400], "damaged JPEG"),
        (jpeg(picture())[:-200], "damaged JPEG: image file is truncated"),
        (encoded(picture(), "PNG")[:-100], "damaged PNG"),
        (encoded(picture(), "PNG")[:20], "damaged PNG"),
        (encoded(picture(), "WEBP")[:-50], "damaged WebP"),
        (encoded(picture(), "TIFF")[:60], "damaged TIFF"),
        (encoded(picture(), "BMP")[:200], "damaged BMP"),
        (encoded(picture(), "GIF")[:100], "damaged GIF"),
        (b"\xff\xd8\xff" + b"0" * 100, "damaged JPEG"),
        (b"II*\0\xff\xff\xff\xff", "damaged TIFF"),
        (b"RIFF\0\0\0\0WEBPjunk", "damaged WebP"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image"),
    ],
)
def test_what_is_no_image_is_an_error_that_names_the_row(data: bytes, message: str) -> None:
    assert message in failure(data)


def test_bad_rows_may_be_null_and_are_listed() -> None:
    data = [jpeg(picture()), b"junk", None, encoded(picture(), "PNG")[:-100], jpeg(picture())]
    frame = ps.from_pydict({"b": data, "id": [0, 1, 2, 3, 4]}).with_column("i", ps.col("b").decode_image("null"))
    frame = frame.select("id", "i").collect()
    assert [image is None for image in frame.to_pydict()["i"]] == [False, True, True, True, False]
    errors = frame.errors().to_pydict()
    assert errors["operator"] == ["decode_image"] * 2
    assert "not an image" in errors["message"][0]
    assert "damaged PNG" in errors["message"][1]


def test_a_truncated_jpeg_is_an_error_when_scaled_too() -> None:
    frame = ps.from_pydict({"b": [jpeg(picture(480, 640))[:-2000]]}).select(
        ps.col("b").decode_image("null").resize(9, 9)
    )
    assert frame.to_pydict()["b"] == [None]


def test_spare_bytes_do_no_harm() -> None:
    data = jpeg(picture())
    images = decode(data, data + b"trailing", data[:2] + b"\xff" + data[2:])
    assert [image is not None and image.shape for image in images] == [(48, 64, 3)] * 3


@pytest.mark.parametrize("data", [png_claiming(60_000, 60_000), jpeg_claiming(60_000, 60_000)])
def test_a_bomb_is_refused_by_its_header(data: bytes) -> None:
    tracemalloc.start()
    try:
        message = failure(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "states 60000 x 60000 pixels" in message
    assert "set_config(max_image_pixels=" in message
    assert peak < 50_000_000


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The sizes of the PNGs whose pixels were decoded."""
    from PIL import PngImagePlugin

    loaded: list[tuple[int, int]] = []

    class Counted(PngImagePlugin.PngImageFile):
        def load(self) -> Any:
            if self.tile:  # else it is there already
                loaded.append(self.size)
            return super().load()

    monkeypatch.setattr(PngImagePlugin, "PngImageFile", Counted)
    return loaded


def test_the_header_of_a_png_is_read_without_its_pixels(loads: list[tuple[int, int]]) -> None:
    data = encoded(picture(), "PNG")
    opened = open_image(memoryview(data), 10_000)
    assert (opened.height, opened.width) == (48, 64)
    with pytest.raises(ComputeError, match="states 64 x 48 pixels"):
        open_image(memoryview(data), 3_000)
    assert loads == []
    np.testing.assert_array_equal(decode(data)[0], picture())
    assert loads == [(64, 48)]


def test_the_limit_of_pixels_is_a_setting() -> None:
    data = encoded(picture(), "PNG")
    with ps.config(max_image_pixels=48 * 64 - 1), pytest.raises(UdfError, match="max_image_pixels=3071"):
        decode(data)
    with ps.config(max_image_pixels=48 * 64):
        assert decode(data)[0] is not None


def test_an_image_of_no_pixels_is_refused() -> None:
    assert "damaged PNG" in failure(png_claiming(0, 5)) or "has no pixels" in failure(png_claiming(0, 5))


def test_whatever_a_decoder_raises_is_the_error_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import PngImagePlugin

    class Exhausted(PngImagePlugin.PngImageFile):
        def load(self) -> Any:
            raise MemoryError

    monkeypatch.setattr(PngImagePlugin, "PngImageFile", Exhausted)
    images = decode(jpeg(picture()), encoded(picture(), "PNG"), on_error="null")
    assert images[0] is not None
    assert images[1] is None


def test_a_failed_row_leaves_nothing_in_memory() -> None:
    cut = jpeg(picture(480, 640))[:-2000]
    column = ImageDecoder().decode([ImageDecoder().open(memoryview(cut))])
    assert list(column.failures) == [0]
    assert column.values.storage.field("data").buffers()[2].size == 0
    column = ImageDecoder(size=(9, 9)).decode([ImageDecoder().open(memoryview(cut))])
    assert list(column.failures) == [0]
    assert not np.frombuffer(column.values.storage.buffers()[-1], np.uint8).any()


def test_a_failed_row_gives_back_what_it_claimed() -> None:
    good, bad = encoded(picture(), "PNG"), png_claiming(2000, 1000)
    frame = ps.from_pydict({"b": [bad, good, None, bad, b"junk", good, bad]}).select(ps.col("b").decode_image("null"))
    batches = list(frame.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert sum(batch.get_total_buffer_size() for batch in batches) < 3 * picture().nbytes
    images = [image for batch in batches for image in ps.from_arrow(batch).to_pydict()["b"]]
    assert [image is not None for image in images] == [False, True, False, False, False, True, False]
    for image in (images[1], images[5]):
        np.testing.assert_array_equal(image, picture())


def test_a_kept_failure_holds_no_pixels() -> None:
    decoder = ImageDecoder(max_pixels=3_000_000)
    data = [png_claiming(2000, 1000), png_claiming(3000, 2000), jpeg(picture(480, 640))[:-2000], b"junk"]
    failures = decoder.decode([decoder.open(memoryview(each)) for each in data]).failures
    assert sorted(failures) == [0, 1, 2, 3]
    for exc in failures.values():
        link: BaseException | None = exc
        while link is not None:
            assert [frame.f_locals for frame, _ in traceback.walk_tb(link.__traceback__) if frame.f_locals] == []
            link = link.__cause__ or link.__context__


def test_batches_are_bounded_by_what_they_hold_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.media.images import decoder

    monkeypatch.setattr(decoder, "MAX_BATCH_NBYTES", 3 * 48 * 64 * 3)
    data = [jpeg(picture())] * 4 + [jpeg(picture(300, 300))] * 2 + [None, b"junk", *[encoded(picture(), "PNG")] * 5]
    frame = ps.from_pydict({"b": data, "id": list(range(13))}).with_column("b", ps.col("b").decode_image("null"))
    batches = list(frame.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert all(batch.num_rows - batch.column("b").null_count <= 3 for batch in batches)
    large = [batch for batch in batches if {4, 5} & set(batch.column("id").to_pylist())]
    assert [batch.num_rows for batch in large] == [1, 1]
    assert [value for batch in batches for value in batch.column("id").to_pylist()] == list(range(13))
    assert [image is None for image in frame.to_pydict()["b"]] == [False] * 6 + [True] * 2 + [False] * 5


def test_the_row_that_fails_is_counted_over_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.media.images import decoder

    monkeypatch.setattr(decoder, "MAX_BATCH_NBYTES", 48 * 64 * 3)
    with pytest.raises(UdfError, match="failed on row 41 of the input"):
        decode(*[jpeg(picture())] * 41, b"junk")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(20):
        (tmp_path / f"{number:02d}.png").write_bytes(encoded(np.full((4, 5, 3), number, np.uint8), "PNG"))
    return tmp_path


def test_a_column_of_files_is_read_and_decoded(folder: Path) -> None:
    images = ps.from_files(str(folder / "*.png")).select(ps.col("file").decode_image()).to_pydict()["file"]
    assert [int(image[0, 0, 0]) for image in images] == list(range(20))
    paths = ps.from_pydict({"p": [str(folder / "03.png"), None]})
    image, nothing = paths.select(ps.col("p").image_file().decode_image().resize(2, 2)).to_pydict()["p"]
    assert image.shape == (2, 2, 3)
    assert nothing is None
    files = ps.from_pydict({"f": [ps.File((folder / "07.png").read_bytes())]})
    assert files.select(ps.col("f").decode_image()).to_pydict()["f"][0][0, 0, 0] == 7


def test_a_file_that_cannot_be_decoded_or_read_is_the_error_of_its_row(folder: Path) -> None:
    (folder / "00.png").write_bytes(b"junk")
    frame = ps.from_pydict({"p": [str(folder / name) for name in ("01.png", "00.png", "missing.png")]})
    decoded = frame.select(ps.col("p").image_file().decode_image("null")).collect()
    assert [image is None for image in decoded.to_pydict()["p"]] == [False, True, True]
    not_image, missing = decoded.errors().to_pydict()["message"]
    assert "not an image" in not_image
    assert "missing.png" in missing
    with pytest.raises(UdfError, match="decode_image failed on row 1 of the input: not an image"):
        frame.select(ps.col("p").image_file().decode_image()).to_pydict()


def test_the_record_of_a_failed_row_tells_which_file_it_was(folder: Path) -> None:
    bad = str(folder / "bad.png")
    Path(bad).write_bytes(b"junk")
    paths = ps.from_pydict({"path": [str(folder / "01.png"), bad], "id": [7, 8], "long": ["x" * 500] * 2})
    image = ps.col("path").download().decode_image(on_error="null")
    for frame, columns, others in (
        (paths.select(image), ["path"], {"path": bad}),
        (paths.select(image.resize(4, 4).alias("i")), ["i"], {"path": bad}),
        (paths.with_column("i", image), ["path", "id", "long", "i"], {"path": bad, "id": 8}),
        (
            paths.with_column("b", ps.col("path").download()).with_column("i", ps.col("b").decode_image("null")),
            ["path", "id", "long", "b", "i"],
            {"path": bad, "id": 8},
        ),
    ):
        result = frame.collect()
        assert list(result.to_pydict()) == frame.schema.names == columns
        (given,) = result.errors().to_pydict()["input"]
        told = json.loads(given)
        assert "anVuaw==" in told.values()
        assert {name: told[name] for name in told if not name.startswith("__") and name != "b"} == others

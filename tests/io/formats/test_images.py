"""Image files, read and written."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import InvalidArgumentError, OutputExistsError, PathNotFoundError, UdfError
from tests.architecture.imports import ROOT
from tests.explained import explained
from tests.media.images.samples import difference, encoded, jpeg, picture
from tests.storage.web import Web


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of six images of five formats, one in a folder below, beside files that are none."""
    place = tmp_path / "pictures"
    (place / "more").mkdir(parents=True)
    for name, format in {
        "a.png": "PNG",
        "b.webp": "WEBP",
        "c.gif": "GIF",
        "d.tif": "TIFF",
        "more/f.BMP": "BMP",
    }.items():
        (place / name).write_bytes(encoded(picture(), format))
    (place / "e.jpeg").write_bytes(jpeg(picture()))
    (place / "notes.txt").write_text("not an image")
    (place / "_hidden.png").write_text("not an image")
    return place


def test_a_folder_is_read_by_endings_in_order(folder: Path) -> None:
    frame = ps.read_images(folder, include_paths=True)
    assert str(frame.schema["image"].dtype) == "image[RGB]"
    rows = frame.to_pydict()
    assert [os.path.relpath(path, folder) for path in rows["path"]] == [
        "a.png", "b.webp", "c.gif", "d.tif", "e.jpeg", "more/f.BMP",
    ]  # fmt: skip
    assert all(image.shape == (48, 64, 3) for image in rows["image"])
    np.testing.assert_array_equal(rows["image"][0], picture())


def test_a_list_and_a_pattern(folder: Path) -> None:
    assert ps.read_images([folder / "e.jpeg", folder / "a.png"]).count_rows() == 2
    assert ps.read_images(str(folder / "*.[pw]*")).count_rows() == 2
    assert ps.read_images(str(folder / "a.png")).columns == ["image"]
    with pytest.raises(PathNotFoundError, match="nothing"):
        ps.read_images(folder / "nothing.png")


def test_images_of_one_shape_in_a_batch_are_one_array(tmp_path: Path) -> None:
    for number, height in enumerate([4, 4, 6, 6, 4]):
        (tmp_path / f"{number}.png").write_bytes(encoded(np.full((height, 5, 3), number, np.uint8), "PNG"))

    def brighter(batch: dict[str, np.ndarray]) -> dict[str, object]:
        return {"image": batch["image"] + 4, "ndim": [batch["image"].ndim] * len(batch["image"])}

    rows = ps.read_images(tmp_path).limit(4).map_batches(brighter, batch_size=2).to_pydict()
    assert rows["ndim"] == [4, 4, 4, 4]
    assert [(image.shape, image.max()) for image in rows["image"]] == [
        ((4, 5, 3), 4), ((4, 5, 3), 5), ((6, 5, 3), 6), ((6, 5, 3), 7),
    ]  # fmt: skip
    assert ps.read_images(tmp_path).map_batches(brighter, batch_size=5).to_pydict()["ndim"] == [1] * 5


def test_size_is_height_and_width(folder: Path) -> None:
    frame = ps.read_images(folder, size=(10, 20))
    assert str(frame.schema["image"].dtype) == "image[RGB; 10x20]"
    batch = next(iter(frame.iter_batches(batch_size=6, batch_format="numpy")))
    assert batch["image"].shape == (6, 10, 20, 3)
    assert batch["image"].dtype == np.uint8


def test_modes(folder: Path) -> None:
    assert ps.read_images(folder, mode="L").to_pydict()["image"][0].shape == (48, 64, 1)
    (folder / "a.png").write_bytes(encoded(picture(channels=4), "PNG"))
    shapes = [image.shape[2] for image in ps.read_images(folder, mode=None).to_pydict()["image"]]
    assert shapes[0] == 4
    assert shapes[4] == 3


def test_options_are_checked(folder: Path) -> None:
    for options in ({"size": 5}, {"size": (0, 4)}, {"size": (1, 2, 3)}, {"mode": "CMYK"}, {"siez": (1, 2)}):
        with pytest.raises(InvalidArgumentError, match="read_images"):
            ps.read_images(folder, **options)


def test_a_corrupt_file_is_an_error_that_names_it(folder: Path) -> None:
    (folder / "b.webp").write_bytes(jpeg(picture())[:300])
    with pytest.raises(UdfError, match=r"row 0 of .*b\.webp: damaged JPEG"):
        ps.read_images(folder).collect()


@pytest.mark.one_machine
def test_corrupt_files_may_be_passed_over(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "b.webp").write_text("text")
    (folder / "e.jpeg").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        rows = ps.read_images(folder, include_paths=True, ignore_corrupt_files=True).to_pydict()
    assert [Path(path).name for path in rows["path"]] == ["a.png", "c.gif", "d.tif", "f.BMP"]
    assert len(rows["image"]) == 4
    assert "b.webp" in caplog.text
    assert "e.jpeg" in caplog.text
    frame = ps.read_images(folder, include_paths=True, ignore_corrupt_files=True)
    assert frame.select("path").count_rows() == 4
    assert frame.limit(2).count_rows() == 2


def test_an_unreadable_image_may_be_null(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(encoded(picture(20, 30), "PNG"))
    (tmp_path / "2.png").write_bytes(b"not an image")
    df = ps.read_images(tmp_path, size=(4, 4), include_paths=True, on_error="null").collect()
    first, second = df.to_pylist()
    assert first["image"].shape == (4, 4, 3)
    assert (second["image"], second["path"]) == (None, str(tmp_path / "2.png"))
    assert df.schema == ps.read_images(tmp_path, size=(4, 4), include_paths=True).schema
    assert df.errors().to_pydict()["source"] == [str(tmp_path / "2.png")]
    with pytest.raises(InvalidArgumentError, match="read_images: on_error='nil' is not known"):
        ps.read_images(tmp_path, on_error="nil")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="not both"):
        ps.read_images(tmp_path, on_error="null", ignore_corrupt_files=True)


def test_paths_alone_decode_nothing(folder: Path) -> None:
    (folder / "b.webp").write_text("text")
    assert ps.read_images(folder, include_paths=True).select("path").count_rows() == 6


def test_a_limit_reads_no_more_files(folder: Path) -> None:
    for number in range(200):
        (folder / f"z{number}.png").write_text("text")
    assert ps.read_images(folder).limit(3).count_rows() == 3


@pytest.mark.one_machine
def test_any_store_of_fsspec_will_do(folder: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for number in range(40):
        memory.pipe(f"/pictures/{number:03d}.png", encoded(np.full((4, 4, 3), number, np.uint8), "PNG"))
    try:
        rows = ps.read_images("memory://pictures", include_paths=True).to_pydict()
    finally:
        memory.rm("/pictures", recursive=True)
    assert [int(image[0, 0, 0]) for image in rows["image"]] == list(range(40))
    assert rows["path"][3].endswith("pictures/003.png")


@pytest.mark.parametrize("file_format", ["png", "jpg", "webp"])
def test_written_files_are_read_back(tmp_path: Path, file_format: str) -> None:
    frame = ps.from_pydict({"i": [picture(), None, picture(20, 30), picture(channels=1)], "a": [1, 2, 3, 4]})
    written = frame.with_column("i", ps.col("i").cast("image")).write_images(str(tmp_path / "out"), "i", file_format)
    assert written.to_pydict()["rows"] == [1, 1, 1]
    files = sorted((tmp_path / "out").iterdir())
    assert [file.suffix for file in files] == [f".{file_format}"] * 3
    assert [Image.open(io.BytesIO(file.read_bytes())).size for file in files] == [(64, 48), (30, 20), (64, 48)]
    assert difference(ps.read_images(tmp_path / "out").to_pydict()["image"][0], picture()) < 4


def test_write_modes(tmp_path: Path) -> None:
    frame = ps.from_pydict({"i": [picture()]}).select(ps.col("i").cast("image"))
    out = str(tmp_path / "out")
    frame.write_images(out, "i")
    with pytest.raises(OutputExistsError):
        frame.write_images(out, "i")
    frame.write_images(out, "i", mode="append")
    assert len(os.listdir(out)) == 2
    frame.write_images(out, "i", "jpeg", mode="overwrite")
    assert [Path(name).suffix for name in os.listdir(out)] == [".jpeg"]


def test_write_is_refused_on_the_spot(tmp_path: Path) -> None:
    frame = ps.from_pydict({"i": [picture()], "t": ["x"]})
    with pytest.raises(InvalidArgumentError, match="not known"):
        frame.write_images(str(tmp_path / "out"), "i", "docx")
    with pytest.raises(Exception, match="expected an image, got string"):
        frame.write_images(str(tmp_path / "out"), "t")
    assert not (tmp_path / "out").exists()


def test_pandas_is_not_loaded(folder: Path) -> None:
    """``pyarrow.array`` does that when it is first given a list, and it takes as long as a hundred images."""
    script = (
        "import sys, penstock as ps\n"
        f"df = ps.read_images({str(folder)!r}, size=(8, 8), include_paths=True).collect()\n"
        "assert len(df) == 6 and 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_paths_of_urls_are_data_and_keep_their_queries(web: Web) -> None:
    url = web.put("a.png", encoded(picture(), "PNG")) + "?token=abc"
    frame = ps.read_images(url, include_paths=True)
    paths = frame.to_pydict()["path"]
    again = ps.from_pydict({"p": paths}).select(ps.col("p").download().decode_image()).to_pydict()["p"]
    assert paths == [url]
    assert "abc" not in explained(frame)
    np.testing.assert_array_equal(again[0], picture())

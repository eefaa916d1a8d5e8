"""Sizes of JPEG that are read in Python: as libjpeg-turbo reads them, or left to it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, strategies as st
from PIL import Image

import penstock as ps
from penstock.media.images.jpeg_header import plain_frame


def jpeg(mode: str = "RGB", **options: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (37, 53, {"L": 1, "RGB": 3, "CMYK": 4}[mode]), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode).save(out, "JPEG", **options)
    return out.getvalue()


PLAIN = {
    "baseline": jpeg(),
    "grey": jpeg("L"),
    "progressive": jpeg(progressive=True),
    "restarts": jpeg(restart_marker_blocks=1),
    "comment and profile": jpeg(comment=b"\xff\xc0 no frame", icc_profile=b"\xff\xc0" * 40_000),
    "exif": jpeg(exif=b"Exif\0\0" + b"\xff\xc2" * 100),
    "unsampled": jpeg(subsampling=0),
}


@pytest.mark.parametrize("name", PLAIN)
def test_sizes_are_those_of_libjpeg_turbo(name: str) -> None:
    height, width, colours, _ = simplejpeg.decode_jpeg_header(PLAIN[name])
    assert plain_frame(memoryview(PLAIN[name])) == (height, width, 1 if colours == "Gray" else 3)


def test_unusual_files_are_left_to_a_library() -> None:
    whole = PLAIN["baseline"]
    frame = whole.index(b"\xff\xc0")
    unusual = {
        "four channels": jpeg("CMYK"),
        "cut before its size": whole[: frame + 6],
        "fill bytes": whole[:2] + b"\xff" + whole[2:],
        "twelve bits": whole[: frame + 4] + b"\x0c" + whole[frame + 5 :],
        "no height": whole[: frame + 5] + b"\0\0" + whole[frame + 7 :],
        "lossless": whole[: frame + 1] + b"\xc3" + whole[frame + 2 :],
        "a segment without a length": whole[:4] + b"\0\0" + whole[6:],
    }
    assert {name: plain_frame(memoryview(data)) for name, data in unusual.items()} == dict.fromkeys(unusual)


@given(st.binary(max_size=64))
def test_any_bytes_end_the_search(data: bytes) -> None:
    assert plain_frame(memoryview(b"\xff\xd8" + data)) is None or b"\xff" in data


def test_a_file_that_ends_after_its_size_is_the_error_of_its_row() -> None:
    cut = PLAIN["baseline"][: PLAIN["baseline"].index(b"\xff\xc0") + 19]
    df = ps.from_pydict({"data": [PLAIN["baseline"], cut]})
    found = df.select(ps.col("data").decode_image(on_error="null")).to_pydict()["data"]
    assert found[0].shape == (37, 53, 3)
    assert found[1] is None

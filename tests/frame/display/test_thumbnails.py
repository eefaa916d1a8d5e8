"""Images in a notebook: small pictures inside the page."""

from __future__ import annotations

import base64
import io
import re
import sys

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from tests.media.images.samples import Pixels, picture


def shown(pixels: Pixels) -> tuple[Image.Image, str]:
    """Return the picture that a page shows, and its tag."""
    page = ps.from_pydict({"i": [pixels]}).select(ps.col("i").cast("image")).collect()._repr_html_()
    (tag,) = re.findall(r"<img [^>]*>", page)
    found = re.search(r'src="data:image/(png|jpeg);base64,([^"]+)"', tag)
    assert found is not None
    image = Image.open(io.BytesIO(base64.b64decode(found[2])))
    assert image.format == found[1].upper()
    return image, tag


@pytest.mark.parametrize(
    ("shape", "size"), [((480, 640), (100, 75)), ((2000, 10), (1, 100)), ((80, 60), (60, 80)), ((1, 5000), (100, 1))]
)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_large_images_are_scaled_down(shape: tuple[int, int], size: tuple[int, int], channels: int) -> None:
    image, tag = shown(picture(*shape, channels))
    assert image.size == size
    assert f'width="{size[0]}" height="{size[1]}"' in tag
    assert f'title="image {["L", "LA", "RGB", "RGBA"][channels - 1]} {shape[1]}x{shape[0]}"' in tag


def test_tiny_images_are_shown_larger_pixel_by_pixel() -> None:
    image, tag = shown(picture(2, 4))
    np.testing.assert_array_equal(np.asarray(image), picture(2, 4))
    assert 'width="32" height="16"' in tag
    assert "pixelated" in tag


def test_transparency_stays() -> None:
    assert shown(picture(channels=4))[0].mode == "RGBA"


def test_fixed_shapes_and_nulls() -> None:
    frame = ps.from_pydict({"i": [picture(), None]}).select(ps.col("i").cast("image").resize(40, 40))
    page = frame.collect()._repr_html_()
    assert page.count("<img ") == 1
    assert "None" in page


def test_without_the_packages_it_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.media.images import packages

    frame = ps.from_pydict({"i": [picture()]}).select(ps.col("i").cast("image")).collect()
    for load in (packages.opencv, packages.simplejpeg, packages.pillow):
        load.cache_clear()
    for module in ("cv2", "simplejpeg", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    page = frame._repr_html_()
    assert "<img" not in page
    assert "&lt;image RGB 64x48&gt;" in page

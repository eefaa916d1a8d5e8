"""Images that look alike have hashes that are near each other."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError
from penstock.media.images.hashes import METHODS, image_hash
from tests.media.images.samples import Pixels, picture


def bits(pixels: Pixels, method: str, size: int = 8) -> Pixels:
    return np.unpackbits(np.frombuffer(image_hash(pixels, method, size), np.uint8))


def textured(seed: int) -> Pixels:
    import cv2

    coarse = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(coarse, (160, 120), interpolation=cv2.INTER_CUBIC))


@pytest.mark.parametrize("method", METHODS)
def test_small_changes_move_few_bits_and_another_image_many(method: str) -> None:
    import cv2

    image, other = textured(1), textured(2)
    changed = np.clip(cv2.resize(image, (90, 70)).astype(int) + 6, 0, 255).astype(np.uint8)
    length = len(bits(image, method))
    assert (bits(image, method) != bits(changed, method)).sum() < 0.1 * length
    assert (bits(image, method) != bits(other, method)).sum() > 0.25 * length


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (40, 3)])
def test_any_shape_and_mode_has_a_hash(method: str, shape: tuple[int, int]) -> None:
    for channels in (1, 2, 3, 4):
        assert len(image_hash(picture(50, 60, channels)[: shape[0], : shape[1]], method, 8)) == 8


def test_as_a_column() -> None:
    images = ps.from_pydict({"i": [picture(), None]}).select(ps.col("i").cast("image"))
    frame = images.select(ps.col("i").image_hash(method="dhash", hash_size=16))
    assert frame.schema["i"].dtype == ps.DataType.fixed_size_binary(32)
    first, second = frame.to_pydict()["i"]
    assert len(first) == 32
    assert second is None


def test_options_are_checked() -> None:
    for options in ({"method": "phish"}, {"hash_size": 0}, {"hash_size": True}):
        with pytest.raises(InvalidArgumentError, match="image_hash"):
            ps.col("i").image_hash(**options)

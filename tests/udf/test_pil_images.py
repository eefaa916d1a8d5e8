"""Functions whose hints say that they take or give images of Pillow."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import PIL.Image
import pytest

import penstock as ps
from tests.media.images.samples import jpeg, picture


@ps.func
def mirrored(image: PIL.Image.Image) -> PIL.Image.Image:
    return image.transpose(PIL.Image.Transpose.FLIP_LEFT_RIGHT)


@ps.cls
class Describer:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, image: PIL.Image.Image | None, *, suffix: str = "") -> str:
        return f"{self.prefix}{'none' if image is None else f'{image.mode}{image.size}'}{suffix}"


@pytest.mark.parametrize("dtype", ["image", "image[RGB]", "image[RGB; 48x64]"])
def test_images_go_in_and_come_out(dtype: str) -> None:
    frame = ps.from_pydict({"i": [picture(), picture()[::-1]]}).select(ps.col("i").cast(dtype))
    mirror = frame.select(mirrored(ps.col("i")))
    assert str(mirror.schema["i"].dtype) == "image"
    for image, original in zip(mirror.to_pydict()["i"], frame.to_pydict()["i"], strict=True):
        np.testing.assert_array_equal(image, original[:, ::-1])


def test_decoded_images_reach_a_class() -> None:
    frame = ps.from_pydict({"b": [jpeg(picture()), None], "s": ["!", "?"]})
    described = Describer("it is ")(ps.col("b").decode_image(mode="L"), suffix=ps.col("s"))
    assert frame.select(described.alias("d")).to_pydict() == {"d": ["it is L(64, 48)!", "it is none?"]}


def test_async_and_in_a_process() -> None:
    @ps.func
    async def size(image: PIL.Image.Image) -> list[int]:
        await asyncio.sleep(0)
        return list(image.size)

    @ps.func(use_process=True)
    def mode(image: PIL.Image.Image) -> str:
        return image.mode

    frame = ps.from_pydict({"i": [picture()]}).select(ps.col("i").cast("image"))
    both = frame.select(size(ps.col("i")).alias("size"), mode(ps.col("i")).alias("mode"))
    assert both.to_pydict() == {"size": [[64, 48]], "mode": ["RGB"]}


def test_without_the_hint_it_is_an_array() -> None:
    @ps.func
    def kind(image: Any) -> str:
        return type(image).__name__

    frame = ps.from_pydict({"i": [picture()]}).select(ps.col("i").cast("image"))
    assert frame.select(kind(ps.col("i"))).to_pydict() == {"i": ["ndarray"]}


def test_images_given_as_data_become_a_column() -> None:
    frame = ps.from_pydict({"i": [PIL.Image.fromarray(picture()), None]})
    assert str(frame.schema["i"].dtype) == "image"
    np.testing.assert_array_equal(frame.to_pydict()["i"][0], picture())

"""A resize that follows a decode happens while decoding, where nobody wants the full image."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as ps
from penstock.media.images.decoder import ImageDecoder
from penstock.plan.nodes import Plan, UdfProject
from penstock.plan.optimizer import RULES, optimize
from penstock.plan.rules.fuse_decode_resize import fuse_decode_resize
from tests.media.images.samples import difference, encoded, jpeg, picture

UNFUSED = tuple(rule for rule in RULES if rule is not fuse_decode_resize)


@ps.func.batch(return_dtype=ps.DataType.float64())
def mean(images: ps.Series) -> list[float | None]:
    return [None if image is None else float(image.mean()) for image in images]


def frame() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3], "b": [jpeg(picture(480, 640)), None, encoded(picture(90, 70), "PNG")]})


def decoders(plan: Plan) -> list[ImageDecoder]:
    below = [decoder for child in plan.children for decoder in decoders(child)]
    own = [plan.call.udf.target.function] if isinstance(plan, UdfProject) else []
    return [*below, *(target for target in own if isinstance(target, ImageDecoder))]


IMAGE = ps.col("b").decode_image()
FUSED = {
    "in one expression": lambda: frame().select("a", IMAGE.resize(30, 20).alias("s")),
    "in two verbs": lambda: (
        frame().with_column("i", IMAGE).with_column("s", ps.col("i").resize(30, 20)).select("a", "s")
    ),
    "in place": lambda: frame().with_column("b", IMAGE).with_column("b", ps.col("b").resize(30, 20)),
    "in an argument": lambda: frame().select("a", mean(IMAGE.resize(30, 20)).alias("s")),
    "below other functions": lambda: frame().select(
        "a", IMAGE.resize(30, 20).convert_image("L").crop((1, 2, 3, 4)).alias("s")
    ),
    "read twice": lambda: frame().select(IMAGE.resize(30, 20).alias("s"), IMAGE.resize(30, 20).image_hash().alias("h")),
    "of any mode": lambda: frame().select(ps.col("b").decode_image(mode=None).resize(30, 20)),
}
KEPT = {
    "no resize": lambda: frame().select(IMAGE),
    "the image is wanted too": lambda: frame().with_column("i", IMAGE).with_column("s", ps.col("i").resize(30, 20)),
    "another size": lambda: frame().select(IMAGE.resize(30, 20).alias("s"), IMAGE.resize(3, 2).alias("t")),
    "its size is wanted too": lambda: frame().select(IMAGE.resize(30, 20).alias("s"), IMAGE.image_width().alias("w")),
    "a crop comes first": lambda: frame().select(IMAGE.crop((0, 0, 50, 50)).resize(30, 20)),
    "of another column": lambda: ps.from_pydict({"i": [picture()]}).select(ps.col("i").cast("image").resize(3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str) -> None:
    plan = FUSED[name]()._plan
    fused, unfused = optimize(plan), optimize(plan, UNFUSED)
    assert [decoder.size for decoder in decoders(fused)] == [(20, 30)]
    assert [decoder.size for decoder in decoders(unfused)] == [None]
    assert fused.schema == unfused.schema == plan.schema
    assert "resize(" not in repr([fused.exprs] if hasattr(fused, "exprs") else [])


@pytest.mark.parametrize("name", KEPT)
def test_left_alone(name: str) -> None:
    plan = optimize(KEPT[name]()._plan, UNFUSED)
    assert optimize(plan) == plan


@pytest.mark.parametrize("name", FUSED)
def test_the_result_is_the_same_or_nearly(name: str) -> None:
    built = FUSED[name]()
    fused, unfused = built.to_pydict(), ps.DataFrame(optimize(built._plan, UNFUSED)).to_pydict()
    assert list(fused) == list(unfused)
    for column in fused:
        for left, right in zip(fused[column], unfused[column], strict=True):
            if isinstance(left, np.ndarray):
                assert difference(left, right) < 3
            elif not isinstance(left, bytes):
                assert left == (right if left is None else pytest.approx(right, abs=1))


def test_scaled_false_gives_the_pixels_of_the_full_image() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)
    data = ps.from_pydict({"b": [jpeg(noise)]})
    exact = data.select(ps.col("b").decode_image(scaled=False).resize(70, 60)).to_pydict()["b"][0]
    by_hand = data.select(ps.col("b").decode_image()).collect().select(ps.col("b").resize(70, 60)).to_pydict()["b"][0]
    scaled = data.select(ps.col("b").decode_image().resize(70, 60)).to_pydict()["b"][0]
    np.testing.assert_array_equal(exact, by_hand)
    assert not np.array_equal(scaled, by_hand)


CHAINED = {
    "in one expression": lambda image: frame().select("a", image.resize(32, 16).resize(5, 6).alias("s")),
    "in three verbs": lambda image: (
        frame()
        .with_column("s", image)
        .with_column("s", ps.col("s").resize(32, 16))
        .with_column("s", ps.col("s").resize(5, 6))
    ),
    "below another function": lambda image: frame().select(
        image.resize(32, 16).convert_image("L").resize(5, 6).convert_image("RGB").alias("s")
    ),
    "three times": lambda image: frame().select(image.resize(32, 16).resize(50, 60).resize(5, 6).alias("s")),
    "to one size": lambda image: frame().select(image.resize(5, 6).resize(5, 6).alias("s")),
}


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", CHAINED)
def test_only_the_first_of_several_resizes_is_fused(name: str, scaled: bool) -> None:
    built = CHAINED[name](ps.col("b").decode_image(scaled=scaled))
    assert [decoder.size for decoder in decoders(optimize(built._plan))] in ([(16, 32)], [(6, 5)])
    assert str(built.schema["s"].dtype) == "image[RGB; 6x5]"
    fused, unfused = built.to_pydict()["s"], ps.DataFrame(optimize(built._plan, UNFUSED)).to_pydict()["s"]
    for left, right in zip(fused, unfused, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            assert left.shape == (6, 5, 3)
            assert difference(left, right) < 3


def test_a_chain_in_an_argument_keeps_its_later_resizes() -> None:
    @ps.func.batch(return_dtype=ps.DataType.string())
    def shape(images: ps.Series) -> list[str | None]:
        return [None if image is None else str(image.shape) for image in images]

    shapes = frame().select(shape(IMAGE.resize(32, 16).resize(5, 6)).alias("s")).to_pydict()["s"]
    assert shapes == ["(6, 5, 3)", None, "(6, 5, 3)"]


def test_a_bad_row_is_null_and_listed() -> None:
    bad = (
        ps.from_pydict({"b": [b"junk", jpeg(picture())]})
        .select(ps.col("b").decode_image("null").resize(3, 2))
        .collect()
    )
    first, second = bad.to_pydict()["b"]
    assert first is None
    assert second.shape == (2, 3, 3)
    assert bad.errors().to_pydict()["operator"] == ["decode_image_resized"]

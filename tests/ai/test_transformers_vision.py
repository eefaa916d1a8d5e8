"""Vectors and labels of images by local models: what transformers itself gives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.ai.local.image_resizer import resizer_of
from penstock.ai.local.transformers import TransformersProvider
from penstock.ai.provider import Classifier, Embedder, ImageClassification, ImageEmbedding, TextEmbedding
from penstock.errors import InvalidArgumentError, RequestRefusedError
from tests.ai.local_models import COLOURS, images, save_bert, save_clip, save_dino, save_resnet, save_vit


def embed(model: str, pixels: list[np.ndarray], dimensions: int | None = None, **options: Any) -> np.ndarray:
    task = ImageEmbedding(model, {"device": "cpu", **options}, dimensions=dimensions)
    found = pickle.loads(pickle.dumps(TransformersProvider().model(task)))
    assert isinstance(found, Embedder)
    found.load()
    vectors = found.embed(pixels)
    assert isinstance(vectors, np.ndarray)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(pixels), found.dimensions))
    return vectors


def classify(model: str, labels: list[str]) -> list[str]:
    found = TransformersProvider().model(ImageClassification(model, {"device": "cpu"}, labels=tuple(labels)))
    assert isinstance(found, Classifier)
    found.load()
    assert list(found.classify([])) == []
    return list(found.classify(images()))


def pixels_of(folder: str) -> dict[str, Any]:
    from transformers import AutoImageProcessor

    return dict(AutoImageProcessor.from_pretrained(folder)(images(), return_tensors="pt"))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ViT", {"size": {"height": 16, "width": 16}}),
        ("CLIP", {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}),
        ("Siglip", {"size": {"height": 16, "width": 16}}),
        ("Bit", {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}),
    ],
)
def test_pixels_that_a_gpu_resizes_are_those_of_the_processor(name: str, settings: dict[str, Any]) -> None:
    import transformers

    processor = getattr(transformers, f"{name}ImageProcessor")(**settings)
    pixels = [*images(), *images()[:2]]  # two of some shapes
    expected = processor(pixels, return_tensors="pt", input_data_format="channels_last")["pixel_values"]
    resizer = resizer_of(processor)
    assert resizer is not None
    found = resizer.pixels(pixels, torch.device("cpu"))
    np.testing.assert_allclose(found, expected, atol=0.04)  # two levels of 255


@torch.inference_mode()
@pytest.mark.parametrize("is_siglip", [False, True])
def test_clip(is_siglip: bool, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = save_clip(tmp_path, is_siglip=is_siglip)
    captions = [f"This is a photo of {colour}." for colour in COLOURS]
    tokens = AutoTokenizer.from_pretrained(folder)(
        captions, padding="max_length" if is_siglip else True, truncation=True, max_length=12, return_tensors="pt"
    )
    out = AutoModel.from_pretrained(folder).eval()(**tokens, **pixels_of(folder))
    vectors = embed(folder, images(), normalize=True)
    assert vectors.shape[1] == (16 if is_siglip else 10)
    np.testing.assert_allclose(vectors, out.image_embeds.numpy(), atol=1e-5)
    embedder = TransformersProvider().model(TextEmbedding(folder, {"device": "cpu", "normalize": True}))
    assert isinstance(embedder, Embedder)
    np.testing.assert_allclose(embedder.embed(captions), out.text_embeds.numpy(), atol=1e-5)
    expected = [list(COLOURS)[i] for i in out.logits_per_image.argmax(1)]
    assert classify(folder, list(COLOURS)) == expected


@torch.inference_mode()
def test_a_backbone_gives_what_it_pools(tmp_path: Path) -> None:
    from transformers import AutoModel

    saved = (save_vit(tmp_path / "vit"), 16), (save_resnet(tmp_path / "resnet"), 6), (save_dino(tmp_path / "dino"), 16)
    for folder, width in saved:
        expected = AutoModel.from_pretrained(folder).eval()(**pixels_of(folder)).pooler_output.flatten(1)
        assert expected.shape[1] == width
        np.testing.assert_allclose(embed(folder, images()), expected.numpy(), atol=1e-5)


def test_a_backbone_from_a_classifier_has_no_random_pooler(tmp_path: Path) -> None:
    folder = save_vit(tmp_path, has_head=True)
    np.testing.assert_array_equal(embed(folder, images()), embed(folder, images()))


@torch.inference_mode()
def test_an_image_classifier_uses_its_own_labels(tmp_path: Path) -> None:
    from transformers import AutoModelForImageClassification

    folder = save_vit(tmp_path, has_head=True)
    logits = AutoModelForImageClassification.from_pretrained(folder).eval()(**pixels_of(folder)).logits
    labels = ["white", "red", "green"]  # "red" is a synonym there
    expected = [labels[i] for i in logits[:, [3, 0, 1]].argmax(1)]
    assert classify(folder, labels) == expected
    with pytest.raises(InvalidArgumentError, match="cannot tell pink"):
        classify(folder, ["pink"])


def test_images_of_other_modes(tmp_path: Path) -> None:
    folder = save_vit(tmp_path)
    grey = np.full((20, 20, 1), 99, np.uint8)
    rgb = np.repeat(grey, 3, axis=2)
    rgba = np.concatenate([rgb, np.full((20, 20, 1), 7, np.uint8)], axis=2)
    vectors = embed(folder, [rgb, grey, rgba, (rgb.astype(np.uint16) << 8)])
    np.testing.assert_allclose(vectors, np.repeat(vectors[:1], 4, axis=0), atol=1e-6)


def test_small_images_and_cut_vectors(tmp_path: Path) -> None:
    folder = save_clip(tmp_path)
    assert embed(folder, [np.zeros((1, 1, 3), np.uint8), np.zeros((3, 2, 3), np.uint8)], 4).shape == (2, 4)
    assert embed(folder, []).shape == (0, 10)
    with pytest.raises(InvalidArgumentError, match="up to the model's 10"):
        embed(folder, [], 11)


def test_a_model_of_texts_takes_no_images(tmp_path: Path) -> None:
    with pytest.raises(RequestRefusedError, match=r"takes no images: .* has no preprocessor_config.json"):
        embed(save_bert(tmp_path), images())
